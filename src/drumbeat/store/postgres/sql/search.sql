-- Searches for jobs. `store/job_search.py` chooses the statements; the names are the same on SQLite. A scan reads at most $12
-- jobs, whether they match or not.

-- name: _matches
-- Number of jobs scanned, smallest of their ids, ids and views of matches.
-- $1 state, $2 view, $3 task, $4 queue, $5 key, $6 a part of the error, $7 schedule, $8 instance, $9 parent; null: any.
-- $10 and $11: the span of ids. $13 workflow or null.
SELECT count(*) AS scanned, min(id::text COLLATE "C") AS smallest, array_agg(id::text) FILTER (WHERE matches) AS ids,
       array_agg(view) FILTER (WHERE matches) AS views
  FROM (SELECT id,
               view,
               ($1::text IS NULL OR state = $1)
               AND ($2::text IS NULL OR view = $2)
               AND ($3::text IS NULL OR task = $3)
               AND ($4::text IS NULL OR queue = $4)
               AND ($5::text IS NULL OR key = $5)
               AND ($6::text IS NULL OR strpos(error::json ->> 'type', $6) > 0 OR strpos(error::json ->> 'message', $6) > 0)
               AND ($7::text IS NULL OR schedule = $7)
               AND ($8::text IS NULL OR instance = $8)
               AND ($9::text IS NULL OR parent = $9)
               AND ($13::text IS NULL OR workflow = $13) AS matches
          FROM (SELECT

-- name: _live
id, state, task, queue, key, error, schedule, instance, parent, workflow,
CASE WHEN state = 'running' THEN 'running'
     WHEN blocked_on IS NOT NULL THEN 'waiting'
     WHEN run_at <= drumbeat.now_us() THEN 'ready'
     WHEN failures + crashes > 0 THEN 'retrying'
     ELSE 'scheduled'
 END AS view

-- name: _ended
id, state, task, queue, key, error, schedule, instance, parent, workflow,
CASE WHEN state IN ('succeeded', 'cancelled', 'expired') THEN state ELSE 'dead' END AS view

-- name: _live_scan
                -- include: _matches
                -- include: _live
                  FROM drumbeat.job AS job
                 WHERE {{here}}
                   AND job.id BETWEEN $10::text::uuid AND $11::text::uuid

-- name: _ended_scan
                -- include: _matches
                -- include: _ended
                  FROM {{here}}
                   AND job.id BETWEEN $10::text::uuid AND $11::text::uuid

-- name: _newest
                 ORDER BY job.id DESC
                 LIMIT $12) AS scanned) AS checked

-- name: live_scan
-- include: _live_scan with true
-- include: _newest
;

-- name: live_scan_of_parent
-- include: _live_scan with job.parent = $9::text AND job.parent IS NOT NULL
-- include: _newest
;

-- name: live_scan_of_workflow
-- include: _live_scan with job.workflow = $13::text AND job.workflow IS NOT NULL
-- include: _newest
;

-- name: live_filter
-- $12 ids, here and below.
-- include: _live_scan with job.id = ANY ($12::text[]::uuid[])
) AS scanned) AS checked;

-- name: history_scan
-- include: _ended_scan with drumbeat.history AS job WHERE true
-- include: _newest
;

-- name: history_scan_of_task
-- include: _ended_scan with drumbeat.history AS job WHERE job.task = $3::text
-- include: _newest
;

-- name: history_scan_of_key
-- include: _ended_scan with drumbeat.history AS job WHERE job.key = $5::text AND job.key IS NOT NULL
-- include: _newest
;

-- name: history_scan_of_parent
-- include: _ended_scan with drumbeat.history AS job WHERE job.parent = $9::text AND job.parent IS NOT NULL
-- include: _newest
;

-- name: history_scan_of_workflow
-- include: _ended_scan with drumbeat.history AS job WHERE job.workflow = $13::text AND job.workflow IS NOT NULL
-- include: _newest
;

-- name: history_filter
-- include: _ended_scan with drumbeat.history AS job WHERE job.id = ANY ($12::text[]::uuid[])
) AS scanned) AS checked;

-- name: dead_scan
-- include: _ended_scan with drumbeat.dead AS job WHERE true
-- include: _newest
;

-- name: dead_scan_of_task
-- include: _ended_scan with drumbeat.dead AS job WHERE job.task = $3::text
-- include: _newest
;

-- name: dead_scan_of_parent
-- include: _ended_scan with drumbeat.dead AS job WHERE job.parent = $9::text AND job.parent IS NOT NULL
-- include: _newest
;

-- name: dead_scan_of_workflow
-- include: _ended_scan with drumbeat.dead AS job WHERE job.workflow = $13::text AND job.workflow IS NOT NULL
-- include: _newest
;

-- name: dead_filter
-- include: _ended_scan with drumbeat.dead AS job WHERE job.id = ANY ($12::text[]::uuid[])
) AS scanned) AS checked;

-- name: small_of_key
-- $1 task or null, $2 key, $3 limit. Without a task: every task that has jobs with keys, one seek for each.
  WITH RECURSIVE known (task) AS (
       SELECT coalesce($1::text COLLATE "C", (SELECT min(job.task) FROM drumbeat.job WHERE job.key IS NOT NULL))
        UNION ALL
       SELECT (SELECT min(job.task) FROM drumbeat.job WHERE job.task > known.task AND job.key IS NOT NULL)
         FROM known
        WHERE known.task IS NOT NULL
          AND $1 IS NULL)
