-- Statements about instances and the leader.

-- name: register
INSERT INTO drumbeat.instance (id, app, version, host, pid, roles, queues, tasks, concurrency, wake, rooms, started_at,
                               beat_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, drumbeat.now_us(), drumbeat.now_us())
    ON CONFLICT (id) DO NOTHING;

-- name: heartbeat
-- A heartbeat and its reply in one row; none if the instance is not alive. $1 id, $2 running, $3 whether to count the jobs that
-- run under it: their index is long where vacuum cannot keep up. $4 the lease of the leadership that it wants, null: none. A lease
-- that ends later than any could was granted before the clock was set back. Jobs that wait for a schedule or for parents are
-- unblocked by the end of a job only: one seek skips all of them.
  WITH RECURSIVE beaten AS (
       UPDATE drumbeat.instance
          SET beat = beat + 1,
              beat_at = drumbeat.now_us(),
              running = $2
        WHERE id = $1
          AND state = 'alive'
       RETURNING beat),
       waiting (value) AS (
       SELECT '' COLLATE "C"
        UNION ALL
       SELECT coalesce((SELECT min(job.blocked_on)
                          FROM drumbeat.job
                         WHERE job.state = 'pending'
                           AND job.blocked_on IS NOT NULL
                           AND job.blocked_on > waiting.value
                           AND job.blocked_on < 'parents'),
                       (SELECT min(job.blocked_on)
                          FROM drumbeat.job
                         WHERE job.state = 'pending'
                           AND job.blocked_on IS NOT NULL
                           AND job.blocked_on > CASE WHEN starts_with(waiting.value, 'schedule:') THEN 'schedule;'
                                                     ELSE greatest(waiting.value, 'parents') END))
         FROM waiting
        WHERE waiting.value IS NOT NULL),
       led AS (
       UPDATE drumbeat.leader
          SET term = term + CASE WHEN instance IS DISTINCT FROM $1 THEN 1 ELSE 0 END,
              since = CASE WHEN instance IS DISTINCT FROM $1 THEN drumbeat.now_us() ELSE since END,
              instance = $1,
              until = drumbeat.now_us() + $4
        WHERE $4::bigint IS NOT NULL
          AND EXISTS (SELECT FROM beaten)
          -- More than twice the lease ahead: the clock was set back. Less may come from a heartbeat that began after this one.
          AND (instance IS NULL OR instance = $1 OR until <= drumbeat.now_us() OR until > drumbeat.now_us() + 2 * $4)
       RETURNING instance, term),
       given_up AS (
       UPDATE drumbeat.leader
          SET instance = NULL,
              until = 0
        WHERE $4::bigint IS NULL
          AND EXISTS (SELECT FROM beaten)
          AND instance = $1
       RETURNING 1),
       leads AS (
       SELECT led.instance, led.term
         FROM led
        UNION ALL
       SELECT leader.instance, leader.term
         FROM drumbeat.leader
        WHERE leader.instance IS NOT NULL
          AND leader.until > drumbeat.now_us()
          AND NOT EXISTS (SELECT FROM led)
          AND NOT EXISTS (SELECT FROM given_up))
SELECT beaten.beat, drumbeat.now_us() AS now,
       CASE WHEN $3::boolean THEN (SELECT count(*) FROM drumbeat.job WHERE instance = $1 AND state = 'running') END AS running,
       ARRAY(SELECT id::text FROM drumbeat.job
              WHERE instance = $1 AND state = 'running' AND cancel_requested ORDER BY id) AS cancel_ids,
       ARRAY(SELECT token FROM drumbeat.job
              WHERE instance = $1 AND state = 'running' AND cancel_requested ORDER BY id) AS cancel_tokens,
       ARRAY(SELECT value FROM waiting
              WHERE value <> '' AND NOT starts_with(value, 'schedule:') LIMIT 1000) AS waiting,
       ARRAY(SELECT id FROM drumbeat.instance WHERE state = 'alive' AND id <> $1 ORDER BY id) AS peers,
       ARRAY(SELECT beat FROM drumbeat.instance WHERE state = 'alive' AND id <> $1 ORDER BY id) AS peer_beats,
       leads.instance AS leader, leads.term,
       (SELECT min(next_at) FROM drumbeat.schedule WHERE next_at IS NOT NULL) AS next_fire
  FROM beaten
  LEFT JOIN leads
    ON true;

-- name: leader
-- The leader, for a heartbeat that wanted to lead and lost to another while it waited: its snapshot does not show which.
SELECT instance AS leader, term
  FROM drumbeat.leader
 WHERE instance IS NOT NULL
   AND until > drumbeat.now_us();

-- name: resign_lead
UPDATE drumbeat.leader
   SET instance = NULL,
       until = 0
 WHERE instance = $1;

-- name: lock
-- Excludes claims, which hold the same row's key while they take jobs for it. beat NULL: at any count of heartbeats.
SELECT id
  FROM drumbeat.instance
 WHERE id = $1
   AND state = 'alive'
   AND ($2::bigint IS NULL OR beat = $2)
   FOR UPDATE;

-- name: set_ended
UPDATE drumbeat.instance
   SET state = $2,
       ended_at = drumbeat.now_us(),
       ended_reason = $3,
       running = 0
 WHERE id = $1;

-- name: set_end_reason
-- The reason says what became of its jobs, which is known only after it has ended.
UPDATE drumbeat.instance
   SET ended_reason = $2
 WHERE id = $1;

-- name: leave_rooms
UPDATE drumbeat.instance
   SET rooms = '{}'
 WHERE id = $1;

-- name: forget
DELETE FROM drumbeat.instance
 WHERE state <> 'alive'
   AND ended_at < $1
RETURNING id;
