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
