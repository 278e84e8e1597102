-- Statements about instances and the leader.

-- name: register
INSERT INTO drumbeat_instance (id, app, version, host, pid, roles, queues, tasks, concurrency, started_at, beat_at, rooms, wake)
VALUES (:id, :app, :version, :host, :pid, :roles, :queues, :tasks, :concurrency, :now, :now, :rooms, :wake)
    ON CONFLICT (id) DO NOTHING;

-- name: heartbeat
UPDATE drumbeat_instance
   SET beat = CASE WHEN typeof(beat) = 'integer' THEN beat ELSE 0 END + 1,
       beat_at = :now,
       running = :running
 WHERE id = :id
   AND state = 'alive';

-- name: heartbeat_reply
-- The reply to a heartbeat in one row: a core.instance.HeartbeatReply.
-- include: _waiting
SELECT json_object(
           'alive', json('true'),
           'now', :now,
           'beat', (SELECT beat FROM drumbeat_instance WHERE id = :id),
           'running', (SELECT count(*) FROM drumbeat_job WHERE instance = :id AND state = 'running'),
           'cancel_requests', json((SELECT json_group_array(json_array(id, token)) FROM drumbeat_job
                                     WHERE instance = :id AND state = 'running' AND cancel_requested)),
           'blocked_on', json((SELECT json_group_array(value) FROM waiting
                                WHERE value IS NOT NULL AND value <> 'parents' AND value NOT GLOB 'schedule:*')),
           'peers', json((SELECT json_group_array(json_array(id, beat)) FROM drumbeat_instance
                           WHERE state = 'alive' AND id <> :id)),
           'leader', json((SELECT json_object('instance', instance, 'term', term) FROM drumbeat_leader
                            WHERE instance IS NOT NULL AND until > :now)),
           'next_fire_at', (SELECT min(next_at) FROM drumbeat_schedule WHERE next_at < 9e18));

-- name: reply_own
-- The parts of heartbeat_reply one by one, for when one of its rows cannot be made JSON.
SELECT (SELECT beat FROM drumbeat_instance WHERE id = :id),
       (SELECT count(*) FROM drumbeat_job WHERE instance = :id AND state = 'running'),
       (SELECT min(next_at) FROM drumbeat_schedule WHERE next_at < 9e18);

-- name: reply_cancels
SELECT id, token
  FROM drumbeat_job
 WHERE instance = :id
   AND state = 'running'
   AND cancel_requested;

-- name: reply_waiting
SELECT DISTINCT blocked_on
  FROM drumbeat_job
 WHERE blocked_on IS NOT NULL
   AND blocked_on NOT GLOB 'schedule:*'
   AND blocked_on <> 'parents'
 LIMIT 1000;

-- name: reply_peers
SELECT id, beat
  FROM drumbeat_instance
 WHERE state = 'alive'
   AND id <> :id;

-- name: reply_leader
SELECT instance, term
  FROM drumbeat_leader
 WHERE instance IS NOT NULL
   AND until > :now;

-- name: take_leadership
-- Take or renew the leadership. A lease that ends later than any could was granted before the clock was set back.
UPDATE drumbeat_leader
   SET term = CASE WHEN typeof(term) = 'integer' THEN term ELSE 0 END + (instance IS NOT :id),
       since = CASE WHEN instance IS :id THEN since ELSE :now END,
       instance = :id,
       until = :now + :lease
 WHERE instance IS NULL
    OR instance = :id
    OR until <= :now
    OR until > :now + :lease;

-- name: release_leadership
UPDATE drumbeat_leader
   SET instance = NULL,
       until = 0
 WHERE instance = :id;

-- name: set_ended
-- beat NULL: at any count of heartbeats.
UPDATE drumbeat_instance
   SET state = :state,
       ended_at = :now,
       ended_reason = :reason,
       running = 0
 WHERE id = :id
   AND state = 'alive'
   AND (:beat IS NULL OR beat = :beat);

-- name: set_end_reason
-- The reason says what became of its jobs, which is known only after it has ended.
UPDATE drumbeat_instance
   SET ended_reason = :reason
 WHERE id = :id;

-- name: leave_rooms
UPDATE drumbeat_instance
   SET rooms = '{}'
 WHERE id = :id;

-- name: delete_ended
DELETE FROM drumbeat_instance
 WHERE state <> 'alive'
   AND ended_at < :before;

-- name: wake_addresses
-- Wake addresses of workers that are alive.
SELECT json_group_array(wake)
  FROM drumbeat_instance
 WHERE state = 'alive'
   AND typeof(wake) = 'text';
