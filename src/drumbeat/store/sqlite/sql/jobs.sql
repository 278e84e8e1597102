-- Statements about jobs for operators and callers: progress, cancel, run now, replay, discard, results, pruning, pauses.
-- Batches arrive and leave as one JSON text, as in claim.sql.

-- name: save_progress
-- ?1 instance. Columns of a row: id, token, progress.
UPDATE drumbeat_job
   SET progress = note.column3
  FROM (SELECT ?1 AS instance, column1, column2, column3 FROM (VALUES (?, ?, ?))) AS note
 WHERE typeof(note.column1) = 'text'
   AND drumbeat_job.id = note.column1
   AND drumbeat_job.token = note.column2
   AND drumbeat_job.instance = note.instance
   AND drumbeat_job.state = 'running';

-- name: states
-- The states of these jobs, live ones first; null: it does not exist.
SELECT json_group_array(coalesce(
           (SELECT state FROM drumbeat_job WHERE id = wanted.value),
           (SELECT state FROM drumbeat_history WHERE id = wanted.value),
           (SELECT state FROM drumbeat_dead WHERE id = wanted.value)))
  FROM json_each(:ids) AS wanted;

-- name: live_ids_of_keys
SELECT json_group_array(job.id)
  FROM (SELECT DISTINCT value FROM json_each(:keys)) AS wanted
 CROSS JOIN drumbeat_job AS job
 WHERE job.task = :task
   AND job.key = wanted.value
   AND job.key IS NOT NULL;

-- name: end_pending
-- Move jobs that do not run to history, as cancelled or expired.
INSERT INTO drumbeat_history ({{history}})
SELECT {{history from job, state = :state, outcome = NULL, instance = NULL, started_at = NULL, finished_at = :now,
         cancel_requested = :state = 'cancelled', result = NULL, result_error = NULL}}
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_job AS job
 WHERE job.id = wanted.value
   AND job.state <> 'running';

-- name: expired
-- Pending jobs that should have started before now.
SELECT json_group_array(id)
  FROM (SELECT id
          FROM drumbeat_job INDEXED BY drumbeat_job_expiring
         WHERE expires_at <= :now
           AND expires_at IS NOT NULL
           AND failures + crashes + replays = 0
           AND state <> 'running'
         LIMIT :limit);

-- name: request_cancel
UPDATE drumbeat_job
   SET cancel_requested = 1
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND state = 'running';

-- name: end_sleeps
-- Before `run_now`: what is on record of the sleeps of these jobs.
UPDATE drumbeat_step
   SET until = :now
 WHERE job IN (SELECT job.id
                 FROM json_each(:ids) AS wanted
                CROSS JOIN drumbeat_job AS job
                WHERE job.id = wanted.value
                  AND job.state = 'pending'
                  AND job.suspended = 'sleep')
   AND kind = 'sleep'
   AND until > :now;

-- name: run_now
-- Not those that wait for a signal or for parents.
UPDATE drumbeat_job
   SET run_at = min(run_at, :now)
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND state = 'pending'
   AND blocked_on IS NOT 'parents'
   AND ifnull(suspended, 'sleep') = 'sleep';

-- name: dead_letters
-- For a replay: [id, task, key, unique].
SELECT json_group_array(json_array(dead.id, dead.task, dead.key, dead."unique"))
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_dead AS dead
 WHERE dead.id = wanted.value;

-- name: replay
-- The job is live again under the same id. Its token keeps growing.
INSERT INTO drumbeat_job ({{given}}, created_at, due_at, run_at, token, replays, schedule, expires_at, open_parents,
                          is_parent, binds)
SELECT {{given from dead,
         priority = CASE WHEN typeof(dead.priority) = 'integer' AND dead.priority BETWEEN 0 AND 9 THEN dead.priority ELSE 5 END}},
       dead.created_at, dead.due_at, :now, dead.token, dead.replays + 1, dead.schedule, dead.expires_at,
       CASE WHEN EXISTS (SELECT 1 FROM drumbeat_edge WHERE child = dead.id) THEN 0 END,
       -- include: _is_parent with dead.id
       EXISTS (SELECT 1 FROM drumbeat_edge WHERE child = dead.id AND binding <> '')
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_dead AS dead
 WHERE dead.id = wanted.value;

