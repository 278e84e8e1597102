-- Statements about schedules, their fires, and work that is done once. Statements that fire, declare or sweep skip locked
-- schedules: no transaction that holds a schedule waits for another, and the end of a job, which waits for its schedule, never
-- waits for long.

-- name: put_new
-- A new schedule, or one that was retired. An interval has no next_at while its job is live.
-- $1 to $26 the definition, $27 every, $28 cursor, $29 next_at, $30 by.
INSERT INTO drumbeat.schedule ({{definition}}, every, cursor, next_at, changed_by, state, revision, created_at, changed_at,
                               declared_at, reason)
VALUES ({{definition from parameters}}, $27, $28, $29, $30, 'active', 1, drumbeat.now_us(), drumbeat.now_us(), CASE WHEN $21 = 'code' THEN drumbeat.now_us() END, '')
    ON CONFLICT (name) DO UPDATE
   SET ({{restarted}}) = ({{restarted from excluded}}),
       state = 'active',
       revision = schedule.revision + 1,
       cursor = coalesce(excluded.cursor, schedule.cursor),
       next_at = CASE WHEN excluded.every IS NOT NULL AND EXISTS (SELECT FROM drumbeat.job WHERE job.id = schedule.current)
                      THEN NULL ELSE excluded.next_at END
 WHERE schedule.state = 'retired'
RETURNING name;

-- name: put_changed
-- $31 revision.
UPDATE drumbeat.schedule
   SET ({{changeable}}) = ({{changeable from parameters}}),
       every = $27,
       state = 'active',
       revision = revision + 1,
       cursor = coalesce($28::bigint, cursor),
       next_at = CASE WHEN $27::bigint IS NOT NULL AND EXISTS (SELECT FROM drumbeat.job WHERE job.id = schedule.current)
                      THEN NULL ELSE $29::bigint END,
       changed_at = drumbeat.now_us(),
       declared_at = CASE WHEN $21 = 'code' THEN drumbeat.now_us() ELSE declared_at END,
       changed_by = $30,
       reason = ''
 WHERE name = $1
   AND revision = $31
RETURNING name;

-- name: declare
-- Returns the names that do not exist.
  WITH declared AS MATERIALIZED (
       SELECT name
         FROM drumbeat.schedule
        WHERE name = ANY ($1::text[])
        ORDER BY name
          FOR UPDATE SKIP LOCKED),
       noted AS (
       UPDATE drumbeat.schedule
          SET declared_at = drumbeat.now_us()
        WHERE name = ANY (ARRAY(SELECT declared.name FROM declared)))
SELECT given.name
  FROM unnest($1::text[]) AS given (name)
 WHERE NOT EXISTS (SELECT FROM drumbeat.schedule WHERE schedule.name = given.name);

-- name: change
-- $1 name, $2 revision, $3 state, $4 cursor, $5 next_at, $6 by, $7 reason.
UPDATE drumbeat.schedule
   SET state = $3,
       revision = revision + 1,
       cursor = coalesce($4::bigint, cursor),
       next_at = CASE WHEN $3 <> 'active'
                           OR (every IS NOT NULL AND EXISTS (SELECT FROM drumbeat.job WHERE job.id = schedule.current))
                      THEN NULL ELSE $5::bigint END,
       changed_at = drumbeat.now_us(),
       changed_by = $6,
       reason = $7
 WHERE name = $1
   AND revision = $2
RETURNING changed_at;

-- name: get
SELECT {{schedule from schedule, current = current::text}}
  FROM drumbeat.schedule
 WHERE name = $1;

-- name: page
-- $1 after, $2 retired ones as well, $3 limit.
SELECT {{schedule from schedule, current = current::text}}
  FROM drumbeat.schedule
 WHERE name > $1
   AND ($2 OR state <> 'retired')
 ORDER BY name
 LIMIT $3;

-- name: next_due
-- When to look again: the next fire time after now, and the shortest interval of schedules whose job is live.
SELECT drumbeat.now_us() AS now,
       (SELECT min(next_at) FROM drumbeat.schedule WHERE next_at > drumbeat.now_us()) AS next_at,
       (SELECT every
          FROM drumbeat.schedule
         WHERE every IS NOT NULL AND state = 'active' AND next_at IS NULL AND current IS NOT NULL
         ORDER BY every
         LIMIT 1) AS shortest;

-- name: due
-- $1 now, $2 limit.
SELECT {{schedule from schedule, current = current::text}}
  FROM drumbeat.schedule
 WHERE next_at <= $1
 ORDER BY next_at, name
 LIMIT $2;

