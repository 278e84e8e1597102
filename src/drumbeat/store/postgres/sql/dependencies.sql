-- Statements about dependencies between jobs. Batches arrive as arrays, ids travel as text.

-- name: advance
-- One step. Its commit need not be waited for: see the function.
SELECT advanced.is_more, advanced.earliest_due, advanced.due_ids, set_config('synchronous_commit', 'off', true)
  FROM drumbeat.advance($1) AS advanced;

-- name: exclude_advances
-- No advance runs until this transaction ends. Of `add`, at its second try: before any row is locked, as in the function
-- `advance`. Of the cancellation of a workflow, as a transaction of its own after the mark: those that have not seen it have ended.
SELECT pg_advisory_xact_lock_shared(hashtextextended('drumbeat' || '.advance', 0));

-- name: allow_pauses
-- Of a large `add`: the program has to work between the statements. $1 milliseconds.
SELECT set_config('idle_in_transaction_session_timeout', $1, true);

-- name: known
-- Those of these ids that exist. $2: none can have ended before.
SELECT job.id::text FROM drumbeat.job WHERE job.id = ANY ($1::text[]::uuid[])
 UNION ALL
SELECT dead.id::text FROM drumbeat.dead WHERE dead.id = ANY ($1::text[]::uuid[])
 UNION ALL
SELECT history.id::text
  FROM drumbeat.history
 WHERE history.id = ANY ($1::text[]::uuid[])
   AND history.finished_at >= least($2::bigint, drumbeat.now_us()) - 86400000000;

-- name: ended
-- The same of those that have ended.
SELECT dead.id::text FROM drumbeat.dead WHERE dead.id = ANY ($1::text[]::uuid[])
 UNION ALL
SELECT history.id::text
  FROM drumbeat.history
 WHERE history.id = ANY ($1::text[]::uuid[])
   AND history.finished_at >= least($2::bigint, drumbeat.now_us()) - 86400000000;

-- name: lock_live_parents
-- Columns as in dependency_rows.ParentRow, then token and instance. Nobody ends these jobs until our edges are stored; the fence
-- of a running job that adds others is one of them. FOR UPDATE: a weaker lock could let the end of a claim through.
SELECT job.id::text, job.task, job.state, job.replays, false AS is_letter, job.token, job.instance
  FROM drumbeat.job
 WHERE job.id = ANY ($1::text[]::uuid[])
 ORDER BY job.id
   FOR UPDATE;

-- name: lock_dead_parents
-- A replay or a discard waits until our edges are stored.
SELECT dead.id::text, dead.task, dead.state, dead.replays, true AS is_letter
  FROM drumbeat.dead
 WHERE dead.id = ANY ($1::text[]::uuid[])
 ORDER BY dead.id
   FOR SHARE;

-- name: lock_revivable_parents
-- So does the revival of a cancelled child.
SELECT
  FROM drumbeat.history
 WHERE history.id = ANY ($1::text[]::uuid[])
   AND history.state = 'cancelled'
   AND EXISTS (SELECT FROM drumbeat.cancelled_child WHERE cancelled_child.child = history.id)
 ORDER BY history.id
   FOR SHARE;

-- name: ended_parents
SELECT history.id::text, history.task, history.state, history.replays, false AS is_letter
  FROM drumbeat.history
 WHERE history.id = ANY ($1::text[]::uuid[]);

-- name: lock_releases
-- What is left of these parents. Columns as in dependency_rows.ReleaseRow. Locked, so that they are followed after our edges are
-- stored; without those that are being followed.
SELECT release.seq, release.parent::text, release.event, release.life, coalesce(release.after_child::text, '') AS after_child
  FROM drumbeat.release
 WHERE release.parent = ANY ($1::text[]::uuid[])
 ORDER BY release.seq
   FOR SHARE SKIP LOCKED;

-- name: count_releases
SELECT count(*)
  FROM drumbeat.release
 WHERE release.parent = ANY ($1::text[]::uuid[]);

-- name: flag_parents
UPDATE drumbeat.job
   SET is_parent = true
 WHERE id = ANY ($1::text[]::uuid[])
   AND NOT is_parent;

