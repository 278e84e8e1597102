-- Statements about roll-ups.

-- name: is_in_state
SELECT EXISTS (SELECT 1 FROM drumbeat_instance WHERE id = :instance AND state = :state);

-- name: put
-- ?1 instance, ?2 now; a row: at, resolution, queue, task, counts. Batches as in insert.sql: a step for each of hundreds of rows
-- would block the writers of all processes.
INSERT INTO drumbeat_rollup (resolution, at, queue, task, instance, written_at, counts)
SELECT column2, column1, column3, column4, ?1, ?2, column5
  FROM (VALUES (?, ?, ?, ?, ?))
 WHERE column1 <> -1
    ON CONFLICT (resolution, at, queue, task, instance) DO UPDATE
   SET written_at = excluded.written_at,
       counts = excluded.counts;

-- name: _span
-- Columns as in records.RollupRow, here and below.
SELECT json_group_array(json_array(at, queue, task, json(counts)))
  FROM drumbeat_rollup {{here}}
 WHERE resolution = :resolution
   AND at >= :since
   AND at < :until

-- name: read
-- include: _span
   AND queue <> ''
   AND (:queue IS NULL OR queue = :queue)
   AND (:task IS NULL OR task = :task);

-- name: overall
-- Forces its own index: SQLite would scan the rows of all queues and tasks.
-- include: _span with INDEXED BY drumbeat_rollup_overall
   AND queue = '';

-- name: written
-- [resolution, at, queue, task, counts, written_at] of one instance.
SELECT json_group_array(json_array(resolution, at, queue, task, json(counts), written_at))
  FROM drumbeat_rollup
 WHERE instance = :instance
   AND (resolution, at) IN (VALUES (0, 0))
    OR instance = :instance
   AND resolution IN (10000000, 60000000, 3600000000)
   AND at > :since - resolution;

-- name: run_ends
-- Columns as in core.stats.RunEnd. History is in the order of ends: only its newest rows are read.
SELECT json_group_array(json_array(queue, task, outcome, json(iif(dead, 'true', 'false')), due_at, started_at, finished_at))
  FROM (SELECT queue, task, outcome, 0 AS dead, run_at AS due_at, started_at, finished_at
          FROM drumbeat_history
         WHERE seq > (SELECT max(seq) FROM drumbeat_history) - 200000
           AND finished_at >= :since
           AND instance = :instance
           AND outcome IS NOT NULL
           AND state <> 'dead'
         UNION ALL
        SELECT queue, task, outcome, 1, run_at, started_at, finished_at
          FROM drumbeat_dead
         WHERE finished_at >= :since
           AND instance = :instance
           AND outcome IS NOT NULL
         UNION ALL
        SELECT job.queue, job.task, attempt.outcome, 0, attempt.token, attempt.started_at, attempt.finished_at
          FROM drumbeat_attempt AS attempt
          JOIN (SELECT id, queue, task FROM drumbeat_job
                 UNION ALL
                SELECT id, queue, task FROM drumbeat_dead
                 UNION ALL
                SELECT id, queue, task FROM drumbeat_history) AS job ON job.id = attempt.id
         WHERE attempt.finished_at >= :since
           AND attempt.instance = :instance);

-- name: prune
DELETE FROM drumbeat_rollup
 WHERE (resolution, at, queue, task, instance) IN (SELECT resolution, at, queue, task, instance
                                                FROM drumbeat_rollup
                                               WHERE resolution = :resolution
                                                 AND at < :before
                                               ORDER BY at
                                               LIMIT :limit);

-- name: delete_gone_totals
-- TOTAL rows of instances that have ended. Columns as in records.RollupRow.
DELETE FROM drumbeat_rollup
 WHERE (resolution, at, queue, task, instance) IN (SELECT resolution, at, queue, task, instance
                                                FROM drumbeat_rollup
                                               WHERE resolution = 0
                                                 AND at = 0
                                                 AND instance <> ''
                                                 AND written_at < :gone
                                                 AND instance NOT IN (SELECT id FROM drumbeat_instance WHERE state = 'alive')
                                               LIMIT :limit)
RETURNING at, queue, task, counts;

-- name: folded
SELECT json_group_array(json_array(at, queue, task, json(counts)))
  FROM drumbeat_rollup
 WHERE resolution = 0
   AND at = 0
   AND instance = '';
