-- Statements that read for people. search.sql finds the ids of jobs, the first three here read their records.

-- name: live_record
-- $1 ids. $2: the number of characters of long texts.
SELECT {{stored from live_record}}
  FROM drumbeat.job
 WHERE job.id = ANY ($1::text[]::uuid[]);

-- name: history_record
SELECT {{stored from ended_record}}
  FROM drumbeat.history AS job
 WHERE job.id = ANY ($1::text[]::uuid[]);

-- name: dead_record
SELECT {{stored from ended_record}}
  FROM drumbeat.dead AS job
 WHERE job.id = ANY ($1::text[]::uuid[]);

-- name: attempts
-- Columns as in records.AttemptRow, then the job's id. $1 ids.
SELECT token, instance, outcome, started_at, finished_at, error, id::text
  FROM drumbeat.attempt
 WHERE id = ANY ($1::text[]::uuid[])
 ORDER BY id, token;

-- name: queues
-- Columns as in overview.QueueRow: the sums over several sources. `due` counts due jobs: this one does not get slower where there are many.
  WITH RECURSIVE lined (queue) AS (
       SELECT min(job.queue) FROM drumbeat.job WHERE job.state = 'pending' AND job.blocked_on IS NULL
        UNION ALL
       SELECT (SELECT min(job.queue)
                 FROM drumbeat.job
                WHERE job.queue > lined.queue AND job.state = 'pending' AND job.blocked_on IS NULL)
         FROM lined
        WHERE lined.queue IS NOT NULL),
       known AS (
       SELECT lined.queue AS name, 0 AS running, 0 AS waiting,
              (SELECT job.run_at
                 FROM drumbeat.job
                WHERE job.queue = lined.queue
                  AND job.lane = ''
                  AND job.priority = level
                  AND job.run_at <= drumbeat.now_us()
                  AND job.state = 'pending'
                  AND job.blocked_on IS NULL
                ORDER BY job.run_at
                LIMIT 1) AS oldest_due
         FROM lined
        CROSS JOIN generate_series(0, 9) AS level
        WHERE lined.queue IS NOT NULL
        UNION ALL
       SELECT lined.queue, 0, 0, least((SELECT min(lane.head_at)
                                          FROM drumbeat.lane
                                         WHERE lane.queue = lined.queue AND lane.head_at <= drumbeat.now_us()),
                                       (SELECT news.run_at -- no claim has looked at it
                                          FROM drumbeat.news
                                         WHERE news.queue = lined.queue AND news.run_at <= drumbeat.now_us()
                                         ORDER BY news.id
                                         LIMIT 1))
         FROM lined
        WHERE lined.queue IS NOT NULL
        UNION ALL
       SELECT queue, 0, count(*), NULL
         FROM drumbeat.job
        WHERE state = 'pending' AND blocked_on IS NOT NULL
        GROUP BY queue
        UNION ALL
       SELECT queue, count(*), 0, NULL
         FROM drumbeat.job
        WHERE state = 'running'
        GROUP BY queue
        UNION ALL
       SELECT name, 0, 0, NULL
         FROM drumbeat.queue
        UNION ALL
       SELECT taken.value, 0, 0, NULL
         FROM drumbeat.instance
        CROSS JOIN json_array_elements_text(instance.queues::json) AS taken (value)
        WHERE instance.state = 'alive')
SELECT known.name, sum(running)::bigint AS running, sum(waiting)::bigint AS waiting, min(oldest_due) AS oldest_due,
       (queue.name IS NOT NULL)::integer AS paused, queue.paused_by, queue.paused_reason, queue.paused_at
  FROM known
  LEFT JOIN drumbeat.queue
    ON queue.name = known.name
 GROUP BY known.name, queue.name, queue.paused_by, queue.paused_reason, queue.paused_at
 ORDER BY known.name;

-- name: due
SELECT queue, count(*) FILTER (WHERE run_at <= drumbeat.now_us()) AS ready,
       count(*) FILTER (WHERE run_at > drumbeat.now_us()) AS scheduled
  FROM drumbeat.job
 WHERE state = 'pending' AND blocked_on IS NULL
 GROUP BY queue;

