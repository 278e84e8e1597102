-- Rows as they are stored, newest first, for the doctor's search for records that cannot be read. Columns are read by name.

-- name: jobs
SELECT *, claimed_at AS started_at
  FROM drumbeat_job
 ORDER BY seq DESC
 LIMIT :limit;

-- name: history
SELECT *
  FROM drumbeat_history
 ORDER BY seq DESC
 LIMIT :limit;

-- name: dead_letters
SELECT *
  FROM drumbeat_dead
 ORDER BY id DESC
 LIMIT :limit;

-- name: schedules
SELECT *
  FROM drumbeat_schedule
 ORDER BY rowid DESC
 LIMIT :limit;

-- name: instances
SELECT *
  FROM drumbeat_instance
 ORDER BY id DESC
 LIMIT :limit;

-- name: audit_entries
SELECT *
  FROM drumbeat_audit
 ORDER BY id DESC
 LIMIT :limit;

-- name: tickets
SELECT *, expires_at AS "left"
  FROM drumbeat_ticket
 ORDER BY id DESC
 LIMIT :limit;

-- name: locks
SELECT *, 0 AS holding, 0 AS waiting
  FROM drumbeat_lock
 ORDER BY name DESC
 LIMIT :limit;

-- name: rollups
SELECT *
  FROM drumbeat_rollup
 ORDER BY resolution DESC, at DESC
 LIMIT :limit;

-- name: messages
SELECT *
  FROM drumbeat_room_message
 ORDER BY rowid DESC
 LIMIT :limit;

-- name: pauses
SELECT *
  FROM drumbeat_queue
 ORDER BY name DESC
 LIMIT :limit;
