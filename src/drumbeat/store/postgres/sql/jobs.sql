-- Statements about jobs for operators and callers: progress, cancel, run now, replay, discard, results, pruning, pauses.
-- Rows that are changed in bulk are named by `id = ANY`, as in completion.sql.

-- name: save_progress
-- $1 instance. Columns: id, token, progress.
UPDATE drumbeat.job
   SET progress = note.progress
  FROM unnest($2::text[]::uuid[], $3::bigint[], $4::text[]) AS note (id, token, progress)
 WHERE job.id = ANY ($2::text[]::uuid[])
   AND job.id = note.id
   AND job.token = note.token
   AND job.instance = $1;

-- name: lock_live
-- Live jobs of these ids and their states, locked in the order of ids.
SELECT id::text, state
  FROM drumbeat.job
 WHERE id = ANY ($1::text[]::uuid[])
 ORDER BY job.id
   FOR UPDATE;

-- name: lock_live_of_keys
SELECT id::text, state
  FROM drumbeat.job
 WHERE task = $1
   AND key = ANY ($2::text[])
   AND key IS NOT NULL
 ORDER BY job.id
   FOR UPDATE;

-- name: ended_states
-- The final states of these jobs; no row for one that has not ended.
SELECT history.id::text, history.state
  FROM drumbeat.history
 WHERE history.id = ANY ($1::text[]::uuid[])
 UNION ALL
SELECT dead.id::text, dead.state
  FROM drumbeat.dead
 WHERE dead.id = ANY ($1::text[]::uuid[]);

-- name: forget_cancellations
-- Of children that a parent's failure has cancelled: from now on no replay revives them. Waits for a revival under way.
DELETE FROM drumbeat.cancelled_child
 WHERE child = ANY ($1::text[]::uuid[]);

-- name: request_cancel
UPDATE drumbeat.job
   SET cancel_requested = true
 WHERE id = ANY ($1::text[]::uuid[]);

-- name: run_now
-- Not those that wait for a signal or for parents. Sleeps end, also on record.
  WITH due AS MATERIALIZED (
       SELECT id
         FROM drumbeat.job
        WHERE id = ANY ($1::text[]::uuid[])
          AND state = 'pending'
          AND coalesce(suspended, 'sleep') = 'sleep'
          AND blocked_on IS DISTINCT FROM 'parents'
        ORDER BY id
          FOR UPDATE),
       woken AS (
       UPDATE drumbeat.step
          SET until = drumbeat.now_us()
        WHERE job = ANY (ARRAY(SELECT due.id FROM due))
          AND kind = 'sleep'
          AND until > drumbeat.now_us())
UPDATE drumbeat.job
   SET run_at = least(run_at, drumbeat.now_us())
 WHERE id = ANY (ARRAY(SELECT due.id FROM due))
RETURNING drumbeat.now_us();

-- name: lock_dead_letters
-- For a replay or a discard: locked in the order of ids. Whoever adds a child to one of them holds it until the edge is stored.
SELECT id::text, task, key, "unique"
  FROM drumbeat.dead
 WHERE id = ANY ($1::text[]::uuid[])
 ORDER BY dead.id
   FOR UPDATE;

-- name: insert_last_attempts
-- Before a replay: the last attempt of the dead letter becomes an earlier one.
INSERT INTO drumbeat.attempt (id, token, instance, outcome, started_at, finished_at, error)
SELECT id, token, instance, outcome, started_at, finished_at, error
  FROM drumbeat.dead
 WHERE id = ANY ($1::text[]::uuid[])
   AND outcome IS NOT NULL
    ON CONFLICT DO NOTHING;

-- name: keep_outcomes
-- Before a replay: how these locked dead letters ended, for children that bind it and run after a failure.
SELECT drumbeat.keep_results(ARRAY(SELECT DISTINCT edge.parent
                                     FROM drumbeat.edge
                                    WHERE edge.parent = ANY ($1::text[]::uuid[])
                                      AND edge.if_fails = 'run'
                                      AND edge.binding <> ''
                                    ORDER BY edge.parent));

-- name: replay
-- Locked dead letters are live again under the same ids. Their tokens keep growing. released: whether releases were left.
  WITH gone AS (
       DELETE FROM drumbeat.dead
        WHERE id = ANY ($1::text[]::uuid[])
       RETURNING {{given}}, created_at, due_at, token, replays, schedule, expires_at),
       revived AS (
       INSERT INTO drumbeat.job ({{given}}, created_at, due_at, run_at, token, replays, schedule, expires_at, place, is_parent,
                                 binds, open_parents)
       SELECT {{given from gone, priority = CASE WHEN priority BETWEEN 0 AND 9 THEN priority ELSE 5 END}},
              created_at, due_at, drumbeat.now_us(), token, least(replays, 2147483646) + 1, schedule, expires_at,
              CASE WHEN lane <> '' THEN drumbeat.now_us() END,
              EXISTS (SELECT FROM drumbeat.edge WHERE edge.parent = gone.id),
              EXISTS (SELECT FROM drumbeat.edge WHERE edge.child = gone.id AND edge.binding <> ''),
              CASE WHEN EXISTS (SELECT FROM drumbeat.edge WHERE edge.child = gone.id) THEN 0 END
         FROM gone
       RETURNING id, replays, is_parent),
       released AS (
       INSERT INTO drumbeat.release (parent, life, event)
       SELECT revived.id, revived.replays, 'replayed'
         FROM revived
        WHERE revived.is_parent
        ORDER BY revived.id
       RETURNING 1)
