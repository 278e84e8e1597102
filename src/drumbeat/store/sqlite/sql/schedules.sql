-- Statements about schedules, their fires, and work that is done once. Batches arrive and leave as one JSON text, as in claim.sql.

-- name: put_new
-- A new schedule, or one that was retired. An interval has no next_at while its job is live.
INSERT INTO drumbeat_schedule ({{definition}}, every, state, revision, cursor, next_at, created_at, changed_at, declared_at,
                               changed_by, reason)
VALUES ({{definition from parameters}}, :every, 'active', 1, :cursor, :next_at, :now, :now,
        CASE WHEN :origin = 'code' THEN :now END, :by, '')
    ON CONFLICT (name) DO UPDATE
   SET ({{restarted}}) = ({{restarted from excluded}}),
       state = 'active',
       revision = drumbeat_schedule.revision + 1,
       cursor = ifnull(excluded.cursor, drumbeat_schedule.cursor),
       next_at = CASE WHEN excluded.every IS NOT NULL
                           AND EXISTS (SELECT 1 FROM drumbeat_job WHERE id = drumbeat_schedule.current)
                      THEN NULL ELSE excluded.next_at END
 WHERE drumbeat_schedule.state = 'retired';

-- name: put_changed
UPDATE drumbeat_schedule
   SET ({{changeable}}) = ({{changeable from parameters}}),
       every = :every,
       state = 'active',
       revision = revision + 1,
       cursor = ifnull(:cursor, cursor),
       next_at = CASE WHEN :every IS NOT NULL AND EXISTS (SELECT 1 FROM drumbeat_job WHERE id = current)
                      THEN NULL ELSE :next_at END,
       changed_at = :now,
       declared_at = CASE WHEN :origin = 'code' THEN :now ELSE declared_at END,
       changed_by = :by,
       reason = ''
 WHERE name = :name
   AND revision = :revision;

-- name: declare
UPDATE drumbeat_schedule
   SET declared_at = :now
 WHERE name IN (SELECT value FROM json_each(:names));

-- name: unknown_names
SELECT json_group_array(value)
  FROM json_each(:names)
 WHERE value NOT IN (SELECT name FROM drumbeat_schedule);

-- name: change
UPDATE drumbeat_schedule
   SET state = :state,
       revision = CASE WHEN typeof(revision) = 'integer' THEN revision ELSE 0 END + 1,
       cursor = ifnull(:cursor, cursor),
       next_at = CASE WHEN :state <> 'active'
                           OR (every IS NOT NULL AND EXISTS (SELECT 1 FROM drumbeat_job WHERE id = current))
                      THEN NULL ELSE :next_at END,
       changed_at = :now,
       changed_by = :by,
       reason = :reason
-- A schedule whose revision is not a number can be changed under any revision.
 WHERE name = :name
   AND (revision = :revision OR typeof(revision) <> 'integer');

-- name: _schedules
-- Columns as in store.overlap.StoredScheduleRow.
SELECT json_group_array(json_array({{schedule}}))
  FROM (SELECT {{schedule}}
          FROM drumbeat_schedule

-- name: get
-- include: _schedules
         WHERE name = :name);

-- name: page
-- include: _schedules
         WHERE name > :after
           AND (:all OR state <> 'retired')
         ORDER BY name
         LIMIT :limit);

-- name: due
-- include: _schedules
         WHERE next_at IS NOT NULL
           AND next_at <= :now
         ORDER BY next_at, name
         LIMIT :limit);

-- name: next_at
-- A text or a blob is greater than every number, and is no time.
SELECT min(next_at)
  FROM drumbeat_schedule
 WHERE next_at > :now
   AND next_at < 9e18;

-- name: shortest_interval
-- The shortest interval of schedules whose job is live.
SELECT every
  FROM drumbeat_schedule
 WHERE every IS NOT NULL
   AND typeof(every) = 'integer'
   AND state = 'active'
   AND next_at IS NULL
   AND current IS NOT NULL
 ORDER BY every
 LIMIT 1;

