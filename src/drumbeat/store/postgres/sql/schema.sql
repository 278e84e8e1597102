-- The version of the schema, settings of sessions, and the partitions of history.

-- name: has_meta
SELECT to_regclass(format('%I.meta', 'drumbeat')) IS NOT NULL;

-- name: version
SELECT name, value
  FROM drumbeat.meta
 WHERE name IN ('version', 'oldest_code');

-- name: set_version
INSERT INTO drumbeat.meta (name, value)
VALUES ('version', $1), ('oldest_code', $2)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: lock
-- Serialises migrations: the second waits, and finds nothing to do.
SELECT pg_advisory_xact_lock(hashtextextended($1, 0));

-- name: server
SELECT current_setting('server_version_num')::integer AS version, pg_is_in_recovery() AS in_recovery,
       current_setting('transaction_read_only')::boolean AS read_only,
       current_setting('synchronous_commit') = 'off' AS careless;

-- name: enable_synchronous_commit
-- Commits are durable also where the database's default is asynchronous commit.
SET synchronous_commit = on;

-- name: apply_settings
-- For the session: $1 names, $2 values.
SELECT set_config(setting.name, setting.value, false)
  FROM unnest($1::text[], $2::text[]) AS setting (name, value);

-- name: use_snapshot
-- For reads of several statements: a job that moves meanwhile is neither missed nor seen twice.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: now
SELECT drumbeat.now_us();

-- name: days_ahead
-- Create the partitions of history from today on; returns how many were missing.
SELECT count(*) FILTER (WHERE drumbeat.ensure_history_day((drumbeat.now_us() / 86400000000 + days_ahead) * 86400000000))
  FROM generate_series(0, $1::integer) AS days_ahead;

-- name: ensure_history_day
SELECT drumbeat.ensure_history_day($1);

-- name: days
-- The partitions of history, oldest first, and those that were detached and not yet dropped.
SELECT part.relname::text AS name, pg_relation_size(part.oid) AS size, link.inhrelid IS NOT NULL AS attached
  FROM pg_class AS part
  LEFT JOIN pg_inherits AS link
    ON link.inhrelid = part.oid
 WHERE part.relnamespace = to_regnamespace(format('%I', 'drumbeat'))
   AND part.relname ~ '^history_[0-9]{8}$'
   AND part.relkind = 'r'
 ORDER BY part.relname;

-- name: set_timeouts
-- How long the removal of a partition waits for readers. $1: for this transaction only.
SELECT set_config('lock_timeout', '500ms', $1), set_config('statement_timeout', '2s', $1);

-- name: reset_timeouts
SELECT set_config('lock_timeout', reset_val, false) FROM pg_settings WHERE name = 'lock_timeout'
 UNION ALL
SELECT set_config('statement_timeout', reset_val, false) FROM pg_settings WHERE name = 'statement_timeout';

-- name: detach
ALTER TABLE drumbeat.history DETACH PARTITION drumbeat.history_of_day;

-- name: detach_concurrently
ALTER TABLE drumbeat.history DETACH PARTITION drumbeat.history_of_day CONCURRENTLY;

-- name: detach_finalize
ALTER TABLE drumbeat.history DETACH PARTITION drumbeat.history_of_day FINALIZE;

-- name: day_has_rows
SELECT EXISTS (SELECT FROM drumbeat.history_of_day);

-- name: keep_results_of_day
-- Of parents in a detached day whose edges are still to be followed: what their children bind.
INSERT INTO drumbeat.parent_result (parent, task, state, result, result_error, error)
SELECT ended.id, ended.task, ended.state, ended.result, ended.result_error, ended.error
  FROM drumbeat.history_of_day AS ended
 WHERE ended.id = ANY (ARRAY(SELECT release.parent FROM drumbeat.release))
   AND EXISTS (SELECT FROM drumbeat.edge WHERE edge.parent = ended.id AND edge.binding <> '')
    ON CONFLICT (parent) DO NOTHING;

-- name: drop_day
DROP TABLE IF EXISTS drumbeat.history_of_day;

-- name: notify
-- A notification need not survive a crash: its commit is asynchronous.
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2);
