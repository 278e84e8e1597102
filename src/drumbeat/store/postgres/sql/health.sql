-- Statements about the server, as far as an ordinary user may read.

-- name: server
-- One row: version, size, durability and connections.
SELECT current_setting('server_version') AS version,
       pg_database_size(current_database()) AS database_size,
       (SELECT coalesce(sum(pg_total_relation_size(part.oid)), 0)::bigint
          FROM pg_class AS part
         WHERE part.relnamespace = to_regnamespace(format('%I', 'drumbeat'))
           AND part.relkind IN ('r', 'm')) AS size,
       current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('autovacuum') AS autovacuum,
       current_setting('max_connections')::bigint AS max_connections,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
       (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now;

-- name: transactions
-- The oldest transaction in this database that this user may see; prepared ones may have been forgotten.
SELECT count(*) AS open, max(open.seconds) AS seconds,
       (array_agg(open.what ORDER BY open.seconds DESC))[1] AS what
  FROM (SELECT date_part('epoch', clock_timestamp() - xact_start)::float8 AS seconds,
               format('process %s, %s, %s', pid, coalesce(nullif(application_name, ''), 'no name'), state) AS what
          FROM pg_stat_activity
         WHERE datname = current_database()
           AND pid <> pg_backend_pid()
           AND xact_start IS NOT NULL
           AND backend_type = 'client backend'
         UNION ALL
        SELECT date_part('epoch', clock_timestamp() - prepared)::float8, format('prepared transaction %s', gid)
          FROM pg_prepared_xacts
         WHERE database = current_database()) AS open;

-- name: vacuum
-- Statistics of the table of live jobs.
SELECT n_live_tup AS live, n_dead_tup AS dead,
       date_part('epoch', clock_timestamp() - greatest(last_autovacuum, last_vacuum))::float8 AS seconds
  FROM pg_stat_user_tables
 WHERE schemaname = 'drumbeat'
   AND relname = 'job';