-- name: insert_last_attempts
-- Before a replay: the last attempt of the dead letter becomes an earlier one.
INSERT INTO drumbeat_attempt (id, token, instance, outcome, started_at, finished_at, error)
SELECT dead.id, dead.token, dead.instance, dead.outcome, dead.started_at, dead.finished_at, dead.error
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_dead AS dead
 WHERE dead.id = wanted.value
   AND dead.outcome IS NOT NULL
    ON CONFLICT DO NOTHING;

-- name: move_dead_to_history
INSERT INTO drumbeat_history ({{history}})
SELECT {{history from dead}}
  FROM drumbeat_dead AS dead
 WHERE dead.id IN (SELECT value FROM json_each(:ids));

-- name: delete_dead
DELETE FROM drumbeat_dead
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: results
-- Results: [id, task, state, result, result_error, error], or [id, task, null ...] for a live job.
SELECT json_group_array(json(coalesce(
           (SELECT json_array(id, task, state, result, result_error, error) FROM drumbeat_history WHERE id = wanted.value),
           (SELECT json_array(id, task, NULL, NULL, NULL, NULL) FROM drumbeat_job WHERE id = wanted.value),
           (SELECT json_array(id, task, state, result, result_error, error) FROM drumbeat_dead WHERE id = wanted.value),
           'null')))
  FROM json_each(:ids) AS wanted;

-- name: pruned_before
SELECT value
  FROM drumbeat_meta
 WHERE name = 'pruned_before';

-- name: expired_waits
-- Ids of jobs that have been blocked since before `before` on something that begins with `prefix`; not on parents.
  WITH RECURSIVE waiting (value) AS (
       SELECT min(blocked_on)
         FROM drumbeat_job
        WHERE blocked_on IS NOT NULL AND blocked_on >= :prefix
        UNION ALL
       SELECT (SELECT min(blocked_on)
                 FROM drumbeat_job
                WHERE blocked_on IS NOT NULL AND blocked_on > waiting.value)
         FROM waiting
        WHERE waiting.value IS NOT NULL AND substr(waiting.value, 1, length(:prefix)) = :prefix)
SELECT json_group_array(id)
  FROM (SELECT job.id
          FROM waiting
         CROSS JOIN drumbeat_job AS job
         WHERE substr(waiting.value, 1, length(:prefix)) = :prefix
           AND job.blocked_on = waiting.value
           AND job.blocked_on <> 'parents'
           AND job.blocked_since < :before
           AND job.blocked_on IS NOT NULL
         LIMIT :limit);

-- name: prunable_history
-- The oldest of history. Rows are nearly in the order of finished_at (late reports excepted), so the first rows are enough.
SELECT json_group_array(seq)
  FROM (SELECT seq
          FROM (SELECT seq, finished_at
                  FROM drumbeat_history
                 ORDER BY seq
                 LIMIT :limit + 1000)
         WHERE finished_at < :before
         ORDER BY finished_at, seq
         LIMIT :limit);

-- name: delete_attempts
DELETE FROM drumbeat_attempt
 WHERE id IN (SELECT history.id
                FROM json_each(:seqs) AS pruned
               CROSS JOIN drumbeat_history AS history
               WHERE history.seq = pruned.value);

-- name: delete_steps
DELETE FROM drumbeat_step
 WHERE job IN (SELECT history.id
                 FROM json_each(:seqs) AS pruned
                CROSS JOIN drumbeat_history AS history
                WHERE history.seq = pruned.value);

-- name: delete_signals
DELETE FROM drumbeat_signal
 WHERE job IN (SELECT history.id
                 FROM json_each(:seqs) AS pruned
                CROSS JOIN drumbeat_history AS history
                WHERE history.seq = pruned.value);

-- name: delete_history
DELETE FROM drumbeat_history
 WHERE seq IN (SELECT value FROM json_each(:seqs));

-- name: set_pruned_before
INSERT INTO drumbeat_meta (name, value)
VALUES ('pruned_before', :before)
    ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value);

-- name: pause
INSERT INTO drumbeat_queue (name, paused_at, paused_by, paused_reason)
VALUES (:queue, :now, :by, :reason)
    ON CONFLICT (name) DO NOTHING;

-- name: resume
DELETE FROM drumbeat_queue
 WHERE name = :queue;