-- name: snapshots
-- The state of these schedules. Columns as in core.overlap.ScheduleSnapshot.
SELECT json_group_array(json_array(plan.name, plan.revision, plan.cursor, plan.state, plan.overlap, plan.every, plan.current,
                                   (SELECT state FROM drumbeat_job WHERE id = plan.current),
                                   json((SELECT json_group_array(id)
                                           FROM drumbeat_job
                                          WHERE plan.overlap = 'cancel'
                                            AND blocked_on = 'schedule:' || plan.name))))
  FROM json_each(:names) AS wanted
 CROSS JOIN drumbeat_schedule AS plan
 WHERE plan.name = wanted.value;

-- name: recorded_fires
-- Those of these [schedule, fire time] that were fired before.
SELECT json_group_array(json_array(fire.schedule, fire.at))
  FROM json_each(:fire_times) AS wanted
 CROSS JOIN drumbeat_fire AS fire
 WHERE fire.schedule = json_extract(wanted.value, '$[0]')
   AND fire.at = json_extract(wanted.value, '$[1]')
   AND fire.skipped = 0;

-- name: insert_jobs
-- Create jobs from their schedules. For each: [schedule, id, due_at, run_at, blocked_on].
INSERT INTO drumbeat_job (id, task, queue, priority, args, signature, created_at, due_at, run_at, retries, timeout,
                          crash_limit, blocked_on, blocked_since, on_dead, "group", lane, schedule, expires_at)
SELECT json_extract(fired.value, '$[1]'), plan.task, plan.queue, plan.priority, plan.args, plan.signature, :now,
       json_extract(fired.value, '$[2]'), json_extract(fired.value, '$[3]'), plan.retries, plan.timeout, plan.crash_limit,
       json_extract(fired.value, '$[4]'), CASE WHEN json_extract(fired.value, '$[4]') IS NOT NULL THEN :now END,
       plan.on_dead, plan."group", plan.lane, plan.name, json_extract(fired.value, '$[2]') + plan.expires
  FROM json_each(:jobs) AS fired
 CROSS JOIN drumbeat_schedule AS plan
 WHERE plan.name = json_extract(fired.value, '$[0]');

-- name: clear_current
-- Before current jobs are cancelled in favour of their successors: their end must not start the next one.
UPDATE drumbeat_schedule
   SET current = NULL
 WHERE name IN (SELECT value FROM json_each(:names));

-- name: record_fires
-- For each: the columns of core.schedule.Fire. What is recorded stays.
INSERT INTO drumbeat_fire (schedule, at, skipped, last, count, outcome, reason, job, recorded_at)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[4]') = 'skipped',
       json_extract(value, '$[2]'), json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
       json_extract(value, '$[6]'), json_extract(value, '$[7]')
  FROM json_each(:records)
 WHERE true
    ON CONFLICT DO NOTHING;

-- name: advance
-- For each: [name, moves, cursor, next_at, current].
UPDATE drumbeat_schedule
   SET cursor = CASE WHEN moved.moves THEN moved.cursor ELSE drumbeat_schedule.cursor END,
       next_at = CASE WHEN moved.moves THEN moved.next_at ELSE drumbeat_schedule.next_at END,
       current = moved.current
  FROM (SELECT json_extract(value, '$[0]') AS name, json_extract(value, '$[1]') AS moves,
               json_extract(value, '$[2]') AS cursor, json_extract(value, '$[3]') AS next_at,
               json_extract(value, '$[4]') AS current
          FROM json_each(:advanced)) AS moved
 WHERE drumbeat_schedule.name = moved.name;

-- name: stalled
-- Active intervals without a next fire time whose current job is not live. One whose end is nearer than its interval has stopped.
SELECT json_group_array(name)
  FROM drumbeat_schedule AS plan
 WHERE every IS NOT NULL
   AND state = 'active'
   AND next_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM drumbeat_job WHERE id = plan.current)
   AND ("end" IS NULL OR "end" - every > :now OR (current IS NOT NULL AND "end" > :now));

-- name: advance_stalled
UPDATE drumbeat_schedule
   SET next_at = :now,
       current = NULL
 WHERE name IN (SELECT value FROM json_each(:names));