-- name: insert_edges
-- Columns as in dependency_rows.EdgeRow.
INSERT INTO drumbeat.edge (parent, child, place, life, if_fails, binding, argument)
SELECT * FROM unnest($1::text[]::uuid[], $2::text[]::uuid[], $3::integer[], $4::integer[], $5::text[], $6::text[], $7::text[]);

-- name: insert_cancelled
-- Columns: child, parent.
INSERT INTO drumbeat.cancelled_child (child, parent)
SELECT * FROM unnest($1::text[]::uuid[], $2::text[]::uuid[])
    ON CONFLICT (child) DO UPDATE SET parent = excluded.parent;

-- name: keep_results
SELECT drumbeat.keep_results($1::text[]::uuid[]);

-- name: recorded_step
SELECT result
  FROM drumbeat.step
 WHERE job = $1::text::uuid
   AND kind = 'step'
   AND name = $2
   AND finished_at IS NOT NULL;

-- name: insert_step
INSERT INTO drumbeat.step (job, kind, name, token, started_at, finished_at, result)
VALUES ($1::text::uuid, 'step', $2, $3, $4, $5, $6)
    ON CONFLICT DO NOTHING;

-- name: lock_used_workflows
-- Their cancellation, and their removal, wait for what is added to them.
SELECT id, cancelled_at IS NOT NULL AS cancelled
  FROM drumbeat.workflow
 WHERE id = ANY ($1::text[])
 ORDER BY id
   FOR SHARE;

-- name: exclude_namesakes
-- Only one workflow of this name is added at a time.
SELECT pg_advisory_xact_lock(hashtextextended('drumbeat' || '.workflow ' || $1, 0));

-- name: live_namesake
SELECT workflow.id
  FROM drumbeat.workflow
 WHERE workflow.name = $1
   AND (SELECT 1 FROM drumbeat.job WHERE job.workflow = workflow.id AND job.workflow IS NOT NULL LIMIT 1) IS NOT NULL
 ORDER BY workflow.id DESC
 LIMIT 1;

-- name: insert_workflow
INSERT INTO drumbeat.workflow (id, name, labels, created_at)
VALUES ($1, $2, $3, drumbeat.now_us())
    ON CONFLICT (id) DO NOTHING;

-- name: _bound
edge.parent::text, coalesce(kept.task, '') AS task, edge.binding, edge.argument, edge.place, kept.state, kept.result,
       kept.result_error, kept.error

-- name: _kept_of_edge
-- With its LIMIT it stays a seek for each edge: as a plain join it read all that is kept.
LEFT JOIN LATERAL (
       SELECT * FROM drumbeat.parent_result AS result WHERE result.parent = edge.parent LIMIT 1) AS kept
    ON true

-- name: load_results
-- The edges that bind, in order, with what is kept of their parents: child, then as in core.dependencies.ParentResult. $2 limit;
-- of 'results' the first of each argument only: the recursion seeks from one argument to the next, whatever lies between.
  WITH RECURSIVE wanted AS MATERIALIZED (
       SELECT * FROM unnest($1::text[]::uuid[]) AS wanted (child)),
       paged (child, argument) AS (
       SELECT wanted.child,
              (SELECT edge.argument FROM drumbeat.edge
                WHERE edge.child = wanted.child AND edge.binding = 'results'
                ORDER BY edge.argument LIMIT 1)
         FROM wanted
        UNION ALL
       SELECT paged.child,
              (SELECT edge.argument FROM drumbeat.edge
                WHERE edge.child = paged.child AND edge.binding = 'results' AND edge.argument > paged.argument
                ORDER BY edge.argument LIMIT 1)
         FROM paged
        WHERE paged.argument IS NOT NULL)
SELECT edge.child::text AS child,
       -- include: _bound
  FROM (SELECT single.*
          FROM wanted
         CROSS JOIN LATERAL (
               SELECT * FROM drumbeat.edge
                WHERE edge.child = wanted.child AND edge.binding IN ('result', 'outcome')
                ORDER BY edge.place LIMIT $2) AS single
         UNION ALL
        SELECT first.*
          FROM paged
         CROSS JOIN LATERAL (
               SELECT * FROM drumbeat.edge
                WHERE edge.child = paged.child AND edge.binding = 'results' AND edge.argument = paged.argument
                ORDER BY edge.place LIMIT 1) AS first) AS edge
  -- include: _kept_of_edge
 ORDER BY edge.child, edge.place;

