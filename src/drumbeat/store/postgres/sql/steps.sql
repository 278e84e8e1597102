-- Statements about steps of jobs. Batches arrive as arrays.

-- name: record
-- Record results of steps of jobs that run under this instance. $1 instance. Columns: job, token, name, started_at, finished_at,
-- result. Returns the claims that are current.
-- FOR SHARE, not a weaker lock: the end of a claim changes no key, and would not wait for this transaction; the record of a run
-- that is over would count. A job that changes while this waits is judged by its newest version.
  WITH new (job, token, name, started_at, finished_at, result) AS MATERIALIZED (
       SELECT * FROM unnest($2::text[]::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[])),
       held AS MATERIALIZED (
       SELECT id, token
         FROM drumbeat.job
        WHERE id = ANY ($2::text[]::uuid[])
          AND instance = $1
        ORDER BY id
          FOR SHARE),
       kept AS (
       INSERT INTO drumbeat.step (job, kind, name, token, started_at, finished_at, result)
       SELECT new.job, 'step', new.name, new.token, new.started_at, new.finished_at, new.result
         FROM new
         JOIN held ON held.id = new.job AND held.token = new.token
           ON CONFLICT DO NOTHING)
SELECT held.id::text, held.token
  FROM held;

-- name: load
-- Columns as in records.StepRow.
SELECT job::text, kind, name, token, started_at, until, finished_at, signal, result
  FROM drumbeat.step
 WHERE job = ANY ($1::text[]::uuid[])
 ORDER BY job, started_at, kind, name;

-- name: live_of_key
SELECT id::text
  FROM drumbeat.job
 WHERE task = $1
   AND key = $2
   AND key IS NOT NULL
 LIMIT $3;

-- name: send_signal
SELECT drumbeat.send_signal($1);

-- name: see_signals
SELECT drumbeat.see_signals();

-- name: lock_claim
-- The fence of `take_signal`. A signal that is being sent locks this row as well, and is seen by the next statement.
SELECT drumbeat.now_us()
  FROM drumbeat.job
 WHERE id = $1::text::uuid
   AND token = $2
   AND instance = $3
   FOR SHARE;

-- name: wait
-- What is on record of a wait.
SELECT until, finished_at, result
  FROM drumbeat.step
 WHERE job = $1::text::uuid
   AND kind = 'wait'
   AND name = $2;

-- name: read_oldest
-- Mark the oldest unread signal of this name as read. $1 job, $2 signal, $3 wait. What another wait has just read is not read
-- again: this one finds nothing then, and looks again when its job is suspended.
UPDATE drumbeat.signal
   SET read_by = $3
 WHERE job = $1::text::uuid
   AND id = (SELECT signal.id
               FROM drumbeat.signal
              WHERE signal.job = $1::text::uuid
                AND signal.name = $2
                AND signal.read_by IS NULL
              ORDER BY signal.sent_at, signal.id
              LIMIT 1)
   AND read_by IS NULL
RETURNING payload;

-- name: end_wait
-- $1 job, $2 wait, $3 token, $4 signal, $5 payload (null: timed out).
INSERT INTO drumbeat.step (job, kind, name, token, started_at, finished_at, signal, result)
VALUES ($1::text::uuid, 'wait', $2, $3, drumbeat.now_us(), drumbeat.now_us(), $4, $5)
    ON CONFLICT (job, kind, name) DO UPDATE SET finished_at = excluded.finished_at, result = excluded.result;

-- name: list_signals
-- Columns as in records.SignalRow.
SELECT job::text, id, name, sent_at, payload, read_by
  FROM drumbeat.signal
 WHERE job = ANY ($1::text[]::uuid[])
 ORDER BY job, sent_at, id;
