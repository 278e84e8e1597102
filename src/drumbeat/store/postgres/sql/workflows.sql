-- Statements about workflows. Their jobs are in three tables, each with an index by workflow and id.

-- name: _jobs
-- Jobs of the workflow `here`, in no order.
SELECT job.id, job.task, CASE WHEN job.blocked_on = 'parents' AND job.state = 'pending' THEN 'waiting' ELSE job.state END AS state
  FROM drumbeat.job
 WHERE job.workflow = {{here}} AND job.workflow IS NOT NULL
 UNION ALL
SELECT dead.id, dead.task, dead.state
  FROM drumbeat.dead
 WHERE dead.workflow = {{here}} AND dead.workflow IS NOT NULL
 UNION ALL
SELECT history.id, history.task, history.state
  FROM drumbeat.history
 WHERE history.workflow = {{here}} AND history.workflow IS NOT NULL

-- name: _with_counts
-- id, name, labels, created_at, cancelled_at, states and counts, whether there are more jobs than $1.
SELECT workflow.id, workflow.name, workflow.labels, workflow.created_at, workflow.cancelled_at, counted.states, counted.counts,
       coalesce(counted.number > $1, false) AS capped
  FROM (SELECT *
          FROM drumbeat.workflow
{{here}}) AS workflow
 CROSS JOIN LATERAL (
       SELECT array_agg(grouped.state) AS states, array_agg(grouped.counted) AS counts, sum(grouped.number) AS number
         FROM (SELECT listed.state, count(*) FILTER (WHERE listed.place <= $1) AS counted, count(*) AS number
                 FROM (SELECT jobs.state, row_number() OVER () AS place
                         FROM (
-- include: _jobs with workflow.id
                              ) AS jobs
                        LIMIT $1 + 1) AS listed
                GROUP BY listed.state) AS grouped) AS counted

-- name: get
-- $1 jobs to count of each, $2 ids.
-- include: _with_counts with WHERE id = ANY ($2::text[])
;

-- name: find
-- $1 as above, $2 name or null, $3 before or null, $4 limit.
-- include: _with_counts with WHERE ($2::text IS NULL OR name = $2) AND ($3::text IS NULL OR id < $3) ORDER BY id DESC LIMIT $4
 ORDER BY workflow.id DESC;

-- name: exists
SELECT EXISTS (SELECT FROM drumbeat.workflow WHERE id = $1);

-- name: nodes
-- Columns as in core.workflow.GraphNode. $1 workflow, $2 limit.
SELECT node.id::text, node.task, node.state, node.blocked_on, node.suspended, node.run_at, node.started_at, node.finished_at,
       node.failures
  FROM ((SELECT job.id, job.task, job.state, job.blocked_on, CASE WHEN job.state = 'pending' THEN job.suspended END AS suspended,
                job.run_at, job.claimed_at AS started_at, NULL::bigint AS finished_at, job.failures
           FROM drumbeat.job
          WHERE job.workflow = $1 AND job.workflow IS NOT NULL
          ORDER BY job.id
          LIMIT $2)
         UNION ALL
        (SELECT dead.id, dead.task, dead.state, NULL, NULL, dead.run_at, dead.started_at, dead.finished_at, dead.failures
           FROM drumbeat.dead
          WHERE dead.workflow = $1 AND dead.workflow IS NOT NULL
          ORDER BY dead.id
          LIMIT $2)
         UNION ALL
        (SELECT history.id, history.task, history.state, NULL, NULL, history.run_at, history.started_at, history.finished_at,
                history.failures
           FROM drumbeat.history
          WHERE history.workflow = $1 AND history.workflow IS NOT NULL
          ORDER BY history.id
          LIMIT $2)) AS node
 ORDER BY node.id
 LIMIT $2;

-- name: edges
-- Columns as in core.workflow.GraphEdge. $1 children.
SELECT edge.parent::text, edge.child::text, edge.if_fails, edge.binding
  FROM drumbeat.edge
 WHERE edge.child = ANY ($1::text[]::uuid[])
 ORDER BY edge.child, edge.place;

-- name: tasks
-- At most $2 jobs by task and state, and number: how many of one more there are. $1 workflow.
SELECT jobs.task, jobs.state, count(*) FILTER (WHERE jobs.place <= $2) AS counted, count(*) AS number
  FROM (SELECT listed.task, listed.state, row_number() OVER () AS place
          FROM (
-- include: _jobs with $1
               ) AS listed
         LIMIT $2 + 1) AS jobs
 GROUP BY jobs.task, jobs.state
 ORDER BY jobs.task, jobs.state;

-- name: task_edges
-- Edges by the tasks of parent and child. $1 workflow.
  WITH jobs AS MATERIALIZED (
-- include: _jobs with $1
       )
SELECT coalesce(parent.task, (SELECT found.task FROM drumbeat.find_parent(edge.parent) AS found), '') AS parent,
       child.task AS child, count(*) AS number
  FROM jobs AS child
  JOIN drumbeat.edge
    ON edge.child = child.id
  LEFT JOIN jobs AS parent
    ON parent.id = edge.parent
 GROUP BY 1, 2
 ORDER BY 1, 2;

-- name: list_job_ids
-- $1 workflow, $2 after or null, $3 limit.
SELECT listed.id::text
  FROM ((SELECT job.id
           FROM drumbeat.job
          WHERE job.workflow = $1 AND job.workflow IS NOT NULL AND ($2::text IS NULL OR job.id > $2::uuid)
          ORDER BY job.id
          LIMIT $3)
         UNION ALL
        (SELECT dead.id
           FROM drumbeat.dead
          WHERE dead.workflow = $1 AND dead.workflow IS NOT NULL AND ($2::text IS NULL OR dead.id > $2::uuid)
          ORDER BY dead.id
          LIMIT $3)
         UNION ALL
        (SELECT history.id
           FROM drumbeat.history
          WHERE history.workflow = $1 AND history.workflow IS NOT NULL AND ($2::text IS NULL OR history.id > $2::uuid)
          ORDER BY history.id
          LIMIT $3)) AS listed
 ORDER BY listed.id
 LIMIT $3;

-- name: list_sinks
-- $1 workflow, $2 limit.
SELECT jobs.id::text
  FROM (
-- include: _jobs with $1
       ) AS jobs
 WHERE NOT EXISTS (SELECT FROM drumbeat.edge WHERE edge.parent = jobs.id)
 ORDER BY jobs.id
 LIMIT $2;

-- name: mark_cancelled
UPDATE drumbeat.workflow
   SET cancelled_at = coalesce(cancelled_at, drumbeat.now_us())
 WHERE id = $1
RETURNING id;
