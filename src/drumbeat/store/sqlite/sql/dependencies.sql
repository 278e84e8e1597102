-- Statements about dependencies between jobs. Batches arrive and leave as one JSON text, or as the rows of one VALUES (insert.sql).

-- name: recorded_step
-- The result on record of a step: [result], or nothing.
SELECT json_group_array(result)
  FROM drumbeat_step
 WHERE job = :job
   AND kind = 'step'
   AND name = :name
   AND finished_at IS NOT NULL;

-- name: workflows
-- Those of these workflows that exist: [id, whether it was cancelled].
SELECT json_group_array(json_array(workflow.id, workflow.cancelled_at IS NOT NULL))
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_workflow AS workflow
 WHERE workflow.id = wanted.value;

-- name: live_namesake
-- A workflow of this name with a live job.
SELECT workflow.id
  FROM drumbeat_workflow AS workflow
 WHERE workflow.name = :name
   AND EXISTS (SELECT 1 FROM drumbeat_job AS job WHERE job.workflow = workflow.id AND job.workflow IS NOT NULL)
 ORDER BY workflow.id DESC
 LIMIT 1;

-- name: insert_workflow
INSERT INTO drumbeat_workflow (id, name, labels, created_at)
VALUES (:id, :name, :labels, :now)
    ON CONFLICT (id) DO NOTHING;

-- name: parents
-- These jobs, wherever they are. Columns as in dependency_rows.ParentRow.
SELECT json_group_array(json_array(id, task, state, replays, is_letter))
  FROM (SELECT job.id, job.task, job.state, job.replays, 0 AS is_letter
          FROM json_each(:ids) AS wanted
         CROSS JOIN drumbeat_job AS job
         WHERE job.id = wanted.value
         UNION ALL
        SELECT history.id, history.task, history.state, history.replays, 0
          FROM json_each(:ids) AS wanted
         CROSS JOIN drumbeat_history AS history
         WHERE history.id = wanted.value
         UNION ALL
        SELECT dead.id, dead.task, dead.state, dead.replays, 1
          FROM json_each(:ids) AS wanted
         CROSS JOIN drumbeat_dead AS dead
         WHERE dead.id = wanted.value);

-- name: releases_of
-- What is left of these parents. Columns as in dependency_rows.ReleaseRow.
SELECT json_group_array(json_array(release.seq, release.parent, release.event, release.life, release.after_child))
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_release AS release
 WHERE release.parent = wanted.value;

-- name: flag_parents
UPDATE drumbeat_job
   SET is_parent = 1
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND NOT is_parent;

-- name: insert_edges
-- ?1 life, ?2 if_fails, ?3 binding, ?4 argument. Columns of a row: parent, child, place.
INSERT INTO drumbeat_edge (life, if_fails, binding, argument, parent, child, place)
SELECT ?1, ?2, ?3, ?4, column1, column2, column3
  FROM (VALUES (?, ?, ?))
 WHERE column1 <> -1;

-- name: keep_results
-- Of parents that ended before a child bound their result.
INSERT OR REPLACE INTO drumbeat_parent_result (parent, task, state, result, result_error, error)
SELECT ended.id, ended.task, ended.state, ended.result, ended.result_error, ended.error
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_history AS ended
 WHERE ended.id = wanted.value
 UNION ALL
SELECT ended.id, ended.task, ended.state, ended.result, ended.result_error, ended.error
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_dead AS ended
 WHERE ended.id = wanted.value;

-- name: to_follow
-- The oldest releases with the edges that are to be followed. Columns as in dependency_rows.FollowedRow.
SELECT json_group_array(json_array(seq, parent, event, life, child, if_fails, edge_life))
  FROM (SELECT release.seq, release.parent, release.event, release.life, edge.child, edge.if_fails, edge.life AS edge_life
          FROM drumbeat_release AS release
          LEFT JOIN drumbeat_edge AS edge
            ON edge.parent = release.parent
           AND edge.child > release.after_child
         ORDER BY release.seq, edge.child
         LIMIT :limit);

-- name: set_followed
-- The first `count` edges of a release were followed.
UPDATE drumbeat_release
   SET after_child = (SELECT edge.child
                        FROM drumbeat_edge AS edge
                       WHERE edge.parent = drumbeat_release.parent
                         AND edge.child > drumbeat_release.after_child
                       ORDER BY edge.child
                       LIMIT 1
                      OFFSET :count - 1)
 WHERE seq = :seq;

-- name: delete_releases
DELETE FROM drumbeat_release
 WHERE seq <= :seq;

-- name: meet
-- ?1 now. Columns of a row: child, how many of its parents have ended.
UPDATE drumbeat_job
   SET open_parents = max(open_parents - met.column2, 0),
       blocked_on = CASE WHEN open_parents > met.column2 THEN blocked_on END,
       run_at = CASE WHEN open_parents > met.column2 THEN run_at ELSE max(run_at, ?1) END
  FROM (VALUES (?, ?)) AS met
 WHERE drumbeat_job.id = met.column1
   AND drumbeat_job.state = 'pending'
   AND drumbeat_job.blocked_on = 'parents';

