-- Statements about workflows. What a workflow is, is read from its jobs in all three tables.

-- name: _workflow
-- Columns as in workflow_rows.WorkflowRow.
SELECT json_group_array(json_array(id, name, json(labels), created_at, cancelled_at))

-- name: get
-- include: _workflow
  FROM (SELECT workflow.*
          FROM json_each(:ids) AS wanted
         CROSS JOIN drumbeat_workflow AS workflow
         WHERE workflow.id = wanted.value);

-- name: find
-- include: _workflow
  FROM (SELECT *
          FROM drumbeat_workflow
         WHERE :before IS NULL OR id < :before
         ORDER BY id DESC
         LIMIT :limit);

-- name: find_named
-- include: _workflow
  FROM (SELECT *
          FROM drumbeat_workflow
         WHERE name = :name
           AND (:before IS NULL OR id < :before)
         ORDER BY id DESC
         LIMIT :limit);

-- name: _nodes
-- At most :limit jobs, live ones first. {{here}}: columns that all tables have, beside the state that people are told.
       SELECT *
         FROM (SELECT {{here}}, CASE WHEN state = 'pending' AND blocked_on = 'parents' THEN 'waiting' ELSE state END AS state
                 FROM drumbeat_job
                WHERE workflow = :id AND workflow IS NOT NULL
                LIMIT :limit)
        UNION ALL
       SELECT *
         FROM (SELECT {{here}}, state FROM drumbeat_dead WHERE workflow = :id AND workflow IS NOT NULL LIMIT :limit)
        UNION ALL
       SELECT *
         FROM (SELECT {{here}}, state FROM drumbeat_history WHERE workflow = :id AND workflow IS NOT NULL LIMIT :limit)
        LIMIT :limit

-- name: counts
-- [task, state, number]
SELECT json_group_array(json_array(task, state, number))
  FROM (SELECT task, state, count(*) AS number
          FROM (
-- include: _nodes with task
               )
         GROUP BY task, state);

-- name: count_nodes
SELECT count(*)
  FROM (
-- include: _nodes with id
       );

-- name: nodes
-- The first jobs by id. Columns as in core.workflow.GraphNode.
SELECT json_group_array(json_array(id, task, state, blocked_on, suspended, run_at, started_at, finished_at, failures))
  FROM (SELECT *
          FROM (SELECT *
                  FROM (SELECT id, task, state, blocked_on, CASE WHEN state = 'pending' THEN suspended END AS suspended, run_at,
                               claimed_at AS started_at, NULL AS finished_at, failures
                          FROM drumbeat_job
                         WHERE workflow = :id AND workflow IS NOT NULL
                         ORDER BY id
                         LIMIT :limit)
                 UNION ALL
                SELECT *
                  FROM (SELECT id, task, state, NULL, NULL, run_at, started_at, finished_at, failures
                          FROM drumbeat_dead
                         WHERE workflow = :id AND workflow IS NOT NULL
                         ORDER BY id
                         LIMIT :limit)
                 UNION ALL
                SELECT *
                  FROM (SELECT id, task, state, NULL, NULL, run_at, started_at, finished_at, failures
                          FROM drumbeat_history
                         WHERE workflow = :id AND workflow IS NOT NULL
                         ORDER BY id
                         LIMIT :limit))
         ORDER BY id
         LIMIT :limit);

-- name: edges
-- Columns as in core.workflow.GraphEdge.
SELECT json_group_array(json_array(parent, child, if_fails, binding))
  FROM (SELECT edge.parent, edge.child, edge.if_fails, edge.binding
          FROM json_each(:ids) AS wanted
         CROSS JOIN drumbeat_edge AS edge
         WHERE edge.child = wanted.value
         ORDER BY wanted.key, edge.place
         LIMIT :limit);

-- name: task_edges
-- Columns as in core.workflow.TaskEdge.
SELECT json_group_array(json_array(parent, child, number))
  FROM (SELECT coalesce(job.task, history.task, dead.task) AS parent, node.task AS child, count(*) AS number
          FROM (
-- include: _nodes with id, task
               ) AS node
         CROSS JOIN drumbeat_edge AS edge
          LEFT JOIN drumbeat_job AS job ON job.id = edge.parent
          LEFT JOIN drumbeat_history AS history ON history.id = edge.parent
          LEFT JOIN drumbeat_dead AS dead ON dead.id = edge.parent
         WHERE edge.child = node.id
           AND coalesce(job.task, history.task, dead.task) IS NOT NULL
         GROUP BY 1, 2
         ORDER BY 1, 2);

-- name: _first_ids
SELECT json_group_array(id)
  FROM (SELECT id
          FROM (SELECT *
                  FROM (SELECT job.id
                          FROM drumbeat_job AS job
                         WHERE job.workflow = :id AND job.workflow IS NOT NULL AND {{here}}
                         ORDER BY job.id
                         LIMIT :limit)
                 UNION ALL
                SELECT *
                  FROM (SELECT job.id
                          FROM drumbeat_dead AS job
                         WHERE job.workflow = :id AND job.workflow IS NOT NULL AND {{here}}
                         ORDER BY job.id
                         LIMIT :limit)
                 UNION ALL
                SELECT *
                  FROM (SELECT job.id
                          FROM drumbeat_history AS job
                         WHERE job.workflow = :id AND job.workflow IS NOT NULL AND {{here}}
                         ORDER BY job.id
                         LIMIT :limit))
         ORDER BY id
         LIMIT :limit)

-- name: job_ids
-- include: _first_ids with job.id > :after
;

-- name: sinks
-- include: _first_ids with NOT EXISTS (SELECT 1 FROM drumbeat_edge AS edge WHERE edge.parent = job.id)
;

-- name: mark_cancelled
UPDATE drumbeat_workflow
   SET cancelled_at = ifnull(cancelled_at, :now)
 WHERE id = :id;

-- name: of_pruned
-- The workflows of jobs that are about to be pruned.
SELECT json_group_array(workflow)
  FROM (SELECT DISTINCT history.workflow
          FROM json_each(:seqs) AS pruned
         CROSS JOIN drumbeat_history AS history
         WHERE history.seq = pruned.value
           AND history.workflow IS NOT NULL);

-- name: delete_empty
-- Those of these workflows that have no job any more.
DELETE FROM drumbeat_workflow
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND NOT EXISTS (SELECT 1 FROM drumbeat_job AS job WHERE job.workflow = drumbeat_workflow.id AND job.workflow IS NOT NULL)
   AND NOT EXISTS (SELECT 1 FROM drumbeat_dead AS dead WHERE dead.workflow = drumbeat_workflow.id AND dead.workflow IS NOT NULL)
   AND NOT EXISTS (SELECT 1
                     FROM drumbeat_history AS history
                    WHERE history.workflow = drumbeat_workflow.id
                      AND history.workflow IS NOT NULL);