SELECT drumbeat.now_us() AS now, EXISTS (SELECT FROM released) AS released;

-- name: discard
-- Locked dead letters. released: whether releases were left.
  WITH gone AS (
       DELETE FROM drumbeat.dead
        WHERE id = ANY ($1::text[]::uuid[])
       RETURNING {{dead}}),
       kept AS (
       INSERT INTO drumbeat.history ({{history}})
       SELECT {{history from gone}}
         FROM gone
       RETURNING 1),
       released AS (
       INSERT INTO drumbeat.release (parent, life, event)
       SELECT gone.id, gone.replays, 'discarded'
         FROM gone
        WHERE EXISTS (SELECT FROM drumbeat.edge WHERE edge.parent = gone.id)
        ORDER BY gone.id
       RETURNING 1)
SELECT (SELECT count(*) FROM kept) AS number, EXISTS (SELECT FROM released) AS released;

-- name: results
-- Results; state is null for a live job. A job that does not exist has no row. $2: only history since then.
SELECT history.id::text, history.task, history.state, history.result, history.result_error, history.error
  FROM drumbeat.history
 WHERE history.id = ANY ($1::text[]::uuid[])
   AND history.finished_at >= $2
 UNION ALL
SELECT job.id::text, job.task, NULL, NULL, NULL, NULL
  FROM drumbeat.job
 WHERE job.id = ANY ($1::text[]::uuid[])
 UNION ALL
SELECT dead.id::text, dead.task, dead.state, dead.result, dead.result_error, dead.error
  FROM drumbeat.dead
 WHERE dead.id = ANY ($1::text[]::uuid[]);

-- name: pruned_before
SELECT value
  FROM drumbeat.meta
 WHERE name = 'pruned_before';

-- name: lock_expired
-- Pending jobs that should have started before now, locked.
SELECT id::text
  FROM drumbeat.job
 WHERE expires_at <= drumbeat.now_us()
   AND expires_at IS NOT NULL
   AND failures + crashes + replays = 0
   AND state = 'pending'
 LIMIT $1
   FOR UPDATE SKIP LOCKED;

-- name: lock_expired_waits
-- Jobs that have been blocked since before $2 on something that begins with $1, locked. Columns as in records.StoredJobRow.
SELECT {{stored from live_row}}, drumbeat.now_us() AS now
  FROM drumbeat.job
 WHERE blocked_on >= $1
   AND starts_with(blocked_on, $1)
   AND blocked_since < $2
   AND state = 'pending'
   AND blocked_on IS NOT NULL
   AND blocked_on <> 'parents'
 LIMIT $3
   FOR UPDATE SKIP LOCKED;

-- name: prune
-- The oldest of one day of history, with their attempts. $1 from, $2 before, $3 limit. Not parents whose edges are still to be
-- followed: what their children bind is kept by that.
  WITH old AS MATERIALIZED (
       SELECT history.id
         FROM drumbeat.history
        WHERE history.finished_at >= $1
          AND history.finished_at < $2
          AND NOT EXISTS (SELECT FROM drumbeat.release WHERE release.parent = history.id)
        ORDER BY history.finished_at
        LIMIT $3),
       attempts AS (
       DELETE FROM drumbeat.attempt
        WHERE id = ANY (ARRAY(SELECT old.id FROM old))),
       steps AS (
       DELETE FROM drumbeat.step
        WHERE job = ANY (ARRAY(SELECT old.id FROM old))),
       signals AS (
       DELETE FROM drumbeat.signal
        WHERE job = ANY (ARRAY(SELECT old.id FROM old))),
       edges AS (
       DELETE FROM drumbeat.edge
        WHERE child = ANY (ARRAY(SELECT old.id FROM old))
       RETURNING parent, binding),
       cancellations AS (
       DELETE FROM drumbeat.cancelled_child
        WHERE child = ANY (ARRAY(SELECT old.id FROM old))),
       pruned AS (
       DELETE FROM drumbeat.history
        WHERE id = ANY (ARRAY(SELECT old.id FROM old))
          AND finished_at >= $1
          AND finished_at < $2
       RETURNING workflow)
SELECT count(*) AS number,
       array_agg(DISTINCT pruned.workflow) FILTER (WHERE pruned.workflow IS NOT NULL) AS workflows,
       ARRAY(SELECT DISTINCT edges.parent::text FROM edges WHERE edges.binding <> '') AS bound
  FROM pruned;

