-- The version of the schema.

-- name: has_meta
SELECT count(*)
  FROM sqlite_schema
 WHERE type = 'table'
   AND name = 'drumbeat_meta';

-- name: version
SELECT value
  FROM drumbeat_meta
 WHERE name = 'version';

-- name: oldest_code
SELECT value
  FROM drumbeat_meta
 WHERE name = 'oldest_code';

-- name: get_meta
SELECT value
  FROM drumbeat_meta
 WHERE name = :name;

-- name: set_meta
INSERT INTO drumbeat_meta (name, value)
VALUES (:name, :value)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value;
