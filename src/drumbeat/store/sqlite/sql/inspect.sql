-- Statements that read for people. search.sql finds the ids of jobs, the first three here read their records.

-- name: live_record
-- :preview: the number of characters of long texts.
SELECT json_group_array(json_array({{stored from live_record}}))
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_job AS job
 WHERE job.id = wanted.value;

-- name: history_record
SELECT json_group_array(json_array({{stored from ended_record}}))
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_history AS job
 WHERE job.id = wanted.value;

-- name: dead_record
SELECT json_group_array(json_array({{stored from ended_record}}))
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_dead AS job
 WHERE job.id = wanted.value;

-- name: attempts
-- Columns as in records.AttemptRow.
SELECT json_group_array(json_array(token, instance, outcome, started_at, finished_at, error))
  FROM (SELECT token, instance, outcome, started_at, finished_at, error
          FROM drumbeat_attempt
         WHERE id = :id
         ORDER BY token);

-- name: queues
-- Columns as in overview.QueueRow: the sums over several sources. `due` counts due jobs: this one does not get slower where
-- there are many.
  WITH RECURSIVE lined (queue) AS (
       SELECT min(queue) FROM drumbeat_job INDEXED BY drumbeat_job_for_claim WHERE state = 'pending' AND blocked_on IS NULL
        UNION ALL
       SELECT (SELECT min(job.queue)
                 FROM drumbeat_job AS job INDEXED BY drumbeat_job_for_claim
                WHERE job.queue > lined.queue AND job.state = 'pending' AND job.blocked_on IS NULL)
         FROM lined
        WHERE lined.queue IS NOT NULL)
SELECT json_group_array(json_array(known.name, running, waiting, oldest_due, pause.name IS NOT NULL, paused_by, paused_reason,
                                   paused_at))
  FROM (SELECT name, sum(running) AS running, sum(waiting) AS waiting, min(oldest_due) AS oldest_due
          FROM (SELECT queue AS name, 0 AS running, 0 AS waiting,
                       (SELECT min(job.run_at)
                          FROM drumbeat_job AS job INDEXED BY drumbeat_job_for_claim
                         WHERE job.queue = lined.queue
                           AND job.lane = ''
                           AND job.priority = level.priority
                           AND job.run_at <= :now
                           AND job.state = 'pending'
                           AND job.blocked_on IS NULL) AS oldest_due
                  FROM lined
                 CROSS JOIN drumbeat_level AS level
                 WHERE queue IS NOT NULL
                 UNION ALL
                SELECT queue, 0, 0, min(head_at)
                  FROM drumbeat_lane
                 WHERE head_at <= :now
                 GROUP BY queue
                 UNION ALL
                SELECT queue, 0, count(*), NULL
                  FROM drumbeat_job
                 WHERE blocked_on IS NOT NULL
                 GROUP BY queue
                 UNION ALL
                SELECT queue, count(*), 0, NULL
                  FROM drumbeat_job INDEXED BY drumbeat_job_of_instance
                 WHERE state = 'running'
                 GROUP BY queue
                 UNION ALL
                SELECT name, 0, 0, NULL
                  FROM drumbeat_queue
                 UNION ALL
                SELECT taken.value, 0, 0, NULL
                  FROM drumbeat_instance AS instance
                 CROSS JOIN json_each(CASE WHEN json_valid(instance.queues) THEN instance.queues ELSE '[]' END) AS taken
                 WHERE instance.state = 'alive')
         GROUP BY name
         ORDER BY name) AS known
  LEFT JOIN drumbeat_queue AS pause
    ON pause.name = known.name;

-- name: due
-- Columns as in rows.DueRow.
SELECT json_group_array(json_array(queue, ready, scheduled))
  FROM (SELECT queue, sum(run_at <= :now) AS ready, sum(run_at > :now) AS scheduled
          FROM drumbeat_job INDEXED BY drumbeat_job_for_claim
         WHERE state = 'pending' AND blocked_on IS NULL
         GROUP BY queue);