-- name: lock
-- The state of these schedules, without locked ones. Columns as in core.overlap.ScheduleSnapshot, but for the jobs.
SELECT name, revision, cursor, state, overlap, every, current::text, drumbeat.now_us() AS now
  FROM drumbeat.schedule
 WHERE name = ANY ($1::text[])
 ORDER BY name
   FOR UPDATE SKIP LOCKED;

-- name: existing_names
SELECT name
  FROM drumbeat.schedule
 WHERE name = ANY ($1::text[]);

-- name: live_states
-- Those of these jobs that are live. Their end waits for the schedule that we hold.
SELECT id::text, state
  FROM drumbeat.job
 WHERE id = ANY ($1::text[]::uuid[]);

-- name: list_waiting
SELECT id::text, blocked_on
  FROM drumbeat.job
 WHERE blocked_on = ANY ($1::text[])
   AND state = 'pending'
   AND blocked_on IS NOT NULL;

-- name: lock_jobs
-- Jobs to be cancelled, without locked ones.
SELECT id::text, state
  FROM drumbeat.job
 WHERE id = ANY ($1::text[]::uuid[])
 ORDER BY job.id
   FOR UPDATE SKIP LOCKED;

-- name: find_fired
-- Those of these (schedule, fire time) that were fired before.
SELECT wanted.schedule, wanted.at
  FROM unnest($1::text[], $2::bigint[]) AS wanted (schedule, at)
 WHERE (SELECT 1
          FROM drumbeat.fire
         WHERE fire.schedule = wanted.schedule AND fire.at = wanted.at AND NOT fire.skipped) IS NOT NULL;

-- name: enqueue
-- Create jobs from their schedules. Columns: schedule, id, due_at, run_at, blocked_on.
INSERT INTO drumbeat.job (id, task, queue, priority, args, signature, created_at, due_at, run_at, retries, timeout, crash_limit,
                          blocked_on, blocked_since, on_dead, "group", lane, schedule, expires_at)
SELECT fired.id, plan.task, plan.queue, plan.priority, plan.args, plan.signature, drumbeat.now_us(), fired.due_at, fired.run_at,
       plan.retries, plan.timeout, plan.crash_limit, fired.blocked_on,
       CASE WHEN fired.blocked_on IS NOT NULL THEN drumbeat.now_us() END, plan.on_dead, plan."group", plan.lane, fired.schedule,
       fired.due_at + plan.expires
  FROM unnest($1::text[], $2::text[]::uuid[], $3::bigint[], $4::bigint[], $5::text[])
       AS fired (schedule, id, due_at, run_at, blocked_on)
 CROSS JOIN LATERAL (
       SELECT task, queue, priority, args, signature, retries, timeout, crash_limit, on_dead, expires, "group", lane
         FROM drumbeat.schedule
        WHERE schedule.name = fired.schedule
        LIMIT 1) AS plan;

-- name: clear_current
-- Before current jobs are cancelled in favour of their successors: their end must not start the next one.
UPDATE drumbeat.schedule
   SET current = NULL
 WHERE name = ANY ($1::text[]);

-- name: record_fires
-- Columns as in core.schedule.Fire. What is recorded stays.
INSERT INTO drumbeat.fire (schedule, at, skipped, last, count, outcome, reason, job, recorded_at)
SELECT schedule, at, outcome = 'skipped', last, count, outcome, reason, job, recorded_at
  FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[]::uuid[], $8::bigint[])
       AS fire (schedule, at, last, count, outcome, reason, job, recorded_at)
    ON CONFLICT DO NOTHING;

-- name: move_cursor
-- Columns: name, moves, cursor, next_at, current.
UPDATE drumbeat.schedule
   SET cursor = CASE WHEN moved.moves THEN moved.cursor ELSE schedule.cursor END,
       next_at = CASE WHEN moved.moves THEN moved.next_at ELSE schedule.next_at END,
       current = moved.current
  FROM unnest($1::text[], $2::boolean[], $3::bigint[], $4::bigint[], $5::text[]::uuid[])
       AS moved (name, moves, cursor, next_at, current)
 WHERE schedule.name = ANY ($1::text[])
   AND schedule.name = moved.name;

