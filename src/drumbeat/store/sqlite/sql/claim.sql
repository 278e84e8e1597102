-- Statements that claim jobs. Batches arrive and leave as one JSON text: a step of SQLite releases the interpreter's lock, and a
-- step for each row would wait for it each time.

-- name: pick
-- The next jobs of a queue that are in no lane, whether releases are left, and whether it has lines. Priority by priority, each a range of the claim index: future jobs are never stepped over.
SELECT json_group_array(seq), EXISTS (SELECT 1 FROM drumbeat_release), EXISTS (SELECT 1 FROM drumbeat_line WHERE queue = :queue)
  FROM (SELECT job.seq
          FROM drumbeat_level AS level
         CROSS JOIN drumbeat_job AS job
         WHERE job.queue = :queue
           AND job.lane = ''
           AND job.priority = level.priority
           AND job.run_at <= :now
           AND job.state = 'pending'
           AND job.blocked_on IS NULL
           AND NOT EXISTS (SELECT 1 FROM drumbeat_queue WHERE name = :queue)
           AND EXISTS (SELECT 1 FROM drumbeat_instance WHERE id = :instance AND state = 'alive')
         ORDER BY level.priority, job.run_at, job.id
         LIMIT :limit);

-- name: has_releases
-- And whether there are lines.
SELECT EXISTS (SELECT 1 FROM drumbeat_release), EXISTS (SELECT 1 FROM drumbeat_line);

-- name: pick_unblocked
-- The next blocked jobs that this worker can take.
-- include: _waiting
SELECT json_group_array(seq)
  FROM (SELECT job.seq
          FROM waiting
         CROSS JOIN json_each(:queues) AS queue
         CROSS JOIN drumbeat_level AS level
         CROSS JOIN drumbeat_job AS job
         WHERE waiting.value IN (SELECT value FROM json_each(:unblocks))
           AND job.blocked_on = waiting.value
           AND job.queue = queue.value
           AND job.priority = level.priority
           AND job.run_at <= :now
           AND (job.lane <> '') = :in_lanes
           AND job.blocked_on IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM drumbeat_queue WHERE name = queue.value)
           AND EXISTS (SELECT 1 FROM drumbeat_instance WHERE id = :instance AND state = 'alive')
         LIMIT :limit);

-- name: claim
UPDATE drumbeat_job
   SET state = 'running',
       instance = :instance,
       token = CASE WHEN typeof(token) = 'integer' AND token < 1e18 THEN max(token + 1, :lowest_token) ELSE :lowest_token END,
       claimed_at = :now
 WHERE seq IN (SELECT value FROM json_each(:picked));

-- name: set_id
UPDATE drumbeat_job
   SET id = :id
 WHERE seq = :seq;

-- name: unblock
UPDATE drumbeat_job
   SET blocked_on = NULL
 WHERE seq IN (SELECT value FROM json_each(:picked));

-- name: claimed_jobs
SELECT json_group_array(json_array({{claimed from job}}))
  FROM json_each(:picked) AS picked
 CROSS JOIN drumbeat_job AS job
 WHERE job.seq = picked.value;

-- name: next_due
-- The earliest due time after `after` of these queues: one seek for each queue and priority.
SELECT min((SELECT job.run_at
              FROM drumbeat_job AS job
             WHERE job.queue = queue.value
               AND job.lane = ''
               AND job.priority = level.priority
               AND job.run_at > :after
               AND job.run_at < 9e18
               AND job.state = 'pending'
               AND job.blocked_on IS NULL
             ORDER BY job.run_at
             LIMIT 1))
  FROM json_each(:queues) AS queue
 CROSS JOIN drumbeat_level AS level
 WHERE NOT EXISTS (SELECT 1 FROM drumbeat_queue WHERE name = queue.value);

-- name: pick_malformed
-- Jobs of these queues whose run_at is a text or a blob: that is greater than every number, so one seek finds them.
SELECT json_group_array(seq)
  FROM (SELECT job.seq
          FROM json_each(:queues) AS queue
         CROSS JOIN drumbeat_level AS level
         CROSS JOIN drumbeat_job AS job
         WHERE job.queue = queue.value
           AND job.lane = ''
           AND job.priority = level.priority
           AND job.run_at > 9e18
           AND job.state = 'pending'
           AND job.blocked_on IS NULL
           AND typeof(job.run_at) IN ('text', 'blob')
           AND NOT EXISTS (SELECT 1 FROM drumbeat_queue WHERE name = queue.value)
           AND EXISTS (SELECT 1 FROM drumbeat_instance WHERE id = :instance AND state = 'alive')
         LIMIT :limit);

-- name: list_running
SELECT json_group_array(json_array(id, token))
  FROM drumbeat_job
 WHERE state = 'running'
   AND instance = :instance;
