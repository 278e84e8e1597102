-- Statements that store new jobs. A batch arrives as the rows of one VALUES.
-- ?1, ?2 ... are fixed parameters beside them; `connection.batch_statement` makes nameless ones of them.
-- In a row of VALUES -1 stands for NULL (see connection.NULL): `nullif(columnN, -1)` wherever a column may be NULL. Batches
-- are filled up with rows of -1, which every statement must skip.

-- name: _unless_known
 WHERE column1 <> -1
   AND NOT EXISTS (SELECT 1 FROM drumbeat_history WHERE id = column1)
   AND NOT EXISTS (SELECT 1 FROM drumbeat_dead WHERE id = column1)
    ON CONFLICT (id) DO NOTHING

-- name: insert
-- Columns of a row: NewJob's fields, first those that are never NULL. An id that exists anywhere already is skipped. ?1 now.
INSERT INTO drumbeat_job ({{live}}, seq)
SELECT {{live from row}}, NULL
  FROM (VALUES ({{new from placeholders}}))
-- include: _unless_known
;

-- name: insert_similar
-- The same for jobs that differ only in the columns of a row: id, args, key. Binding a parameter costs as much as storing it:
-- 3.3 us for a job instead of 6.3. ?1 now, from ?2 on the other fields of NewJob in their order.
INSERT INTO drumbeat_job ({{live}}, seq)
SELECT {{live from shared}}, NULL
  FROM (VALUES (?, ?, ?))
-- include: _unless_known
;

-- name: insert_nodes
-- As `insert` for jobs that have parents or children. Columns of a row: those of `insert`, open_parents, is_parent, binds.
INSERT INTO drumbeat_job ({{live}}, seq)
SELECT {{live from node}}, NULL
  FROM (VALUES ({{node from placeholders}}))
-- include: _unless_known
;

-- name: insert_similar_nodes
-- As `insert_similar` likewise. Columns of a row: id, args, key, open_parents, is_parent, binds.
INSERT INTO drumbeat_job ({{live}}, seq)
SELECT {{live from shared_node}}, NULL
  FROM (VALUES (?, ?, ?, ?, ?, ?))
-- include: _unless_known
;

-- name: inserted_after
SELECT json_group_array(id)
  FROM drumbeat_job
 WHERE seq > :seq;

-- name: known_ids
-- Those of these ids that exist in any table.
SELECT json_group_array(wanted.value)
  FROM json_each(:ids) AS wanted
 WHERE EXISTS (SELECT 1 FROM drumbeat_job WHERE id = wanted.value)
    OR EXISTS (SELECT 1 FROM drumbeat_history WHERE id = wanted.value)
    OR EXISTS (SELECT 1 FROM drumbeat_dead WHERE id = wanted.value);

-- name: unique_holders
-- Live unique jobs of these (task, key).
SELECT json_group_array(json_array(job.task, job.key, job.id, job.state))
  FROM json_each(:keys) AS wanted
 CROSS JOIN drumbeat_job AS job
 WHERE job.task = json_extract(wanted.value, '$[0]')
   AND job.key = json_extract(wanted.value, '$[1]')
   AND job.key IS NOT NULL
   AND job."unique" <> '';