-- name: tasks
-- Columns as in core.job_query.TaskStats. Succeeded: all of history but those in the small index of the not succeeded.
SELECT json_group_array(json_array(name, pending, running, ended - dead - cancelled - expired, dead + letters,
                                   cancelled, expired))
  FROM (SELECT name, sum(pending) AS pending, sum(running) AS running, sum(ended) AS ended, sum(dead) AS dead,
               sum(letters) AS letters, sum(cancelled) AS cancelled, sum(expired) AS expired
          FROM (SELECT task AS name, sum(state = 'pending') AS pending, sum(state = 'running') AS running, 0 AS ended,
                       0 AS dead, 0 AS letters, 0 AS cancelled, 0 AS expired
                  FROM drumbeat_job
                 GROUP BY task
                 UNION ALL
                SELECT task, 0, 0, count(*), 0, 0, 0, 0
                  FROM drumbeat_history INDEXED BY drumbeat_history_by_task
                 GROUP BY task
                 UNION ALL
                SELECT task, 0, 0, 0, sum(state = 'dead'), 0, sum(state = 'cancelled'), sum(state = 'expired')
                  FROM drumbeat_history INDEXED BY drumbeat_history_not_succeeded
                 WHERE state <> 'succeeded'
                 GROUP BY task
                 UNION ALL
                SELECT task, 0, 0, 0, 0, count(*), 0, 0
                  FROM drumbeat_dead
                 GROUP BY task
                 UNION ALL
                SELECT known.key, 0, 0, 0, 0, 0, 0, 0
                  FROM drumbeat_instance AS instance
                 CROSS JOIN json_each(CASE WHEN json_valid(instance.tasks) THEN instance.tasks ELSE '{}' END) AS known
                 WHERE instance.state = 'alive')
         GROUP BY name
         ORDER BY name);

-- name: instances
-- Columns as in records.StoredInstanceRow.
SELECT json_group_array(json_array(id, app, version, host, pid, json(roles), json(queues), json(tasks), concurrency, json(rooms),
                                   state, running, refused, beat, started_at, beat_at, ended_at, ended_reason))
  FROM (SELECT id, app, version, host, pid, roles, queues, tasks, concurrency, rooms, state, running, refused, beat, started_at,
               beat_at, ended_at, ended_reason
          FROM drumbeat_instance
         WHERE :all OR state = 'alive'
         ORDER BY started_at, id);

-- name: groups
-- Columns as in DeadLetterGroup. The latest is found without sorting, as the maximum of its time in 20 digits and the id.
SELECT json_group_array(json_array(task, error, count, first_at, last_at, sample, message))
  FROM (SELECT found.task, found.error, found.count, found.first_at, found.last_at, found.sample,
               ifnull(CASE WHEN json_valid(letter.error) THEN json_extract(letter.error, '$.message') END, '') AS message
          FROM (SELECT task, error, count(*) AS count, min(finished_at) AS first_at, max(finished_at) AS last_at,
                       substr(max(printf('%020d', finished_at) || id), 21) AS sample
                  FROM (SELECT id, task, finished_at,
                               CASE WHEN error IS NULL THEN ''
                                    WHEN json_valid(error) THEN ifnull(json_extract(error, '$.type'), '')
                                    ELSE 'Undecodable'
                                END AS error
                          FROM drumbeat_dead
                         ORDER BY id DESC
                         LIMIT :newest)
                 GROUP BY task, error
                 ORDER BY count DESC, last_at DESC, task, error
                 LIMIT :limit) AS found
         CROSS JOIN drumbeat_dead AS letter
         WHERE letter.id = found.sample
         ORDER BY found.count DESC, found.last_at DESC, found.task, found.error);

-- name: leader
-- Columns as in core.instance.LeaderInfo.
SELECT json_group_array(json_array(instance, term, since, until))
  FROM drumbeat_leader
 WHERE instance IS NOT NULL
   AND until > :now;

-- name: ahead
-- In the order of claims, among the jobs of its lane, or of none, priority by priority, so that future jobs of a more urgent priority are never stepped over. The plus sign
-- keeps SQLite from scanning all priorities at once.
SELECT count(*)
  FROM (SELECT 1
          FROM drumbeat_level AS level
         CROSS JOIN drumbeat_job AS job
         WHERE +level.priority < :priority
           AND job.queue = :queue
           AND job.lane = :lane
           AND job.priority = level.priority
           AND job.run_at <= :now
           AND job.state = 'pending'
           AND job.blocked_on IS NULL
         UNION ALL
        SELECT 1
          FROM drumbeat_job AS job
         WHERE job.queue = :queue
           AND job.lane = :lane
           AND job.priority = :priority
           AND job.run_at <= :now
           AND (job.run_at, job.id) < (:run_at, :id)
           AND job.state = 'pending'
           AND job.blocked_on IS NULL
         LIMIT :limit);
