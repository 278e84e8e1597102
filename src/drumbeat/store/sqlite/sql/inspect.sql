-- Statements for people's eyes. A list is made of ids first, by the index that serves its filter, then of records.

-- name: live_record
-- Columns as in rows.JobRow.
SELECT json_group_array(json_array(job.id, job.task, job.queue, job.state, job.priority, job.key, job.args, job.signature,
                                   job.created_at, job.due_at, job.run_at, job.claimed_at, NULL, job.instance, job.token,
                                   NULL, job.failures, job.crashes, job.retries, job.timeout, job.crash_limit, job."unique",
                                   job.waits_for, job.waits_since, job.cancel_requested, job.progress, NULL, NULL, job.error,
                                   job.on_dead, job.life, job.tenant, job.schedule))
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_job AS job
 WHERE job.id = wanted.value;

-- name: history_record
SELECT json_group_array(json_array(job.id, job.task, job.queue, job.state, job.priority, job.key, job.args, job.signature,
                                   job.created_at, job.due_at, job.run_at, job.started_at, job.finished_at, job.instance,
                                   job.token, job.outcome, job.failures, job.crashes, job.retries, job.timeout,
                                   job.crash_limit, job."unique", NULL, NULL, job.cancel_requested, job.progress, job.result,
                                   job.result_error, job.error, job.on_dead, job.life, job.tenant, job.schedule))
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_history AS job
 WHERE job.id = wanted.value;

-- name: dead_record
SELECT json_group_array(json_array(job.id, job.task, job.queue, job.state, job.priority, job.key, job.args, job.signature,
                                   job.created_at, job.due_at, job.run_at, job.started_at, job.finished_at, job.instance,
                                   job.token, job.outcome, job.failures, job.crashes, job.retries, job.timeout,
                                   job.crash_limit, job."unique", NULL, NULL, job.cancel_requested, job.progress, job.result,
                                   job.result_error, job.error, job.on_dead, job.life, job.tenant, job.schedule))
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_dead AS job
 WHERE job.id = wanted.value;

-- name: live_list
SELECT json_group_array(id)
  FROM (SELECT id
          FROM drumbeat_job
         WHERE (:state IS NULL OR state = :state)
           AND (:task IS NULL OR task = :task)
           AND (:queue IS NULL OR queue = :queue)
           AND (:key IS NULL OR key = :key)
           AND (:error IS NULL OR instr(json_extract(error, '$.type'), :error) OR instr(json_extract(error, '$.message'), :error))
           AND (:before IS NULL OR id < :before)
         ORDER BY id DESC
         LIMIT :limit);

-- name: live_list_of_key
SELECT json_group_array(id)
  FROM (SELECT id
          FROM drumbeat_job
         WHERE task = :task
           AND key = :key
           AND key IS NOT NULL
           AND (:state IS NULL OR state = :state)
           AND (:queue IS NULL OR queue = :queue)
           AND (:error IS NULL OR instr(json_extract(error, '$.type'), :error) OR instr(json_extract(error, '$.message'), :error))
           AND (:before IS NULL OR id < :before)
         ORDER BY id DESC
         LIMIT :limit);

-- name: live_list_running
SELECT json_group_array(id)
  FROM (SELECT id
          FROM drumbeat_job INDEXED BY drumbeat_job_of_instance
         WHERE state = 'running'
           AND (:task IS NULL OR task = :task)
           AND (:queue IS NULL OR queue = :queue)
           AND (:key IS NULL OR key = :key)
           AND (:error IS NULL OR instr(json_extract(error, '$.type'), :error) OR instr(json_extract(error, '$.message'), :error))
           AND (:before IS NULL OR id < :before)
         ORDER BY id DESC
         LIMIT :limit);

-- name: history_list
SELECT json_group_array(id)
  FROM (SELECT id
          FROM drumbeat_history
         WHERE id < ifnull(:before, '~')
           AND (:state IS NULL OR state = :state)
           AND (:queue IS NULL OR queue = :queue)
           AND (:error IS NULL OR instr(json_extract(error, '$.type'), :error) OR instr(json_extract(error, '$.message'), :error))
         ORDER BY id DESC
         LIMIT :limit);

-- name: history_list_of_task
SELECT json_group_array(id)
  FROM (SELECT id
          FROM drumbeat_history
         WHERE task = :task
           AND id < ifnull(:before, '~')
           AND (:state IS NULL OR state = :state)
           AND (:queue IS NULL OR queue = :queue)
           AND (:error IS NULL OR instr(json_extract(error, '$.type'), :error) OR instr(json_extract(error, '$.message'), :error))
         ORDER BY id DESC
         LIMIT :limit);

-- name: history_list_of_key
SELECT json_group_array(id)
  FROM (SELECT id
          FROM drumbeat_history
         WHERE key = :key
           AND key IS NOT NULL
           AND id < ifnull(:before, '~')
           AND (:task IS NULL OR task = :task)
           AND (:state IS NULL OR state = :state)
           AND (:queue IS NULL OR queue = :queue)
           AND (:error IS NULL OR instr(json_extract(error, '$.type'), :error) OR instr(json_extract(error, '$.message'), :error))
         ORDER BY id DESC
         LIMIT :limit);

-- name: history_list_not_succeeded
SELECT json_group_array(id)
  FROM (SELECT id
          FROM drumbeat_history
         WHERE state <> 'succeeded'
           AND state = :state
           AND id < ifnull(:before, '~')
           AND (:task IS NULL OR task = :task)
           AND (:queue IS NULL OR queue = :queue)
           AND (:error IS NULL OR instr(json_extract(error, '$.type'), :error) OR instr(json_extract(error, '$.message'), :error))
         ORDER BY id DESC
         LIMIT :limit);