-- name: prune_edges
-- The same as `prune_attempts`, of edges. A child's id tells when it was made: $1 as an id.
  WITH gone AS (
       DELETE FROM drumbeat.edge
        WHERE ctid = ANY (ARRAY(
              SELECT edge.ctid
                FROM drumbeat.edge
               WHERE edge.child < $1::text::uuid
                 AND NOT EXISTS (SELECT FROM drumbeat.job WHERE job.id = edge.child)
                 AND NOT EXISTS (SELECT FROM drumbeat.dead WHERE dead.id = edge.child)
                 AND NOT EXISTS (SELECT FROM drumbeat.history WHERE history.id = edge.child)
               LIMIT $2)))
DELETE FROM drumbeat.cancelled_child
 WHERE child < $1::text::uuid
   AND NOT EXISTS (SELECT FROM drumbeat.history WHERE history.id = cancelled_child.child);

-- name: find_unbound
-- Parents whose kept results no child binds any more. $1 as in `prune_edges`, $2 limit.
SELECT parent_result.parent::text
  FROM drumbeat.parent_result
 WHERE parent_result.parent < $1::text::uuid
   AND NOT EXISTS (SELECT FROM drumbeat.edge WHERE edge.parent = parent_result.parent AND edge.binding <> '')
 LIMIT $2;

-- name: find_empty_workflows
-- $1 before, $2 limit.
SELECT workflow.id
  FROM drumbeat.workflow
 WHERE workflow.created_at < $1
   AND NOT EXISTS (SELECT FROM drumbeat.job WHERE job.workflow = workflow.id)
   AND NOT EXISTS (SELECT FROM drumbeat.dead WHERE dead.workflow = workflow.id)
   AND NOT EXISTS (SELECT FROM drumbeat.history WHERE history.workflow = workflow.id)
 LIMIT $2;

-- name: lock_kept_results
-- Whoever adds a child holds what it binds, and its workflow, until it is stored: locked first, and looked at by a later statement.
SELECT FROM drumbeat.parent_result
 WHERE parent = ANY ($1::text[]::uuid[])
 ORDER BY parent
   FOR UPDATE;

-- name: drop_unbound
DELETE FROM drumbeat.parent_result
 WHERE parent = ANY ($1::text[]::uuid[])
   AND NOT EXISTS (SELECT FROM drumbeat.edge WHERE edge.parent = parent_result.parent AND edge.binding <> '');

-- name: lock_workflows
SELECT FROM drumbeat.workflow
 WHERE id = ANY ($1::text[])
 ORDER BY id
   FOR UPDATE;

-- name: drop_empty_workflows
DELETE FROM drumbeat.workflow
 WHERE id = ANY ($1::text[])
   AND NOT EXISTS (SELECT FROM drumbeat.job WHERE job.workflow = workflow.id)
   AND NOT EXISTS (SELECT FROM drumbeat.dead WHERE dead.workflow = workflow.id)
   AND NOT EXISTS (SELECT FROM drumbeat.history WHERE history.workflow = workflow.id);

-- name: prune_attempts
-- Attempts of jobs that were dropped with their partition.
DELETE FROM drumbeat.attempt
 WHERE ctid = ANY (ARRAY(
       SELECT attempt.ctid
         FROM drumbeat.attempt
        WHERE attempt.finished_at < $1
          AND NOT EXISTS (SELECT FROM drumbeat.job WHERE job.id = attempt.id)
          AND NOT EXISTS (SELECT FROM drumbeat.dead WHERE dead.id = attempt.id)
          AND NOT EXISTS (SELECT FROM drumbeat.history WHERE history.id = attempt.id)
        LIMIT $2));

-- name: prune_steps
-- The same of steps.
DELETE FROM drumbeat.step
 WHERE ctid = ANY (ARRAY(
       SELECT step.ctid
         FROM drumbeat.step
        WHERE step.started_at < $1
          AND NOT EXISTS (SELECT FROM drumbeat.job WHERE job.id = step.job)
          AND NOT EXISTS (SELECT FROM drumbeat.dead WHERE dead.id = step.job)
          AND NOT EXISTS (SELECT FROM drumbeat.history WHERE history.id = step.job)
        LIMIT $2));

-- name: prune_signals
-- The same of signals.
DELETE FROM drumbeat.signal
 WHERE ctid = ANY (ARRAY(
       SELECT signal.ctid
         FROM drumbeat.signal
        WHERE signal.sent_at < $1
          AND NOT EXISTS (SELECT FROM drumbeat.job WHERE job.id = signal.job)
          AND NOT EXISTS (SELECT FROM drumbeat.dead WHERE dead.id = signal.job)
          AND NOT EXISTS (SELECT FROM drumbeat.history WHERE history.id = signal.job)
        LIMIT $2));

-- name: raise_pruned_before
INSERT INTO drumbeat.meta AS meta (name, value)
VALUES ('pruned_before', $1)
    ON CONFLICT (name) DO UPDATE SET value = greatest(meta.value, excluded.value);

-- name: pause
INSERT INTO drumbeat.queue (name, paused_at, paused_by, paused_reason)
VALUES ($1, drumbeat.now_us(), $2, $3)
    ON CONFLICT (name) DO NOTHING;

-- name: resume
DELETE FROM drumbeat.queue
 WHERE name = $1
RETURNING name;