-- name: met
-- Of jobs without open parents: [when the first is due, those whose workflow was cancelled].
SELECT json_array(min(job.run_at), json_group_array(job.id) FILTER (WHERE workflow.cancelled_at IS NOT NULL))
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_job AS job
  LEFT JOIN drumbeat_workflow AS workflow
    ON workflow.id = job.workflow
 WHERE job.id = wanted.value
   AND job.state = 'pending'
   AND job.open_parents = 0
   AND job.blocked_on IS NULL;

-- name: cancel_children
-- Move pending jobs to history. ?1 now. Columns of a row: id, error.
INSERT INTO drumbeat_history ({{history}}, seq)
SELECT {{history from job, state = 'cancelled', outcome = NULL, instance = NULL, started_at = NULL, finished_at = ?1,
         cancel_requested = 0, result = NULL, result_error = NULL, error = failed.column2}}, NULL
  FROM (VALUES (?, ?)) AS failed
 CROSS JOIN drumbeat_job AS job
 WHERE typeof(failed.column1) = 'text'
   AND job.id = failed.column1
   AND job.state = 'pending'
   AND (job.blocked_on = 'parents' OR job.open_parents = 0)
    ON CONFLICT (id) DO NOTHING;

-- name: insert_cancelled_children
-- Columns of a row: child, parent. Of those that are in history and were just cancelled: rows after ?1.
INSERT OR REPLACE INTO drumbeat_cancelled_child (child, parent)
SELECT failed.column1, failed.column2
  FROM (VALUES (?, ?)) AS failed
 CROSS JOIN drumbeat_history AS history
 WHERE history.id = failed.column1
   AND history.seq > ?1;

-- name: replace_cancelled_children
-- Columns of a row: child, parent.
UPDATE drumbeat_cancelled_child
   SET parent = held.column2
  FROM (VALUES (?, ?)) AS held
 WHERE drumbeat_cancelled_child.child = held.column1;

-- name: cancelled_children
-- Those of these [child, parent] that the parent's failure cancelled: [id, task, key, unique, whether its workflow was cancelled].
SELECT json_group_array(json_array(history.id, history.task, history.key, history."unique", workflow.cancelled_at IS NOT NULL))
  FROM json_each(:pairs) AS wanted
 CROSS JOIN drumbeat_cancelled_child AS known
 CROSS JOIN drumbeat_history AS history
  LEFT JOIN drumbeat_workflow AS workflow
    ON workflow.id = history.workflow
 WHERE known.child = json_extract(wanted.value, '$[0]')
   AND known.parent = json_extract(wanted.value, '$[1]')
   AND history.id = known.child
   AND history.state = 'cancelled';

-- name: edges_of_children
-- Edges with what is known of the parents. Columns as in dependency_rows.JudgedRow.
SELECT json_group_array(json_array(child, parent, if_fails, life, state, replays, is_letter))
  FROM (SELECT edge.child, edge.parent, edge.if_fails, edge.life, coalesce(job.state, history.state, dead.state) AS state,
               coalesce(job.replays, history.replays, dead.replays) AS replays, dead.id IS NOT NULL AS is_letter
          FROM json_each(:ids) AS wanted
         CROSS JOIN drumbeat_edge AS edge
          LEFT JOIN drumbeat_job AS job
            ON job.id = edge.parent
          LEFT JOIN drumbeat_history AS history
            ON history.id = edge.parent
          LEFT JOIN drumbeat_dead AS dead
            ON dead.id = edge.parent
         WHERE edge.child = wanted.value
         ORDER BY edge.child, edge.place);

-- name: revive
-- As `replay`, from history. ?1 now. Columns of a row: id, open_parents.
INSERT INTO drumbeat_job ({{given}}, created_at, due_at, run_at, token, replays, schedule, expires_at, open_parents, blocked_on,
                          is_parent, binds)
SELECT {{given from history}}, history.created_at, history.due_at,
       CASE WHEN revived.column2 > 0 THEN history.run_at ELSE max(history.run_at, ?1) END, history.token, history.replays + 1,
       history.schedule, history.expires_at, revived.column2, CASE WHEN revived.column2 > 0 THEN 'parents' END,
       EXISTS (SELECT 1 FROM drumbeat_edge WHERE parent = history.id),
       EXISTS (SELECT 1 FROM drumbeat_edge WHERE child = history.id AND binding <> '')
  FROM (VALUES (?, ?)) AS revived
 CROSS JOIN drumbeat_history AS history
 WHERE typeof(revived.column1) = 'text'
   AND history.id = revived.column1;

-- name: delete_revived
DELETE FROM drumbeat_history
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: forget_cancelled
DELETE FROM drumbeat_cancelled_child
 WHERE child IN (SELECT value FROM json_each(:ids));

-- name: leave_discarded
-- Before dead letters are discarded: releases of those that have children.
INSERT INTO drumbeat_release (parent, event, life)
SELECT dead.id, 'discarded', dead.replays
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_dead AS dead
 WHERE dead.id = wanted.value
   AND EXISTS (SELECT 1 FROM drumbeat_edge WHERE parent = dead.id);

-- name: leave_revived
-- Releases of revived jobs that have children.
INSERT INTO drumbeat_release (parent, event, life)
SELECT job.id, 'replayed', job.replays
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_job AS job
 WHERE job.id = wanted.value
   AND job.is_parent;