-- name: dead_list
SELECT json_group_array(id)
  FROM (SELECT id
          FROM drumbeat_dead
         WHERE id < ifnull(:before, '~')
           AND (:task IS NULL OR task = :task)
           AND (:queue IS NULL OR queue = :queue)
           AND (:key IS NULL OR key = :key)
           AND (:error IS NULL OR instr(json_extract(error, '$.type'), :error) OR instr(json_extract(error, '$.message'), :error))
         ORDER BY id DESC
         LIMIT :limit);

-- name: dead_list_of_task
SELECT json_group_array(id)
  FROM (SELECT id
          FROM drumbeat_dead
         WHERE task = :task
           AND id < ifnull(:before, '~')
           AND (:queue IS NULL OR queue = :queue)
           AND (:key IS NULL OR key = :key)
           AND (:error IS NULL OR instr(json_extract(error, '$.type'), :error) OR instr(json_extract(error, '$.message'), :error))
         ORDER BY id DESC
         LIMIT :limit);

-- name: attempts
-- Columns as in rows.AttemptRow.
SELECT json_group_array(json_array(token, instance, outcome, started_at, finished_at, error))
  FROM (SELECT token, instance, outcome, started_at, finished_at, error
          FROM drumbeat_attempt
         WHERE id = :id
         ORDER BY token);

-- name: queues
-- Columns as in rows.QueueRow; each source gives what it knows of a queue, and they are added up.
SELECT json_group_array(json_array(name, ready, scheduled, running, waiting, oldest_due))
  FROM (SELECT name, sum(ready) AS ready, sum(scheduled) AS scheduled, sum(running) AS running, sum(waiting) AS waiting,
               min(oldest_due) AS oldest_due
          FROM (SELECT queue AS name, sum(run_at <= :now) AS ready, sum(run_at > :now) AS scheduled, 0 AS running,
                       0 AS waiting, min(CASE WHEN run_at <= :now THEN run_at END) AS oldest_due
                  FROM drumbeat_job
                 WHERE state = 'pending' AND waits_for IS NULL
                 GROUP BY queue
                 UNION ALL
                SELECT queue, 0, 0, 0, count(*), NULL
                  FROM drumbeat_job
                 WHERE waits_for IS NOT NULL
                 GROUP BY queue
                 UNION ALL
                SELECT queue, 0, 0, count(*), 0, NULL
                  FROM drumbeat_job INDEXED BY drumbeat_job_of_instance
                 WHERE state = 'running'
                 GROUP BY queue
                 UNION ALL
                SELECT name, 0, 0, 0, 0, NULL
                  FROM drumbeat_queue
                 UNION ALL
                SELECT taken.value, 0, 0, 0, 0, NULL
                  FROM drumbeat_instance AS instance
                 CROSS JOIN json_each(instance.queues) AS taken
                 WHERE instance.state = 'alive')
         GROUP BY name
         ORDER BY name);

-- name: pauses
-- [name, paused_by, paused_why, paused_at]
SELECT json_group_array(json_array(name, paused_by, paused_why, paused_at))
  FROM drumbeat_queue;

-- name: tasks
-- Columns as in rows.TaskRow. Whoever is in history and not in the small index of those not succeeded has succeeded.
SELECT json_group_array(json_array(name, pending, running, ended - dead - cancelled, dead + letters, cancelled))
  FROM (SELECT name, sum(pending) AS pending, sum(running) AS running, sum(ended) AS ended, sum(dead) AS dead,
               sum(letters) AS letters, sum(cancelled) AS cancelled
          FROM (SELECT task AS name, sum(state = 'pending') AS pending, sum(state = 'running') AS running, 0 AS ended,
                       0 AS dead, 0 AS letters, 0 AS cancelled
                  FROM drumbeat_job
                 GROUP BY task
                 UNION ALL
                SELECT task, 0, 0, count(*), 0, 0, 0
                  FROM drumbeat_history INDEXED BY drumbeat_history_by_task
                 GROUP BY task
                 UNION ALL
                SELECT task, 0, 0, 0, sum(state = 'dead'), 0, sum(state = 'cancelled')
                  FROM drumbeat_history INDEXED BY drumbeat_history_not_succeeded
                 WHERE state <> 'succeeded'
                 GROUP BY task
                 UNION ALL
                SELECT task, 0, 0, 0, 0, count(*), 0
                  FROM drumbeat_dead
                 GROUP BY task
                 UNION ALL
                SELECT known.key, 0, 0, 0, 0, 0, 0
                  FROM drumbeat_instance AS instance
                 CROSS JOIN json_each(instance.tasks) AS known
                 WHERE instance.state = 'alive')
         GROUP BY name
         ORDER BY name);

-- name: instances
-- Columns as in rows.InstanceRow.
SELECT json_group_array(json_array(id, state, app, version, host, pid, json(roles), json(queues), json(tasks), concurrency,
                                   running, refused, beat, started_at, beat_at, json(rooms), ended_at, ended_why))
  FROM (SELECT id, state, app, version, host, pid, roles, queues, tasks, concurrency, running, refused, beat, started_at,
               beat_at, rooms, ended_at, ended_why
          FROM drumbeat_instance
         WHERE :all OR state = 'alive'
         ORDER BY started_at, id);
