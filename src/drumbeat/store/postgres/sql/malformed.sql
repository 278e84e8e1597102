-- Rows as they are stored, newest first, for the doctor's search for records that cannot be read. Columns are read by name, the
-- last of a name.

-- name: jobs
SELECT job.*, job.id::text AS id, job.claimed_at AS started_at
  FROM drumbeat.job
 ORDER BY job.id DESC
 LIMIT $1;

-- name: history
SELECT history.*, history.id::text AS id
  FROM drumbeat.history
 ORDER BY history.id DESC
 LIMIT $1;

-- name: dead_letters
SELECT dead.*, dead.id::text AS id
  FROM drumbeat.dead
 ORDER BY dead.id DESC
 LIMIT $1;

-- name: schedules
SELECT schedule.*, schedule.current::text AS current
  FROM drumbeat.schedule
 ORDER BY schedule.name DESC
 LIMIT $1;

-- name: instances
SELECT instance.*
  FROM drumbeat.instance
 ORDER BY instance.id DESC
 LIMIT $1;

-- name: audit_entries
SELECT audit.*
  FROM drumbeat.audit
 ORDER BY audit.id DESC
 LIMIT $1;

-- name: rollups
SELECT rollup.*
  FROM drumbeat.rollup
 ORDER BY rollup.resolution DESC, rollup.at DESC
 LIMIT $1;