SELECT job.id::text
  FROM known
 CROSS JOIN LATERAL (SELECT each.id
                       FROM drumbeat.job AS each
                      WHERE each.task = known.task AND each.key = $2 AND each.key IS NOT NULL
                      LIMIT $3) AS job
 LIMIT $3;

-- name: small_running
-- $1 instance or null, $2 limit.
SELECT job.id::text
  FROM drumbeat.job
 WHERE job.state = 'running'
   AND ($1::text IS NULL OR job.instance = $1)
 ORDER BY job.instance
 LIMIT $2;

-- name: _due
-- $1 queue or null, $2 limit. All queues, lanes and priorities that have jobs in the claim index, one seek for each.
  WITH RECURSIVE known (queue, lane, priority) AS (
       (SELECT job.queue, job.lane, job.priority
          FROM drumbeat.job
         WHERE ($1::text IS NULL OR job.queue = $1) AND job.state = 'pending' AND job.blocked_on IS NULL
         ORDER BY job.queue, job.lane, job.priority
         LIMIT 1)
        UNION ALL
       SELECT following.*
         FROM known
        CROSS JOIN LATERAL (SELECT job.queue, job.lane, job.priority
                              FROM drumbeat.job
                             WHERE (job.queue, job.lane, job.priority) > (known.queue, known.lane, known.priority)
                               AND ($1 IS NULL OR job.queue = $1)
                               AND job.state = 'pending'
                               AND job.blocked_on IS NULL
                             ORDER BY job.queue, job.lane, job.priority
                             LIMIT 1) AS following)
SELECT job.id::text
  FROM known
 CROSS JOIN LATERAL (SELECT each.id
                       FROM drumbeat.job AS each
                      WHERE each.queue = known.queue
                        AND each.lane = known.lane
                        AND each.priority = known.priority
                        AND each.run_at {{here}} drumbeat.now_us()
                        AND each.state = 'pending'
                        AND each.blocked_on IS NULL
                      ORDER BY each.run_at
                      LIMIT $2) AS job
 LIMIT $2;

-- name: small_ready
-- include: _due with <=
;

-- name: small_future
-- include: _due with >
;

-- name: small_retrying
-- $1 limit.
SELECT job.id::text
  FROM drumbeat.job
 WHERE job.state = 'pending'
   AND job.failures + job.crashes > 0
   AND job.run_at > drumbeat.now_us()
 ORDER BY job.run_at
 LIMIT $1;

-- name: small_waiting
-- $1 limit.
SELECT job.id::text
  FROM drumbeat.job
 WHERE job.state = 'pending'
   AND job.blocked_on IS NOT NULL
 ORDER BY job.blocked_on
 LIMIT $1;

-- name: small_unsucceeded
-- $1 state or null, $2 task or null, $3 limit.
SELECT history.id::text
  FROM drumbeat.history
 WHERE history.state <> 'succeeded'
   AND ($1::text IS NULL OR history.state = $1)
   AND ($2::text IS NULL OR history.task = $2)
 LIMIT $3;

-- name: counts
-- Exact counts of everything.
SELECT due.ready, due.future - tried.number AS scheduled, tried.number AS retrying, waiting.number AS waiting,
       running.number AS running, ended.number - bad.cancelled - bad.expired - bad.discarded AS succeeded,
       bad.discarded + letters.number AS dead, bad.cancelled, bad.expired
  FROM (SELECT count(*) FILTER (WHERE job.run_at <= drumbeat.now_us()) AS ready,
               count(*) FILTER (WHERE job.run_at > drumbeat.now_us()) AS future
          FROM drumbeat.job
         WHERE job.state = 'pending' AND job.blocked_on IS NULL) AS due,
       (SELECT count(*) AS number
          FROM drumbeat.job
         WHERE job.state = 'pending' AND job.failures + job.crashes > 0 AND job.run_at > drumbeat.now_us()
           AND job.blocked_on IS NULL) AS tried,
       (SELECT count(*) AS number FROM drumbeat.job WHERE job.state = 'pending' AND job.blocked_on IS NOT NULL) AS waiting,
       (SELECT count(*) AS number FROM drumbeat.job WHERE job.state = 'running') AS running,
       (SELECT count(*) AS number FROM drumbeat.history) AS ended,
       (SELECT count(*) FILTER (WHERE history.state = 'cancelled') AS cancelled,
               count(*) FILTER (WHERE history.state = 'expired') AS expired,
               count(*) FILTER (WHERE history.state = 'dead') AS discarded
          FROM drumbeat.history
         WHERE history.state <> 'succeeded') AS bad,
       (SELECT count(*) AS number FROM drumbeat.dead) AS letters;

-- name: waits
-- Columns as in core.job_query.WaitCounts. A running job was due when it was claimed, so one that is due later is pending.
SELECT blocked.number AS parents, suspended.sleep, suspended.number - suspended.sleep AS signal
  FROM (SELECT count(*) AS number
          FROM drumbeat.job
         WHERE job.state = 'pending' AND job.blocked_on = 'parents' AND job.blocked_on IS NOT NULL) AS blocked,
       (SELECT count(*) AS number, count(*) FILTER (WHERE job.suspended = 'sleep') AS sleep
          FROM drumbeat.job
         WHERE job.suspended IS NOT NULL AND job.run_at > drumbeat.now_us()) AS suspended;

-- name: count_letters
SELECT count(*)
  FROM drumbeat.dead;