-- name: tasks
-- Columns as in core.job_query.TaskStats.
  WITH known AS (
       SELECT task AS name, count(*) FILTER (WHERE state = 'pending') AS pending,
              count(*) FILTER (WHERE state = 'running') AS running, 0 AS ended, 0 AS dead, 0 AS letters, 0 AS cancelled,
              0 AS expired
         FROM drumbeat.job
        GROUP BY task
        UNION ALL
       SELECT task, 0, 0, count(*), 0, 0, 0, 0
         FROM drumbeat.history
        GROUP BY task
        UNION ALL
       SELECT task, 0, 0, 0, count(*) FILTER (WHERE state = 'dead'), 0, count(*) FILTER (WHERE state = 'cancelled'),
              count(*) FILTER (WHERE state = 'expired')
         FROM drumbeat.history
        WHERE state <> 'succeeded'
        GROUP BY task
        UNION ALL
       SELECT task, 0, 0, 0, 0, count(*), 0, 0
         FROM drumbeat.dead
        GROUP BY task
        UNION ALL
       SELECT known.name, 0, 0, 0, 0, 0, 0, 0
         FROM drumbeat.instance
        CROSS JOIN json_object_keys(instance.tasks::json) AS known (name)
        WHERE instance.state = 'alive')
SELECT name COLLATE "C" AS name, sum(pending)::bigint AS pending, sum(running)::bigint AS running,
       sum(ended - dead - cancelled - expired)::bigint AS succeeded, sum(dead + letters)::bigint AS dead,
       sum(cancelled)::bigint AS cancelled, sum(expired)::bigint AS expired
  FROM known
 GROUP BY name COLLATE "C"
 ORDER BY name COLLATE "C";

-- name: instances
SELECT id, app, version, host, pid, roles, queues, tasks, concurrency, rooms, state, running, refused, beat, started_at, beat_at,
       ended_at, ended_reason
  FROM drumbeat.instance
 WHERE $1 OR state = 'alive'
 ORDER BY started_at, id;

-- name: dead_groups
-- $1 limit, $2 the number of dead letters to read. Columns as in core.dead_letter.DeadLetterGroup.
SELECT found.task, found.error, found.count, found.first_at, found.last_at, found.sample::text AS sample,
       coalesce(letter.error::json ->> 'message', '') AS message
  FROM (SELECT task, error, count(*) AS count, min(finished_at) AS first_at, max(finished_at) AS last_at,
               (array_agg(id ORDER BY finished_at DESC, id DESC))[1] AS sample
          FROM (SELECT id, task, finished_at, coalesce(error::json ->> 'type', '') COLLATE "C" AS error
                  FROM drumbeat.dead
                 ORDER BY id DESC
                 LIMIT $2) AS newest
         GROUP BY task, error
         ORDER BY count(*) DESC, max(finished_at) DESC, task, error
         LIMIT $1) AS found
  JOIN drumbeat.dead AS letter
    ON letter.id = found.sample
 ORDER BY found.count DESC, found.last_at DESC, found.task, found.error;

-- name: leader
SELECT instance, term, since, until
  FROM drumbeat.leader
 WHERE instance IS NOT NULL
   AND until > drumbeat.now_us();

-- name: count_ahead
-- In the order of claims, among the jobs of its lane, or of none, priority by priority, so that future jobs of a more urgent priority are
-- never stepped over. $1 queue, $2 lane, $3 priority, $4 run_at, $5 id, $6 limit.
SELECT count(*)
  FROM (SELECT 1
          FROM generate_series(0, $3::integer - 1) AS level (priority)
         CROSS JOIN LATERAL (
               SELECT 1
                 FROM drumbeat.job
                WHERE job.queue = $1
                  AND job.lane = $2
                  AND job.priority = level.priority
                  AND job.run_at <= drumbeat.now_us()
                  AND job.state = 'pending'
                  AND job.blocked_on IS NULL
                LIMIT $6) AS urgent
         UNION ALL
        SELECT 1
          FROM drumbeat.job
         WHERE job.queue = $1
           AND job.lane = $2
           AND job.priority = $3::integer
           AND job.run_at <= drumbeat.now_us()
           AND (job.run_at, job.id) < ($4::bigint, $5::text::uuid)
           AND job.state = 'pending'
           AND job.blocked_on IS NULL
         LIMIT $6) AS before;
