-- Statements about roll-ups.

-- name: put
-- $1 instance, $2 its state, null for rows that belong to none; $3 resolution, $4 at, $5 queue, $6 task, $7 counts, each an
-- array, in the order of the key: a call and its repetition must not deadlock.
  WITH living AS (
       SELECT $1::text AS id
        WHERE $2::text IS NULL OR EXISTS (SELECT FROM drumbeat.instance WHERE id = $1 AND state = $2)),
       kept AS (
       INSERT INTO drumbeat.rollup (resolution, at, queue, task, instance, written_at, counts)
       SELECT new.resolution, new.at, new.queue, new.task, living.id, drumbeat.now_us(), new.counts
         FROM living
        CROSS JOIN unnest($3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[])
                AS new (resolution, at, queue, task, counts)
           ON CONFLICT (resolution, at, queue, task, instance) DO UPDATE
          SET written_at = excluded.written_at,
              counts = excluded.counts)
SELECT EXISTS (SELECT 1 FROM living);

-- name: _span
-- $1 resolution, $2 since, $3 until.
SELECT at, queue, task, counts
  FROM drumbeat.rollup
 WHERE resolution = $1
   AND at >= $2
   AND at < $3

-- name: read
-- $4 queue, $5 task.
-- include: _span
   AND queue <> ''
   AND ($4::text IS NULL OR queue = $4)
   AND ($5::text IS NULL OR task = $5);

-- name: overall
-- include: _span
   AND queue = '';

-- name: written
-- $1 instance, $2 since.
SELECT resolution, at, queue, task, counts, written_at
  FROM drumbeat.rollup
 WHERE instance = $1
   AND (resolution = 0 AND at = 0 OR resolution IN (10000000, 60000000, 3600000000) AND at > $2 - resolution);

-- name: run_ends
-- $1 instance, $2 since. Columns as in core.stats.RunEnd.
SELECT queue, task, outcome, false AS dead, run_at AS due_at, started_at, finished_at
  FROM drumbeat.history
 WHERE finished_at >= $2
   AND instance = $1
   AND outcome IS NOT NULL
   AND state <> 'dead'
 UNION ALL
SELECT queue, task, outcome, true, run_at, started_at, finished_at
  FROM drumbeat.dead
 WHERE finished_at >= $2
   AND instance = $1
   AND outcome IS NOT NULL
 UNION ALL
SELECT job.queue, job.task, attempt.outcome, false, attempt.token, attempt.started_at, attempt.finished_at
  FROM drumbeat.attempt
  JOIN LATERAL (SELECT queue, task FROM drumbeat.job WHERE job.id = attempt.id
                 UNION ALL
                SELECT queue, task FROM drumbeat.dead WHERE dead.id = attempt.id
                 UNION ALL
                SELECT queue, task FROM drumbeat.history WHERE history.id = attempt.id
                 LIMIT 1) AS job ON true
 WHERE attempt.finished_at >= $2
   AND attempt.instance = $1;

-- name: prune
-- $1 resolution, $2 before, $3 limit. ARRAY: as in rooms.sql.
DELETE FROM drumbeat.rollup
 WHERE ctid = ANY (ARRAY(SELECT ctid
                           FROM drumbeat.rollup
                          WHERE resolution = $1
                            AND at < $2
                          ORDER BY at
                          LIMIT $3
                            FOR UPDATE SKIP LOCKED))
RETURNING task;

-- name: delete_gone_totals
-- TOTAL rows of instances that have ended. $1 their ids, $2 limit.
DELETE FROM drumbeat.rollup
 WHERE ctid = ANY (ARRAY(SELECT ctid
                           FROM drumbeat.rollup
                          WHERE resolution = 0
                            AND at = 0
                            AND instance <> ''
                            AND written_at < $1
                            AND instance NOT IN (SELECT id FROM drumbeat.instance WHERE state = 'alive')
                          ORDER BY queue, task, instance
                          LIMIT $2
                            FOR UPDATE SKIP LOCKED))
RETURNING at, queue, task, counts;

-- name: lock_folded
-- Locks the rows that belong to no instance: one transaction at a time adds to them.
SELECT pg_advisory_xact_lock(hashtext('drumbeat' || '.rollup'));

-- name: folded_totals
SELECT at, queue, task, counts
  FROM drumbeat.rollup
 WHERE resolution = 0
   AND at = 0
   AND instance = '';