-- name: orphaned
-- Schedules whose current job is not live while others wait for it. Seeks from one value of blocked_on to the next.
  WITH RECURSIVE waiting (value) AS (
       SELECT min(blocked_on)
         FROM drumbeat_job
        WHERE blocked_on IS NOT NULL AND blocked_on >= 'schedule:' AND blocked_on < 'schedule;'
        UNION ALL
       SELECT (SELECT min(blocked_on)
                 FROM drumbeat_job
                WHERE blocked_on IS NOT NULL AND blocked_on > waiting.value AND blocked_on < 'schedule;')
         FROM waiting
        WHERE waiting.value IS NOT NULL)
SELECT json_group_array(substr(waiting.value, 10))
  FROM waiting
 WHERE waiting.value IS NOT NULL
   AND NOT EXISTS (SELECT 1
                     FROM drumbeat_schedule AS plan
                    CROSS JOIN drumbeat_job AS job
                    WHERE plan.name = substr(waiting.value, 10)
                      AND job.id = plan.current);

-- name: promote_next
-- The oldest waiting job becomes the current one ...
UPDATE drumbeat_schedule
   SET current = (SELECT id
                    FROM drumbeat_job
                   WHERE blocked_on = 'schedule:' || drumbeat_schedule.name
                     AND blocked_since IS NOT NULL
                   ORDER BY blocked_since, seq
                   LIMIT 1)
 WHERE name IN (SELECT value FROM json_each(:names));

-- name: start_next
-- ... and is unblocked.
UPDATE drumbeat_job
   SET blocked_on = NULL,
       blocked_since = NULL
 WHERE blocked_on IS NOT NULL
   AND id IN (SELECT plan.current
                FROM json_each(:names) AS wanted
               CROSS JOIN drumbeat_schedule AS plan
               WHERE plan.name = wanted.value);

-- name: _undeclared
-- Schedules of code that are no longer declared although instances of the same app are alive.
       origin = 'code'
   AND state <> 'retired'
   AND declared_at < :silent_since
   AND app IN (SELECT app FROM drumbeat_instance WHERE state = 'alive')

-- name: has_undeclared
SELECT EXISTS (SELECT 1
  FROM drumbeat_schedule
 WHERE
-- include: _undeclared
);

-- name: retire
UPDATE drumbeat_schedule
   SET state = 'retired',
       revision = revision + 1,
       next_at = NULL,
       changed_at = :now,
       changed_by = '',
       reason = 'no longer declared'
 WHERE
-- include: _undeclared
RETURNING name;

-- name: fires
-- Columns as in core.schedule.Fire.
SELECT json_group_array(json_array(schedule, at, last, count, outcome, reason, job, recorded_at))
  FROM (SELECT schedule, at, last, count, outcome, reason, job, recorded_at
          FROM drumbeat_fire
         WHERE schedule = :name
           AND at < :before
         ORDER BY at DESC, skipped DESC
         LIMIT :limit);

-- name: has_old_fires
SELECT EXISTS (SELECT 1 FROM drumbeat_fire WHERE last < :before);

-- name: delete_fires
DELETE FROM drumbeat_fire
 WHERE (schedule, at, skipped) IN (SELECT schedule, at, skipped
                                     FROM drumbeat_fire
                                    WHERE last < :before
                                    ORDER BY last
                                    LIMIT :limit);

-- name: begin_once
-- Begin it, or take it over from an instance that is no longer alive.
INSERT INTO drumbeat_once (key, instance, begun_at)
VALUES (:key, :instance, :now)
    ON CONFLICT (key) DO UPDATE
   SET instance = excluded.instance,
       begun_at = excluded.begun_at
 WHERE done_at IS NULL
   AND drumbeat_once.instance <> excluded.instance
   AND NOT EXISTS (SELECT 1 FROM drumbeat_instance WHERE id = drumbeat_once.instance AND state = 'alive');

-- name: once_state
-- [instance, or null once it is done; whether it is done]
SELECT json_array(CASE WHEN done_at IS NULL THEN instance END, done_at IS NOT NULL)
  FROM drumbeat_once
 WHERE key = :key;

-- name: finish_once
UPDATE drumbeat_once
   SET done_at = ifnull(done_at, :now)
 WHERE key = :key
   AND instance = :instance;
