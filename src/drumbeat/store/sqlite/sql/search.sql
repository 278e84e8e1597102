-- Searches for jobs. `store/job_search.py` chooses the statements; the names are the same on PostgreSQL. A scan reads at most
-- :limit jobs, whether they match or not.

-- name: _matches
-- [number of jobs scanned, smallest of their ids, [[id, view] of matches]]
SELECT json_array(count(*), min(id), json_group_array(json_array(id, view)) FILTER (
       WHERE state = ifnull(:state, state)
         AND view = ifnull(:view, view)
         AND task = ifnull(:task, task)
         AND queue = ifnull(:queue, queue)
         AND (:key IS NULL OR key = :key)
         AND (:schedule IS NULL OR schedule = :schedule)
         AND (:instance IS NULL OR instance = :instance)
         AND (:error IS NULL OR (json_valid(error) AND (instr(json_extract(error, '$.type'), :error)
                                                      OR instr(json_extract(error, '$.message'), :error))))))

-- name: _live
id, task, queue, state, key, schedule, instance, error,
CASE WHEN state = 'running' THEN 'running'
     WHEN blocked_on IS NOT NULL THEN 'waiting'
     WHEN run_at <= :now THEN 'ready'
     WHEN failures + crashes > 0 THEN 'retrying'
     ELSE 'scheduled'
 END AS view

-- name: _ended
id, task, queue, state, key, schedule, instance, error,
CASE WHEN state IN ('succeeded', 'cancelled', 'expired') THEN state ELSE 'dead' END AS view

-- name: _live_scan
-- include: _matches
  FROM (SELECT
        -- include: _live
          FROM drumbeat_job
         WHERE {{here}}
           AND id BETWEEN :low AND :high

-- name: _ended_scan
-- include: _matches
  FROM (SELECT
        -- include: _ended
          FROM {{here}}
           AND id BETWEEN :low AND :high

-- name: _newest
         ORDER BY id DESC
         LIMIT :limit);

-- name: live_scan
-- include: _live_scan with true
-- include: _newest
;

-- name: live_scan_of_parent
-- include: _live_scan with parent = :parent AND parent IS NOT NULL
-- include: _newest
;

-- name: live_scan_of_workflow
-- include: _live_scan with workflow = :workflow AND workflow IS NOT NULL
-- include: _newest
;

-- name: live_filter
-- include: _live_scan with id IN (SELECT value FROM json_each(:ids))
);

-- name: history_scan
-- include: _ended_scan with drumbeat_history WHERE true
-- include: _newest
;

-- name: history_scan_of_task
-- include: _ended_scan with drumbeat_history INDEXED BY drumbeat_history_by_task WHERE task = :task
-- include: _newest
;

-- name: history_scan_of_key
-- include: _ended_scan with drumbeat_history INDEXED BY drumbeat_history_by_key WHERE key = :key AND key IS NOT NULL
-- include: _newest
;

-- name: history_scan_of_parent
-- include: _ended_scan with drumbeat_history INDEXED BY drumbeat_history_by_parent WHERE parent = :parent AND parent IS NOT NULL
-- include: _newest
;

-- name: history_scan_of_workflow
-- include: _ended_scan with drumbeat_history INDEXED BY drumbeat_history_by_workflow WHERE workflow = :workflow AND workflow IS NOT NULL
-- include: _newest
;

-- name: history_filter
-- include: _ended_scan with drumbeat_history WHERE id IN (SELECT value FROM json_each(:ids))
);

-- name: dead_scan
-- include: _ended_scan with drumbeat_dead WHERE true
-- include: _newest
;

-- name: dead_scan_of_task
-- include: _ended_scan with drumbeat_dead INDEXED BY drumbeat_dead_by_task WHERE task = :task
-- include: _newest
;

-- name: dead_scan_of_parent
-- include: _ended_scan with drumbeat_dead INDEXED BY drumbeat_dead_by_parent WHERE parent = :parent AND parent IS NOT NULL
-- include: _newest
;

-- name: dead_scan_of_workflow
-- include: _ended_scan with drumbeat_dead INDEXED BY drumbeat_dead_by_workflow WHERE workflow = :workflow AND workflow IS NOT NULL
-- include: _newest
;

-- name: dead_filter
-- include: _ended_scan with drumbeat_dead WHERE id IN (SELECT value FROM json_each(:ids))
);

-- name: _ids
-- As _matches where every job matches and no view is needed: by the index alone. Columns behind large arguments are read through
-- all of these, 131 MB for 500 jobs.
SELECT json_array(count(*), min(id), json_group_array(json_array(id, '')))
  FROM (SELECT id
          FROM {{here}}
         WHERE id BETWEEN :low AND :high
         ORDER BY id DESC
         LIMIT :limit);

-- name: live_ids
-- include: _ids with drumbeat_job
;

-- name: history_ids
-- include: _ids with drumbeat_history
;

-- name: dead_ids
-- include: _ids with drumbeat_dead
;

-- name: small_of_key
-- Without a task: every task that has jobs with keys, one seek for each.
  WITH RECURSIVE known (task) AS (
       SELECT ifnull(:task, (SELECT min(task) FROM drumbeat_job INDEXED BY drumbeat_job_by_key WHERE key IS NOT NULL))
        UNION ALL
       SELECT (SELECT min(job.task)
                 FROM drumbeat_job AS job INDEXED BY drumbeat_job_by_key
                WHERE job.task > known.task AND job.key IS NOT NULL)
         FROM known
        WHERE known.task IS NOT NULL
          AND :task IS NULL)
