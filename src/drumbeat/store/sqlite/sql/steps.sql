-- Statements about steps of jobs. Batches arrive and leave as one JSON text, as in claim.sql.

-- name: current_claims
-- Those of these jobs that run under this instance: [id, token].
SELECT json_group_array(json_array(job.id, job.token))
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_job AS job
 WHERE job.id = wanted.value
   AND job.state = 'running'
   AND job.instance = :instance;

-- name: insert
-- Columns of a row: job, kind, name, token, started_at, until, finished_at, signal, result.
INSERT INTO drumbeat_step (job, kind, name, token, started_at, until, finished_at, signal, result)
SELECT column1, column2, column3, column4, column5, nullif(column6, -1), nullif(column7, -1), nullif(column8, -1),
       nullif(column9, -1)
  FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?))
 WHERE column1 <> -1
    ON CONFLICT DO NOTHING;

-- name: load
-- Columns as in records.StepRow.
SELECT json_group_array(json_array(job, kind, name, token, started_at, until, finished_at, signal, result))
  FROM (SELECT step.*
          FROM json_each(:ids) AS wanted
         CROSS JOIN drumbeat_step AS step
         WHERE step.job = wanted.value
         ORDER BY step.job, step.started_at, step.kind, step.name);

-- name: state_of
-- The state of a job, a live one first, and how many signals it has not read; null: it does not exist.
SELECT coalesce((SELECT state FROM drumbeat_job WHERE id = :job),
                (SELECT state FROM drumbeat_history WHERE id = :job),
                (SELECT state FROM drumbeat_dead WHERE id = :job)),
       (SELECT count(*) FROM drumbeat_signal WHERE job = :job AND read_by IS NULL);

-- name: find_signal
SELECT id
  FROM drumbeat_signal
 WHERE job = :job
   AND id = :id;

-- name: live_of_key
SELECT json_group_array(id)
  FROM (SELECT id
          FROM drumbeat_job
         WHERE task = :task
           AND key = :key
           AND key IS NOT NULL
         LIMIT :limit);

-- name: insert_signal
INSERT INTO drumbeat_signal (job, id, name, sent_at, payload)
VALUES (:job, :id, :name, :now, :payload)
    ON CONFLICT DO NOTHING;

-- name: wake
-- A job that is suspended on this signal is due now.
UPDATE drumbeat_job
   SET run_at = :now
 WHERE id = :job
   AND state = 'pending'
   AND suspended = 'signal:' || :name
   AND run_at > :now;

-- name: wait
-- What is on record of a wait: [started_at, until, finished_at, result].
SELECT started_at, until, finished_at, result
  FROM drumbeat_step
 WHERE job = :job
   AND kind = 'wait'
   AND name = :name;

-- name: oldest_unread
SELECT id, payload
  FROM drumbeat_signal
 WHERE job = :job
   AND name = :signal
   AND read_by IS NULL
 ORDER BY sent_at, id
 LIMIT 1;

-- name: mark_read
UPDATE drumbeat_signal
   SET read_by = :name
 WHERE job = :job
   AND id = :id;

-- name: end_wait
INSERT INTO drumbeat_step (job, kind, name, token, started_at, finished_at, signal, result)
VALUES (:job, 'wait', :name, :token, :now, :now, :signal, :result)
    ON CONFLICT (job, kind, name) DO UPDATE SET finished_at = excluded.finished_at, result = excluded.result;

-- name: list_signals
-- Columns as in records.SignalRow.
SELECT json_group_array(json_array(job, id, name, sent_at, payload, read_by))
  FROM (SELECT signal.*
          FROM json_each(:ids) AS wanted
         CROSS JOIN drumbeat_signal AS signal
         WHERE signal.job = wanted.value
         ORDER BY signal.job, signal.sent_at, signal.id);
