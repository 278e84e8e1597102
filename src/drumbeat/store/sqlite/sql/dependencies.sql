-- Statements about dependencies between jobs. Batches arrive and leave as one JSON text, or as the rows of one VALUES (insert.sql).

-- name: recorded_step
SELECT result
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
-- What is left of these parents: nearly always there are no releases at all. Columns as in dependency_rows.ReleaseRow.
SELECT json_group_array(json_array(release.seq, release.parent, release.event, release.life, release.after_child))
  FROM drumbeat_release AS release
 WHERE release.parent IN (SELECT value FROM json_each(:ids));

-- name: flag_parents
-- :flag 1, or 2 if a child binds their results.
UPDATE drumbeat_job
   SET is_parent = :flag
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND is_parent < :flag;

-- name: insert_edges
-- ?1 life, ?2 if_fails, ?3 binding, ?4 argument. Columns of a row: parent, child, place.
INSERT INTO drumbeat_edge (life, if_fails, binding, argument, parent, child, place)
SELECT ?1, ?2, ?3, ?4, column1, column2, column3
  FROM (VALUES (?, ?, ?))
 WHERE column1 <> -1;

-- name: _keep
INSERT OR REPLACE INTO drumbeat_parent_result (parent, task, state, result, result_error, error)
SELECT ended.id, ended.task, ended.state, ended.result, ended.result_error, ended.error

-- name: keep_pruned
-- Of jobs that are about to be pruned, what a child binds.
-- include: _keep
  FROM json_each(:seqs) AS wanted
 CROSS JOIN drumbeat_history AS ended
 WHERE ended.seq = wanted.value
   -- include: _is_bound

-- name: keep_revived
-- The same of cancelled jobs that are about to live again.
-- include: _keep
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_history AS ended
 WHERE ended.id = wanted.value
   -- include: _is_bound

-- name: keep_replayed
-- The same of dead letters.
-- include: _keep
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_dead AS ended
 WHERE ended.id = wanted.value
   -- include: _is_bound

-- name: _is_bound
   AND EXISTS (SELECT 1
                 FROM drumbeat_edge AS edge INDEXED BY drumbeat_edge_bound
                WHERE edge.parent = ended.id
                  AND edge.binding <> '');

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
       -- include: _is_parent with history.id
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

-- name: _bound
SELECT json_group_array(json_array(child, parent, task, binding, argument, place, state, result, result_error, error))
  FROM (SELECT edge.child, edge.parent, coalesce(kept.task, ended.task, dead.task, '') AS task, edge.binding, edge.argument, edge.place,
               coalesce(kept.state, ended.state, dead.state) AS state, coalesce(kept.result, ended.result, dead.result) AS result,
               coalesce(kept.result_error, ended.result_error, dead.result_error) AS result_error,
               coalesce(kept.error, ended.error, dead.error) AS error

-- name: _ends
-- How the parents of edges ended.
          LEFT JOIN drumbeat_parent_result AS kept
            ON kept.parent = edge.parent
          LEFT JOIN drumbeat_history AS ended
            ON ended.id = edge.parent
           AND kept.parent IS NULL
          LEFT JOIN drumbeat_dead AS dead
            ON dead.id = edge.parent
           AND kept.parent IS NULL
           AND ended.id IS NULL

-- name: single_results
-- What these children get of one parent each. Columns as in dependency_rows.BoundRow.
-- include: _bound
          FROM json_each(:ids) AS wanted
         CROSS JOIN drumbeat_edge AS edge INDEXED BY drumbeat_edge_single
          -- include: _ends
         WHERE edge.child = wanted.value
           AND edge.binding IN ('result', 'outcome')
         ORDER BY wanted.key, edge.place);

-- name: first_results
-- The first parent of each argument that is read in pages. The recursion seeks from one argument to the next.
  WITH RECURSIVE paged (child, argument) AS (
       SELECT wanted.value, (SELECT min(argument)
                               FROM drumbeat_edge INDEXED BY drumbeat_edge_paged
                              WHERE child = wanted.value AND binding = 'results')
         FROM json_each(:ids) AS wanted
        UNION
       SELECT child, (SELECT min(edge.argument)
                        FROM drumbeat_edge AS edge INDEXED BY drumbeat_edge_paged
                       WHERE edge.child = paged.child AND edge.argument > paged.argument AND edge.binding = 'results')
         FROM paged
        WHERE paged.argument IS NOT NULL)
-- include: _bound
          FROM paged
         CROSS JOIN drumbeat_edge AS edge INDEXED BY drumbeat_edge_paged
          -- include: _ends
         WHERE edge.child = paged.child
           AND edge.argument = paged.argument
           AND edge.binding = 'results'
           AND edge.place = (SELECT min(first.place)
                               FROM drumbeat_edge AS first INDEXED BY drumbeat_edge_paged
                              WHERE first.child = paged.child AND first.argument = paged.argument AND first.binding = 'results'));

-- name: page_of_results
-- include: _bound
          FROM drumbeat_edge AS edge INDEXED BY drumbeat_edge_paged
          -- include: _ends
         WHERE edge.child = :child
           AND edge.argument = :argument
           AND edge.binding = 'results'
           AND edge.place > :after
         ORDER BY edge.place
         LIMIT :limit);

