-- Statements about who lives.

-- name: register
INSERT INTO drumbeat_instance (id, app, version, host, pid, roles, queues, tasks, concurrency, started_at, beat_at, wake)
VALUES (:id, :app, :version, :host, :pid, :roles, :queues, :tasks, :concurrency, :now, :now, :wake)
    ON CONFLICT (id) DO NOTHING;

-- name: beat
UPDATE drumbeat_instance
   SET beat = beat + 1,
       beat_at = :now,
       running = :running
 WHERE id = :id
   AND state = 'alive';

-- name: pulse
-- Everything an instance must know, in one row: [beat, running, cancels, waiting, peers].
  WITH RECURSIVE waiting (value) AS (
       SELECT min(waits_for)
         FROM drumbeat_job
        WHERE waits_for IS NOT NULL
        UNION ALL
       SELECT (SELECT min(waits_for)
                 FROM drumbeat_job
                WHERE waits_for IS NOT NULL AND waits_for > waiting.value)
         FROM waiting
        WHERE waiting.value IS NOT NULL
        LIMIT 1000)
SELECT json_array(
           (SELECT beat FROM drumbeat_instance WHERE id = :id),
           (SELECT count(*) FROM drumbeat_job WHERE instance = :id AND state = 'running'),
           json((SELECT json_group_array(json_array(id, token)) FROM drumbeat_job
                  WHERE instance = :id AND state = 'running' AND cancel_requested)),
           json((SELECT json_group_array(value) FROM waiting WHERE value IS NOT NULL)),
           json((SELECT json_group_array(json_array(id, beat)) FROM drumbeat_instance WHERE state = 'alive' AND id <> :id)));

-- name: end
-- beat NULL: whatever the count is.
UPDATE drumbeat_instance
   SET state = :state,
       ended_at = :now,
       ended_why = :why,
       running = 0
 WHERE id = :id
   AND state = 'alive'
   AND (:beat IS NULL OR beat = :beat);

-- name: forget
DELETE FROM drumbeat_instance
 WHERE state <> 'alive'
   AND ended_at < :before;

-- name: addresses
-- Where hints reach living workers.
SELECT json_group_array(wake)
  FROM drumbeat_instance
 WHERE state = 'alive'
   AND wake IS NOT NULL;
