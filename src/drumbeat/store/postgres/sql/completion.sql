-- Statements that end runs: to history, to the dead letters, or back to pending. Batches arrive as arrays.
-- Rows that are changed in bulk are named by `id = ANY`: a join with unnest is planned wrongly on stale statistics.
-- A running job is one that has an instance. Statements that must use the primary key say only that: with `state = 'running'`
-- the planner could scan the index of all jobs that an instance has ever run.

-- name: _held
-- Locked in the order of ids.
SELECT {{held from job, id = job.id::text}}, drumbeat.now_us() AS now, job.lane <> '' AS in_lane
  FROM drumbeat.job

-- name: lock_running
-- Those of these jobs that run under this instance.
-- include: _held
 WHERE id = ANY ($2::text[]::uuid[])
   AND instance = $1
 ORDER BY job.id
   FOR UPDATE;

-- name: lock_running_of_instance
-- All jobs that run under this instance.
-- include: _held
 WHERE instance = $1
   AND state = 'running'
 ORDER BY job.id
   FOR UPDATE;

-- name: _gone
       gone AS (
       DELETE FROM drumbeat.job
        WHERE id = ANY ($1::text[]::uuid[])
       RETURNING {{moved}}, is_parent),

-- name: _released
-- What follows the ends of parents: `here` is the event. The statement returns how many releases it left.
       released AS (
       INSERT INTO drumbeat.release (parent, life, event)
       SELECT gone.id, gone.replays, {{here}}
         FROM gone
         JOIN ended ON ended.id = gone.id
        WHERE gone.is_parent
        ORDER BY gone.id
       RETURNING 1)
SELECT count(*)
  FROM released;

-- name: move_to_history
-- Move locked live jobs to history. Columns: id, state, outcome, started_at, finished_at, result, result_error, error. The
-- instance is the job's own: a pending one has none.
  WITH ended (id, state, outcome, started_at, finished_at, result, result_error, error) AS MATERIALIZED (
       SELECT * FROM unnest($1::text[]::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::text[],
                            $8::text[])),
       -- include: _gone
       kept AS (
       INSERT INTO drumbeat.history ({{history}})
       SELECT {{history from gone_or_neutral, state = ended.state, outcome = ended.outcome, started_at = ended.started_at,
                finished_at = coalesce(ended.finished_at, drumbeat.now_us()), result = ended.result,
                result_error = ended.result_error,
                error = CASE WHEN ended.outcome IS NULL THEN coalesce(ended.error, gone.error) ELSE ended.error END,
                cancel_requested = coalesce(gone.cancel_requested, false)
                                   OR (ended.state = 'cancelled' AND ended.outcome IS NULL
                                       AND ended.error IS NULL)}}
         FROM gone
         JOIN ended ON ended.id = gone.id),
       -- include: _released with CASE WHEN ended.state = 'succeeded' THEN 'succeeded' ELSE 'cancelled' END

-- name: move_to_dead
-- Make dead letters of locked live jobs. Columns: id, outcome, started_at, finished_at, failures, crashes, error.
  WITH ended (id, outcome, started_at, finished_at, failures, crashes, error) AS MATERIALIZED (
       SELECT * FROM unnest($1::text[]::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[],
                            $7::text[])),
       -- include: _gone
       kept AS (
       INSERT INTO drumbeat.dead ({{dead}})
       SELECT {{dead from gone_or_neutral, state = 'dead', outcome = ended.outcome, started_at = ended.started_at,
                finished_at = coalesce(ended.finished_at, drumbeat.now_us()), failures = ended.failures,
                crashes = ended.crashes, result = NULL, result_error = NULL, error = ended.error}}
         FROM gone
         JOIN ended ON ended.id = gone.id),
       -- include: _released with 'died'

-- name: requeue
-- Make locked running jobs pending again.
-- Columns: id, run_at, failures, crashes, unique, blocked_on, blocked_since, error, suspended, lane. The group is that of the lane.
UPDATE drumbeat.job
   SET state = 'pending',
       instance = NULL,
       claimed_at = NULL,
       has_run = true,
       progress = NULL,
       (run_at, failures, crashes, "unique", blocked_on, blocked_since)
           = (back.run_at, back.failures, back.crashes, back."unique", back.blocked_on, back.blocked_since),
       error = coalesce(back.error, job.error),
       suspended = back.suspended,
       expires_at = CASE WHEN back.suspended IS NULL THEN job.expires_at END,
       "group" = CASE WHEN back.lane IS NULL THEN job."group" ELSE substr(back.lane, strpos(back.lane, ' ') + 1) END,
       lane = coalesce(back.lane, job.lane)
  FROM unnest($1::text[]::uuid[], $2::bigint[], $3::integer[], $4::integer[], $5::text[], $6::text[], $7::bigint[],
              $8::text[], $9::text[], $10::text[])
       AS back (id, run_at, failures, crashes, "unique", blocked_on, blocked_since, error, suspended, lane)
 WHERE job.id = ANY ($1::text[]::uuid[])
   AND job.id = back.id;

-- name: signalled
-- Those of these jobs, locked before, for which there is an unread signal of this name. Columns: job, name.
SELECT wanted.job::text
  FROM unnest($1::text[]::uuid[], $2::text[]) AS wanted (job, name)
 WHERE EXISTS (SELECT FROM drumbeat.signal
                WHERE signal.job = wanted.job AND signal.name = wanted.name AND signal.read_by IS NULL);

-- name: insert_suspensions
-- Columns: job, kind, name, token, started_at, until, signal.
INSERT INTO drumbeat.step (job, kind, name, token, started_at, until, signal)
SELECT * FROM unnest($1::text[]::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[])
    ON CONFLICT DO NOTHING;

-- name: insert_attempts
-- Columns: id, token, instance, outcome, started_at, finished_at, error.
INSERT INTO drumbeat.attempt (id, token, instance, outcome, started_at, finished_at, error)
SELECT * FROM unnest($1::text[]::uuid[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[])
    ON CONFLICT DO NOTHING;

-- name: recorded_outcomes
-- The recorded outcome of each of these (id, token) of this instance, or null, in their order.
SELECT coalesce((SELECT history.outcome
                   FROM drumbeat.history
                  WHERE history.id = wanted.id AND history.token = wanted.token AND history.instance = $1
                  LIMIT 1),
                (SELECT dead.outcome
                   FROM drumbeat.dead
                  WHERE dead.id = wanted.id AND dead.token = wanted.token AND dead.instance = $1),
                (SELECT attempt.outcome
                   FROM drumbeat.attempt
                  WHERE attempt.id = wanted.id AND attempt.token = wanted.token AND attempt.instance = $1))
  FROM unnest($2::text[]::uuid[], $3::bigint[]) WITH ORDINALITY AS wanted (id, token, place)
 ORDER BY wanted.place;

-- name: count_refused
UPDATE drumbeat.instance
   SET refused = refused + $2
 WHERE id = $1;
