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