SELECT json_group_array(id)
  FROM (SELECT job.id
          FROM known
         CROSS JOIN drumbeat_job AS job INDEXED BY drumbeat_job_by_key
         WHERE job.task = known.task
           AND job.key = :key
           AND job.key IS NOT NULL
         LIMIT :limit);

-- name: small_running
SELECT json_group_array(id)
  FROM (SELECT id
          FROM drumbeat_job INDEXED BY drumbeat_job_of_instance
         WHERE state = 'running'
           AND (:instance IS NULL OR instance = :instance)
         LIMIT :limit);

-- name: _due
-- In all queues and lanes that have jobs in the claim index, or those of the given queue; one seek for each.
  WITH RECURSIVE known (queue, lane) AS (
       SELECT *
         FROM (SELECT job.queue, job.lane
                 FROM drumbeat_job AS job INDEXED BY drumbeat_job_for_claim
                WHERE job.queue >= ifnull(:queue, '') AND job.state = 'pending' AND job.blocked_on IS NULL
                ORDER BY job.queue, job.lane
                LIMIT 1)
        UNION ALL
       SELECT job.queue, job.lane
         FROM known
         JOIN drumbeat_job AS job
           ON job.seq = (SELECT following.seq
                           FROM drumbeat_job AS following INDEXED BY drumbeat_job_for_claim
                          WHERE (following.queue, following.lane) > (known.queue, known.lane)
                            AND following.state = 'pending'
                            AND following.blocked_on IS NULL
                          ORDER BY following.queue, following.lane
                          LIMIT 1))
SELECT json_group_array(id)
  FROM (SELECT job.id
          FROM known
         CROSS JOIN drumbeat_level AS level
         CROSS JOIN drumbeat_job AS job INDEXED BY drumbeat_job_for_claim
         WHERE known.queue = ifnull(:queue, known.queue)
           AND job.queue = known.queue
           AND job.lane = known.lane
           AND job.priority = level.priority
           AND job.run_at {{here}} :now
           AND job.state = 'pending'
           AND job.blocked_on IS NULL
         LIMIT :limit);

-- name: small_ready
-- include: _due with <=
;

-- name: small_future
-- include: _due with >
;

-- name: small_retrying
SELECT json_group_array(id)
  FROM (SELECT id
          FROM drumbeat_job INDEXED BY drumbeat_job_retrying
         WHERE state = 'pending'
           AND failures + crashes > 0
           AND run_at > :now
         LIMIT :limit);

-- name: small_waiting
SELECT json_group_array(id)
  FROM (SELECT id
          FROM drumbeat_job INDEXED BY drumbeat_job_blocked
         WHERE blocked_on IS NOT NULL
         LIMIT :limit);

-- name: small_unsucceeded
SELECT json_group_array(id)
  FROM (SELECT id
          FROM drumbeat_history INDEXED BY drumbeat_history_not_succeeded
         WHERE state <> 'succeeded'
           AND state BETWEEN ifnull(:state, '') AND ifnull(:state, '~')
           AND task = ifnull(:task, task)
         LIMIT :limit);

-- name: counts
-- Exact counts of everything: a core.job_query.JobCounts.
SELECT json_object('ready', due.ready, 'scheduled', due.future - tried.number, 'retrying', tried.number,
                   'waiting', waiting.number, 'running', running.number,
                   'succeeded', ended.number - ended.cancelled - ended.expired - ended.discarded,
                   'dead', ended.discarded + letters.number, 'cancelled', ended.cancelled, 'expired', ended.expired)
  FROM (SELECT count(*) FILTER (WHERE run_at <= :now) AS ready, count(*) FILTER (WHERE run_at > :now) AS future
          FROM drumbeat_job INDEXED BY drumbeat_job_for_claim
         WHERE state = 'pending' AND blocked_on IS NULL) AS due,
       (SELECT count(*) AS number
          FROM drumbeat_job INDEXED BY drumbeat_job_retrying
         WHERE state = 'pending' AND failures + crashes > 0 AND run_at > :now AND blocked_on IS NULL) AS tried,
       (SELECT count(*) AS number
          FROM drumbeat_job INDEXED BY drumbeat_job_blocked
         WHERE blocked_on IS NOT NULL) AS waiting,
       (SELECT count(*) AS number
          FROM drumbeat_job INDEXED BY drumbeat_job_of_instance
         WHERE state = 'running') AS running,
       (SELECT (SELECT count(*) FROM drumbeat_history) AS number,
               count(*) FILTER (WHERE state = 'cancelled') AS cancelled,
               count(*) FILTER (WHERE state = 'expired') AS expired,
               count(*) FILTER (WHERE state = 'dead') AS discarded
          FROM drumbeat_history INDEXED BY drumbeat_history_not_succeeded
         WHERE state <> 'succeeded') AS ended,
       (SELECT count(*) AS number FROM drumbeat_dead) AS letters;

-- name: waits
-- A core.job_query.WaitCounts. A running job was due when it was claimed, so one that is due later is pending.
SELECT json_object('parents', blocked.number, 'sleep', suspended.sleep, 'signal', suspended.number - suspended.sleep)
  FROM (SELECT count(*) AS number
          FROM drumbeat_job INDEXED BY drumbeat_job_blocked
         WHERE blocked_on = 'parents' AND blocked_on IS NOT NULL) AS blocked,
       (SELECT count(*) AS number, count(*) FILTER (WHERE suspended = 'sleep') AS sleep
          FROM drumbeat_job INDEXED BY drumbeat_job_suspended
         WHERE suspended IS NOT NULL AND run_at > :now) AS suspended;

-- name: count_letters
SELECT count(*)
  FROM drumbeat_dead;
