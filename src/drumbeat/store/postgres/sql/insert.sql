-- Statements that store new jobs. Batches arrive as arrays, one for each column. Ids travel as text.

-- name: _insert_new
-- $1 since, $2 to $5 task, queue, signature and priority that all jobs share, then an array for each field of NewJob: an array
-- that is shorter than the ids (an empty one) stands for the default, or for the shared value.
INSERT INTO drumbeat.job ({{inserted}})
SELECT {{inserted from new_row}}
  FROM unnest({{new from arrays}})
       AS new ({{new}})

-- name: add
-- Store new jobs, all of them or none: an id or key that is taken raises 23505 (which costs less than ON CONFLICT), and
-- raise_if_known raises DB001 if one is known otherwise. Arguments as in _insert_new, then the smallest and the greatest id.
  WITH added AS (
       -- include: _insert_new
        WHERE new.key IS NULL
           OR coalesce(new."unique", '') = ''
           OR NOT EXISTS (SELECT FROM drumbeat.job AS holder
                           WHERE holder.task = coalesce(new.task, $2)
                             AND holder.key = new.key
                             AND holder.key IS NOT NULL
                             AND holder."unique" <> ''
                             AND (new."unique" = 'live' OR holder.state = 'pending'))
       RETURNING id)
SELECT drumbeat.now_us() AS now,
       drumbeat.raise_if_known(cardinality({{id from texts}}), count(*), {{id_range from numbers}}, $1),
       CASE WHEN 'live' = ANY ({{unique from arrays}})
            THEN drumbeat.raise_if_key_held({{id from arrays}}, coalesce(nullif({{task from arrays}}, '{}'), ARRAY[$2]))
        END
  FROM added;

-- name: add_one
-- The same for a single job that is not unique, which is planned in a tenth of the time. $1 since; $2 the sender of the
-- notification, null: do not notify; then NewJob's fields in their order. notified: whether workers were notified. A notifying
-- transaction holds a lock of the whole database until its commit is on disk, so only one notifies at a time, and none waits.
INSERT INTO drumbeat.job ({{inserted}})
VALUES ({{inserted from one}})
RETURNING drumbeat.now_us() AS now, drumbeat.raise_if_known(0, 0, id, id, $1),
          CASE WHEN $2::text IS NULL THEN false
               WHEN pg_try_advisory_xact_lock(hashtextextended('drumbeat' || '.wake', 0))
               THEN pg_notify('drumbeat' || '.wake', run_at::text || ' ' || $2) IS NOT NULL
               ELSE false
           END AS notified;

-- name: _doubtful
       EXISTS (SELECT FROM drumbeat.job WHERE task = ANY ($1::text[]) AND "unique" = 'pending' AND state = 'pending')
       OR EXISTS (SELECT FROM drumbeat.job WHERE task = ANY ($1::text[]) AND "unique" = 'pending' AND state = 'running')
       AS doubtful

-- name: before_copy
-- Before jobs are copied into the table. $1 the tasks of those with Unique.LIVE; doubtful: whether such a task has live jobs with
-- Unique.PENDING, which may hold a key that no index checks.
SELECT drumbeat.now_us() AS now,
       -- include: _doubtful
;

-- name: after_copy
-- The same check again. $2, $3 first and last id; $4 since. crowded: whether any job with an id in this range has ended, as in
-- raise_if_known. It may be another caller's, if the ids were not made at once, so it is no reason yet to undo the copy.
SELECT
       -- include: _doubtful
       ,
       EXISTS (SELECT FROM drumbeat.history
                WHERE history.id BETWEEN $2::text::uuid AND $3::text::uuid
                  AND history.finished_at >= least($4, drumbeat.now_us()) - 86400000000
                  AND history.finished_at < drumbeat.now_us() + 86400000000)
       OR EXISTS (SELECT FROM drumbeat.dead WHERE dead.id BETWEEN $2::text::uuid AND $3::text::uuid)
       AS crowded;

-- name: known_ids
-- Those of these ids that exist in any table.
SELECT wanted.id::text
  FROM unnest($1::text[]::uuid[]) AS wanted (id)
 WHERE EXISTS (SELECT FROM drumbeat.job WHERE job.id = wanted.id)
    OR EXISTS (SELECT FROM drumbeat.history WHERE history.id = wanted.id)
    OR EXISTS (SELECT FROM drumbeat.dead WHERE dead.id = wanted.id);

-- name: key_holders
-- Live unique jobs of these (task, key).
SELECT job.task, job.key, job.id::text, job.state
  FROM unnest($1::text[], $2::text[]) AS wanted (task, key)
  JOIN drumbeat.job
    ON job.task = wanted.task
   AND job.key = wanted.key
   AND job.key IS NOT NULL
   AND job."unique" <> ''
 ORDER BY job.id;

-- name: insert_unknown
-- Store those of these new jobs that collide with nothing; the caller has checked before, and checks the answer. Arguments as in
-- _insert_new.
-- include: _insert_new
 WHERE NOT EXISTS (SELECT FROM drumbeat.history
                    WHERE history.id = new.id
                      AND history.finished_at >= least($1, drumbeat.now_us()) - 86400000000)
   AND NOT EXISTS (SELECT FROM drumbeat.dead WHERE dead.id = new.id)
    ON CONFLICT DO NOTHING
RETURNING id::text, drumbeat.now_us() AS now;

-- name: raise_if_key_held
-- After `insert_unknown`, for jobs of Unique.LIVE. $1 ids, $2 their tasks.
SELECT drumbeat.raise_if_key_held($1::text[]::uuid[], $2);

-- name: insert_nodes
-- As `insert_unknown`, of jobs with parents or children, but for the look for ended ones. Arguments as in _insert_new, then for each job: is_parent, binds,
-- open_parents (null: it has no parents).
INSERT INTO drumbeat.job ({{inserted}}, {{node}}, blocked_on, blocked_since)
SELECT {{inserted from new_row}}, {{node from new}},
       CASE WHEN new.open_parents > 0 THEN 'parents' END, CASE WHEN new.open_parents > 0 THEN drumbeat.now_us() END
  FROM unnest({{new from arrays}}, {{node from node_arrays}})
       AS new ({{new}}, {{node}})
 WHERE $1::bigint IS NOT NULL
    ON CONFLICT DO NOTHING
RETURNING drumbeat.now_us() AS now;