-- name: find_stalled
-- Active intervals without a next fire time whose current job is not live. One whose end is nearer than its interval has stopped.
-- $1 only these; null: any.
SELECT name
  FROM drumbeat.schedule
 WHERE every IS NOT NULL
   AND state = 'active'
   AND next_at IS NULL
   AND NOT EXISTS (SELECT FROM drumbeat.job WHERE job.id = schedule.current)
   AND ("end" IS NULL OR "end" - every > drumbeat.now_us() OR (current IS NOT NULL AND "end" > drumbeat.now_us()))
   AND ($1::text[] IS NULL OR name = ANY ($1));

-- name: find_orphaned_waits
-- Schedules whose current job is not live while others wait for it. Seeks from one value of blocked_on to the next.
  WITH RECURSIVE waiting (value) AS (
       SELECT min(blocked_on)
         FROM drumbeat.job
        WHERE state = 'pending' AND blocked_on IS NOT NULL AND blocked_on >= 'schedule:' AND blocked_on < 'schedule;'
        UNION ALL
       SELECT (SELECT min(job.blocked_on)
                 FROM drumbeat.job
                WHERE job.state = 'pending'
                  AND job.blocked_on IS NOT NULL
                  AND job.blocked_on > waiting.value
                  AND job.blocked_on < 'schedule;')
         FROM waiting
        WHERE waiting.value IS NOT NULL)
SELECT substr(waiting.value, 10) AS name
  FROM waiting
 WHERE waiting.value IS NOT NULL
   AND ($1::text[] IS NULL OR substr(waiting.value, 10) = ANY ($1))
   AND (SELECT 1
          FROM drumbeat.job
         WHERE job.id = (SELECT current FROM drumbeat.schedule WHERE schedule.name = substr(waiting.value, 10))) IS NULL;

-- name: advance_schedule
UPDATE drumbeat.schedule
   SET next_at = drumbeat.now_us(),
       current = NULL
 WHERE name = ANY ($1::text[]);

-- name: start_next
UPDATE drumbeat.schedule
   SET current = drumbeat.start_next(name)
 WHERE name = ANY ($1::text[]);

-- name: retire
-- Schedules of code that are no longer declared although instances of the same app are alive. $1 silent since.
  WITH silent AS MATERIALIZED (
       SELECT name
         FROM drumbeat.schedule
        WHERE origin = 'code'
          AND state <> 'retired'
          AND declared_at < $1
          AND app IN (SELECT instance.app FROM drumbeat.instance WHERE instance.state = 'alive')
        ORDER BY name
          FOR UPDATE SKIP LOCKED)
UPDATE drumbeat.schedule
   SET state = 'retired',
       revision = revision + 1,
       next_at = NULL,
       changed_at = drumbeat.now_us(),
       changed_by = '',
       reason = 'no longer declared'
 WHERE name = ANY (ARRAY(SELECT silent.name FROM silent))
RETURNING name;

-- name: fires
-- Columns as in core.schedule.Fire. $1 names, $2 before, $3 limit for each.
SELECT fire.schedule, fire.at, fire.last, fire.count, fire.outcome, fire.reason, fire.job::text, fire.recorded_at
  FROM (SELECT DISTINCT name FROM unnest($1::text[]) AS given (name)) AS wanted
 CROSS JOIN LATERAL (
       SELECT * FROM drumbeat.fire
        WHERE fire.schedule = wanted.name
          AND fire.at < $2
        ORDER BY fire.at DESC, fire.skipped DESC
        LIMIT $3) AS fire
 ORDER BY fire.at DESC, fire.skipped DESC;

-- name: delete_fires
-- $1 before, $2 limit.
DELETE FROM drumbeat.fire
 WHERE ctid = ANY (ARRAY(
       SELECT fire.ctid
         FROM drumbeat.fire
        WHERE fire.last < $1
        ORDER BY fire.last
        LIMIT $2))
RETURNING 1;

-- name: begin_once
-- Begin it, or take it over from an instance that is no longer alive. $1 key, $2 instance.
INSERT INTO drumbeat.once (key, instance, begun_at)
VALUES ($1, $2, drumbeat.now_us())
    ON CONFLICT (key) DO UPDATE
   SET instance = excluded.instance,
       begun_at = excluded.begun_at
 WHERE once.done_at IS NULL
   AND once.instance <> excluded.instance
   AND NOT EXISTS (SELECT FROM drumbeat.instance WHERE instance.id = once.instance AND instance.state = 'alive');

-- name: once_state
SELECT instance, done_at
  FROM drumbeat.once
 WHERE key = $1;

-- name: finish_once
UPDATE drumbeat.once
   SET done_at = coalesce(done_at, drumbeat.now_us())
 WHERE key = $1
   AND instance = $2
RETURNING key;