-- name: _links
-- Columns as in dependency_rows.LinkRow.
SELECT json_group_array(json_array(parent, parent_task, parent_state, replays, is_letter, child, child_task, child_state, is_waiting,
                                   if_fails, life, binding, argument, place))
  FROM (SELECT edge.parent, coalesce(job.task, history.task, dead.task, '') AS parent_task,
               coalesce(job.state, history.state, dead.state) AS parent_state,
               coalesce(job.replays, history.replays, dead.replays, 0) AS replays, dead.id IS NOT NULL AS is_letter,
               edge.child, coalesce(live.task, ended.task, letter.task, '') AS child_task,
               coalesce(live.state, ended.state, letter.state) AS child_state,
               ifnull(live.state = 'pending' AND live.blocked_on = 'parents', 0) AS is_waiting,
               edge.if_fails, edge.life, edge.binding, edge.argument, edge.place
          FROM (SELECT {{here}}) AS edge
          LEFT JOIN drumbeat_job AS job ON job.id = edge.parent
          LEFT JOIN drumbeat_history AS history ON history.id = edge.parent
          LEFT JOIN drumbeat_dead AS dead ON dead.id = edge.parent
          LEFT JOIN drumbeat_job AS live ON live.id = edge.child
          LEFT JOIN drumbeat_history AS ended ON ended.id = edge.child
          LEFT JOIN drumbeat_dead AS letter ON letter.id = edge.child)

-- name: links_to_live
-- The first parents of a job that are live ...
-- include: _links with edge.* FROM drumbeat_edge AS edge CROSS JOIN drumbeat_job AS live WHERE edge.child = :id AND live.id = edge.parent ORDER BY edge.place LIMIT :limit
;

-- name: links_to_letters
-- ... or dead letters for whose replay it waits,
-- include: _links with edge.* FROM drumbeat_edge AS edge CROSS JOIN drumbeat_dead AS dead WHERE edge.child = :id AND edge.if_fails = 'wait' AND dead.id = edge.parent ORDER BY edge.place LIMIT :limit
;

-- name: links_to_parents
-- and the first of all.
-- include: _links with * FROM drumbeat_edge WHERE child = :id ORDER BY place LIMIT :limit
;

-- name: links_to_children
-- include: _links with * FROM drumbeat_edge WHERE parent = :id ORDER BY child LIMIT :limit
;

-- name: parents_of_waiting
-- What some waiting jobs count, and their edges by what the parents are. Columns as in dependency_rows.CountedRow.
SELECT json_group_array(json_array(id, open_parents, if_fails, life, state, replays, is_letter, number))
  FROM (SELECT waiting.id, waiting.open_parents, edge.if_fails, edge.life, coalesce(job.state, history.state, dead.state) AS state,
               coalesce(job.replays, history.replays, dead.replays) AS replays, dead.id IS NOT NULL AS is_letter,
               count(edge.parent) AS number
          FROM (SELECT id, open_parents
                  FROM drumbeat_job INDEXED BY drumbeat_job_blocked
                 WHERE blocked_on = 'parents'
                   AND blocked_on IS NOT NULL
                 LIMIT :limit) AS waiting
          LEFT JOIN drumbeat_edge AS edge ON edge.child = waiting.id
          LEFT JOIN drumbeat_job AS job ON job.id = edge.parent
          LEFT JOIN drumbeat_history AS history ON history.id = edge.parent
          LEFT JOIN drumbeat_dead AS dead ON dead.id = edge.parent
         GROUP BY 1, 2, 3, 4, 5, 6, 7);

-- name: pruned_edges
-- Edges of children that are about to be pruned: [parent, child, whether it binds something].
SELECT json_group_array(json_array(parent, child, binds))
  FROM (SELECT edge.parent, edge.child, edge.binding <> '' AS binds
          FROM json_each(:seqs) AS pruned
         CROSS JOIN drumbeat_history AS history
         CROSS JOIN drumbeat_edge AS edge
         WHERE history.seq = pruned.value
           AND edge.child = history.id
         LIMIT :limit);

-- name: delete_edges
DELETE FROM drumbeat_edge
 WHERE (parent, child) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:edges));

-- name: delete_results
-- Kept results that no edge binds any more, of the parents of these edges.
DELETE FROM drumbeat_parent_result
 WHERE parent IN (SELECT json_extract(value, '$[0]') FROM json_each(:edges) WHERE json_extract(value, '$[2]'))
   AND NOT EXISTS (SELECT 1
                     FROM drumbeat_edge AS edge INDEXED BY drumbeat_edge_bound
                    WHERE edge.parent = drumbeat_parent_result.parent
                      AND edge.binding <> '');

-- name: delete_cancelled_children
DELETE FROM drumbeat_cancelled_child
 WHERE child IN (SELECT history.id
                   FROM json_each(:seqs) AS pruned
                  CROSS JOIN drumbeat_history AS history
                  WHERE history.seq = pruned.value);
