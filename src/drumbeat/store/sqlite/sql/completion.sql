-- Statements that end runs: to history, to the dead letters, or back to pending. Rows of VALUES as in insert.sql.

-- name: _join_running
 CROSS JOIN drumbeat_job AS job
 WHERE typeof(ended.column1) = 'text'
   AND job.id = ended.column1
   AND job.state = 'running'
   AND job.instance = ?1
   AND job.token = ended.column2
    ON CONFLICT (id) DO NOTHING

-- name: move_to_history
-- Move running jobs to history. ?1 instance, ?2 state, ?3 outcome, ?4 now.
-- Columns of a row: id, token, started_at, finished_at, result, result_error, error.
INSERT INTO drumbeat_history ({{history}}, seq)
SELECT {{history from job, state = ?2, outcome = ?3, instance = ?1, started_at = nullif(ended.column3, -1),
         finished_at = ifnull(nullif(ended.column4, -1), ?4), result = nullif(ended.column5, -1),
         result_error = nullif(ended.column6, -1), error = nullif(ended.column7, -1)}}, NULL
  FROM (VALUES (?, ?, ?, ?, ?, ?, ?)) AS ended
-- include: _join_running
;

-- name: move_succeeded
-- The same for jobs that succeeded without a result, as most do. ?1 instance.
-- Columns of a row: id, token, started_at, finished_at.
INSERT INTO drumbeat_history ({{history}}, seq)
SELECT {{history from job, state = 'succeeded', outcome = 'succeeded', instance = ?1, started_at = ended.column3,
         finished_at = ended.column4, result = NULL, result_error = NULL, error = NULL}}, NULL
  FROM (VALUES (?, ?, ?, ?)) AS ended
-- include: _join_running
;

-- name: moved_after
SELECT json_group_array(json_array(id, token))
  FROM drumbeat_history
 WHERE seq > :seq;

-- name: delete_finished
-- Delete live jobs that were just moved to history.
DELETE FROM drumbeat_job
 WHERE seq IN (SELECT job.seq
                 FROM drumbeat_history AS history
                CROSS JOIN drumbeat_job AS job
                WHERE history.seq > :seq
                  AND job.id = history.id);

-- name: delete_jobs
DELETE FROM drumbeat_job
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: advance_intervals
-- Set the next fire of interval schedules whose job has ended and has no successor (the trigger drumbeat_job_ended left it NULL).
UPDATE drumbeat_schedule
   SET next_at = :now + every
 WHERE every IS NOT NULL
   AND state = 'active'
   AND next_at IS NULL
   AND current IS NULL
   AND ("end" IS NULL OR :now + every < "end");

-- name: insert_dead_letters
-- Make dead letters of live jobs. ?1 now. Columns of a row: id, outcome, started_at, finished_at, failures, crashes, error.
INSERT INTO drumbeat_dead ({{dead}})
SELECT {{dead from job, state = 'dead', outcome = nullif(ended.column2, -1), started_at = nullif(ended.column3, -1),
         finished_at = ifnull(nullif(ended.column4, -1), ?1), failures = ended.column5, crashes = ended.column6,
         result = NULL, result_error = NULL, error = nullif(ended.column7, -1)}}
  FROM (VALUES (?, ?, ?, ?, ?, ?, ?)) AS ended
 CROSS JOIN drumbeat_job AS job
 WHERE typeof(ended.column1) = 'text'
   AND job.id = ended.column1;

-- name: requeue
-- Make running jobs pending again.
-- Columns of a row: id, run_at, failures, crashes, unique, blocked_on, blocked_since, error, suspended, lane. The group is that of the lane.
UPDATE drumbeat_job
   SET state = 'pending',
       instance = NULL,
       claimed_at = NULL,
       has_run = 1,
       progress = NULL,
       run_at = back.column2,
       failures = back.column3,
       crashes = back.column4,
       "unique" = back.column5,
       blocked_on = nullif(back.column6, -1),
       blocked_since = nullif(back.column7, -1),
       error = ifnull(nullif(back.column8, -1), error),
       suspended = nullif(back.column9, -1),
       expires_at = CASE WHEN back.column9 = -1 THEN expires_at END,
       "group" = CASE WHEN back.column10 = -1 THEN "group" ELSE substr(back.column10, instr(back.column10, ' ') + 1) END,
       lane = ifnull(nullif(back.column10, -1), lane)
  FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)) AS back
 WHERE drumbeat_job.id = back.column1;

-- name: insert_attempts
-- Columns of a row: id, token, instance, outcome, started_at, finished_at, error.
INSERT INTO drumbeat_attempt (id, token, instance, outcome, started_at, finished_at, error)
SELECT column1, column2, column3, column4, nullif(column5, -1), column6, nullif(column7, -1)
  FROM (VALUES (?, ?, ?, ?, ?, ?, ?))
 WHERE column1 <> -1
    ON CONFLICT DO NOTHING;

-- name: signalled
-- Those of these [job, name] for which there is an unread signal of this name.
SELECT json_group_array(json_extract(wanted.value, '$[0]'))
  FROM json_each(:waits) AS wanted
 WHERE EXISTS (SELECT 1
                 FROM drumbeat_signal AS signal
                WHERE signal.job = json_extract(wanted.value, '$[0]')
                  AND signal.name = json_extract(wanted.value, '$[1]')
                  AND signal.read_by IS NULL);

-- name: insert_suspensions
-- Columns of a row: job, kind, name, token, started_at, until, signal.
INSERT INTO drumbeat_step (job, kind, name, token, started_at, until, signal)
SELECT column1, column2, column3, column4, column5, nullif(column6, -1), nullif(column7, -1)
  FROM (VALUES (?, ?, ?, ?, ?, ?, ?))
 WHERE column1 <> -1
    ON CONFLICT DO NOTHING;

-- name: _held
SELECT json_group_array(json_array({{held from job}}))

-- name: held
-- Those of these jobs that run under this instance.
-- include: _held
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_job AS job
 WHERE job.id = wanted.value
   AND job.state = 'running'
   AND job.instance = :instance;

-- name: held_by
-- All jobs that run under this instance.
-- include: _held
  FROM drumbeat_job AS job
 WHERE job.state = 'running'
   AND job.instance = :instance;

-- name: recorded_outcomes
-- The recorded outcome of each of these (id, token) of this instance, or null.
SELECT json_group_array(coalesce(
           (SELECT outcome FROM drumbeat_history
             WHERE id = json_extract(wanted.value, '$[0]') AND token = json_extract(wanted.value, '$[1]') AND instance = :instance),
           (SELECT outcome FROM drumbeat_dead
             WHERE id = json_extract(wanted.value, '$[0]') AND token = json_extract(wanted.value, '$[1]') AND instance = :instance),
           (SELECT outcome FROM drumbeat_attempt
             WHERE id = json_extract(wanted.value, '$[0]') AND token = json_extract(wanted.value, '$[1]') AND instance = :instance)))
  FROM json_each(:holds) AS wanted;

-- name: count_refused
UPDATE drumbeat_instance
   SET refused = refused + :refused
 WHERE id = :instance;