-- name: page_results
-- $1 child, $2 argument, $3 after, $4 limit.
SELECT
       -- include: _bound
  FROM (SELECT *
          FROM drumbeat.edge
         WHERE edge.child = $1::text::uuid
           AND edge.place > $3
           AND edge.binding <> ''
           AND $2 = ANY (string_to_array(edge.argument, ' '))
         ORDER BY edge.place
         LIMIT $4) AS edge
  -- include: _kept_of_edge
 ORDER BY edge.place;

-- name: list_parents
-- Of each of these jobs: child, then as in core.dependencies.ParentLink. $2 limit. The state is null where it is pruned.
SELECT wanted.child::text AS of_job, listed.id, listed.task, listed.state, listed.if_fails, listed.binding, listed.argument,
       listed.is_open
  FROM unnest($1::text[]::uuid[]) AS wanted (child)
 CROSS JOIN LATERAL (
       SELECT edge.parent::text AS id, coalesce(found.task, '') AS task, found.state, edge.if_fails, edge.binding, edge.argument,
              edge.place,
              coalesce(child.blocked_on = 'parents', false)
              AND drumbeat.judge_edge(edge.if_fails, edge.life, found.state, found.life, found.is_letter) = 'nothing' AS is_open
         FROM drumbeat.edge
         LEFT JOIN LATERAL drumbeat.find_parent(edge.parent) AS found
           ON true
         LEFT JOIN drumbeat.job AS child
           ON child.id = edge.child
        WHERE edge.child = wanted.child
        ORDER BY is_open DESC, edge.place
        LIMIT $2) AS listed
 ORDER BY wanted.child, listed.is_open DESC, listed.place;

-- name: list_children
SELECT wanted.parent::text AS of_job, listed.id, coalesce(found.task, '') AS task, found.state, listed.if_fails, listed.binding,
       listed.argument,
       coalesce(child.blocked_on = 'parents', false)
       AND drumbeat.judge_edge(listed.if_fails, listed.life, own.state, own.life, own.is_letter) = 'nothing' AS is_open
  FROM unnest($1::text[]::uuid[]) AS wanted (parent)
  LEFT JOIN LATERAL drumbeat.find_parent(wanted.parent) AS own
    ON true
 CROSS JOIN LATERAL (
       SELECT edge.child, edge.child::text AS id, edge.if_fails, edge.binding, edge.argument, edge.life
         FROM drumbeat.edge
        WHERE edge.parent = wanted.parent
        ORDER BY edge.child
        LIMIT $2) AS listed
  LEFT JOIN LATERAL drumbeat.find_parent(listed.child) AS found
    ON true
  LEFT JOIN drumbeat.job AS child
    ON child.id = listed.child
 ORDER BY wanted.parent, listed.child;

-- name: find_miscounted
-- In one snapshot. $1 limit.
SELECT checked.id::text, checked.counted, checked.actual
  FROM (SELECT waiting.id, coalesce(waiting.open_parents, 0) AS counted,
               (SELECT count(*)::integer
                  FROM drumbeat.edge
                  LEFT JOIN LATERAL drumbeat.find_parent(edge.parent) AS found
                    ON true
                 WHERE edge.child = waiting.id
                   AND drumbeat.judge_edge(edge.if_fails, edge.life, found.state, found.life, found.is_letter) = 'nothing')
               AS actual
          FROM (SELECT job.id, job.open_parents
                  FROM drumbeat.job
                 WHERE job.state = 'pending'
                   AND job.blocked_on = 'parents'
                   AND job.blocked_on IS NOT NULL
                 LIMIT $1) AS waiting
         WHERE NOT EXISTS (SELECT FROM drumbeat.release)) AS checked
 WHERE checked.counted <> checked.actual
 ORDER BY checked.id;
