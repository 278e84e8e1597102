-- Statements about lines and lanes: core/limits.py, core/lanes.py. Batches arrive and leave as one JSON text, as in claim.sql.

-- name: has_lines
SELECT EXISTS (SELECT 1 FROM drumbeat_line);

-- name: lines_of_queue
-- Rows as core.lanes.LineState.
SELECT json_group_array(json_array(name, json(policy), running, json(starts)))
  FROM drumbeat_line
 WHERE queue = :queue
   AND NOT EXISTS (SELECT 1 FROM drumbeat_queue WHERE name = :queue)
   AND (:instance IS NULL OR EXISTS (SELECT 1 FROM drumbeat_instance WHERE id = :instance AND state = 'alive'));

-- name: _lane
json_array(name, running, head_at, turn_at, open_at, json(starts), credit, levels, concurrency, json(own_bounds), own_weight)

-- name: ready_lanes
-- Rows as core.lanes.LaneState, those that have waited longest first.
SELECT json_group_array(
       -- include: _lane
       )
  FROM (SELECT *
          FROM drumbeat_lane
         WHERE queue = :queue
           AND line = :line
           AND ready_at <= :now
           AND ready_at IS NOT NULL
         ORDER BY ready_at
         LIMIT :limit);

-- name: next_ready
SELECT min(ready_at)
  FROM drumbeat_lane
 WHERE queue = :queue
   AND line = :line
   AND ready_at IS NOT NULL;

-- name: has_ready_lane
SELECT EXISTS (SELECT 1
                 FROM drumbeat_line AS line
                WHERE EXISTS (SELECT 1
                                FROM drumbeat_lane AS lane
                               WHERE lane.queue = line.queue
                                 AND lane.line = line.name
                                 AND lane.ready_at <= :now
                                 AND lane.ready_at IS NOT NULL));

-- name: jobs_of_lanes
-- The first pending jobs of each of these [lane, priority]: [[seq, run_at], ...] for each.
SELECT json_group_array(json((SELECT json_group_array(json_array(seq, run_at))
                                FROM (SELECT job.seq, job.run_at
                                        FROM drumbeat_job AS job
                                       WHERE job.queue = :queue
                                         AND job.lane = json_extract(wanted.value, '$[0]')
                                         AND job.priority = json_extract(wanted.value, '$[1]')
                                         AND job.run_at < 9e18
                                         AND job.state = 'pending'
                                         AND job.blocked_on IS NULL
                                       ORDER BY job.run_at, job.id
                                       LIMIT :limit))))
  FROM json_each(:wanted) AS wanted;

-- name: heads_in_order
-- Of each of these lanes with an order the first two jobs: [[seq, run_at], ...].
SELECT json_group_array(json((SELECT json_group_array(json_array(seq, run_at))
                                FROM (SELECT job.seq, job.run_at
                                        FROM drumbeat_job AS job
                                       WHERE job.queue = :queue
                                         AND job.lane = wanted.value
                                         AND job.place IS NOT NULL
                                         AND job.state = 'pending'
                                         AND job.blocked_on IS NULL
                                       ORDER BY job.place, job.id
                                       LIMIT 2))))
  FROM json_each(:wanted) AS wanted;

-- name: first_due_in_order
-- Of each of these lanes: [[seq, run_at]] of the first job in order that is due, else of the one that is due first.
SELECT json_group_array(json(coalesce(
           (SELECT json_array(json_array(job.seq, job.run_at))
              FROM drumbeat_job AS job
             WHERE job.queue = :queue
               AND job.lane = wanted.value
               AND job.run_at <= :now
               AND job.place IS NOT NULL
               AND job.state = 'pending'
               AND job.blocked_on IS NULL
             ORDER BY job.place, job.id
             LIMIT 1),
           (SELECT json_array(json_array(job.seq, job.run_at))
              FROM drumbeat_job AS job
             WHERE job.queue = :queue
               AND job.lane = wanted.value
               AND job.run_at < 9e18
               AND job.place IS NOT NULL
               AND job.state = 'pending'
               AND job.blocked_on IS NULL
             ORDER BY job.run_at
             LIMIT 1),
           '[]')))
  FROM json_each(:wanted) AS wanted;

-- name: settle_lanes
-- ?1 queue, ?2 now. Columns of a row: name, running, head_at, turn_at, open_at, starts, credit, levels, concurrency.
UPDATE drumbeat_lane
   SET running = changed.column2,
       head_at = nullif(changed.column3, -1),
       turn_at = changed.column4,
       open_at = changed.column5,
       starts = changed.column6,
       credit = changed.column7,
       levels = changed.column8,
       concurrency = changed.column9,
       used_at = changed.now
  FROM (SELECT ?1 AS queue, ?2 AS now, given.* FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)) AS given) AS changed
 WHERE drumbeat_lane.queue = changed.queue
   AND drumbeat_lane.name = changed.column1
   AND changed.column1 <> -1;

-- name: start_line
UPDATE drumbeat_line
   SET running = :running,
       starts = :starts
 WHERE queue = :queue
   AND name = :name;

-- name: enter_lanes
-- These jobs are new, or live again.
INSERT INTO drumbeat_lane (queue, name, line, head_at, levels, used_at)
SELECT job.queue, job.lane, substr(job.lane, 1, instr(job.lane, ' ') - 1), min(job.run_at), sum(DISTINCT 1 << job.priority), :now
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_job AS job
 WHERE job.id = wanted.value
   AND job.lane <> ''
   AND job.state = 'pending'
   AND job.blocked_on IS NULL
 GROUP BY job.queue, job.lane
    ON CONFLICT (queue, name) DO UPDATE SET head_at = min(ifnull(head_at, excluded.head_at), excluded.head_at),
                                            levels = levels | excluded.levels;

-- name: enter_new_lanes
-- ?1 now. Columns of a row: queue, name, line, when its first job is due, the levels of its jobs.
INSERT INTO drumbeat_lane (queue, name, line, head_at, levels, used_at)
SELECT column1, column2, column3, column4, column5, ?1
  FROM (VALUES (?, ?, ?, ?, ?))
 WHERE column1 <> -1
    ON CONFLICT (queue, name) DO UPDATE SET head_at = min(ifnull(head_at, excluded.head_at), excluded.head_at),
                                            levels = levels | excluded.levels;

-- name: ordered_lines
SELECT json_group_array(json_array(queue, name))
  FROM drumbeat_line
 WHERE "order" <> '';

-- name: set_places
-- Jobs of lanes whose jobs run in the order of enqueue get their place in it.
UPDATE drumbeat_job
   SET place = :now
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND place IS NULL
   AND lane <> ''
   AND EXISTS (SELECT 1
                 FROM drumbeat_line AS line
                WHERE line.queue = drumbeat_job.queue
                  AND line.name = substr(drumbeat_job.lane, 1, instr(drumbeat_job.lane, ' ') - 1)
                  AND line."order" <> '');

-- name: place_moved
-- Jobs that have moved to another lane get their place in its order, if it has one.
UPDATE drumbeat_job
   SET place = CASE WHEN EXISTS (SELECT 1
                                   FROM drumbeat_line AS line
                                  WHERE line.queue = drumbeat_job.queue
                                    AND line.name = substr(drumbeat_job.lane, 1, instr(drumbeat_job.lane, ' ') - 1)
                                    AND line."order" <> '')
                    THEN ifnull(place, created_at) END
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: line
-- [declared, version, override, policy]
SELECT json_array(json(declared), version, json(override), json(policy))
  FROM drumbeat_line
 WHERE queue = :queue
   AND name = :name;

-- name: declare_line
INSERT INTO drumbeat_line (queue, name, policy, declared, version, declared_at)
VALUES (:queue, :name, :policy, :declared, :version, :now)
    ON CONFLICT (queue, name) DO UPDATE SET declared = excluded.declared,
                                            version = excluded.version,
                                            declared_at = excluded.declared_at;

-- name: change_line
UPDATE drumbeat_line
   SET override = :override,
       changed_at = :now,
       changed_by = :by,
       reason = :reason
 WHERE queue = :queue
   AND name = :name;

-- name: set_policy
-- What holds from now on. What runs is counted anew: until now it may not have been.
UPDATE drumbeat_line
   SET policy = :policy,
       revision = revision + 1,
       "order" = :order,
       is_limited = :is_limited,
       running = CASE WHEN :is_limited
                      THEN (SELECT count(*)
                              FROM drumbeat_job AS job INDEXED BY drumbeat_job_of_instance
                             WHERE job.state = 'running'
                               AND job.queue = :queue
                               AND job.lane <> ''
                               AND (:name = '' OR substr(job.lane, 1, instr(job.lane, ' ') - 1) = :name))
                      ELSE 0 END,
       starts = CASE WHEN :is_limited THEN starts ELSE '[]' END
 WHERE queue = :queue
   AND name = :name;

-- name: order_line
-- The pending jobs of a line get a place in its order.
UPDATE drumbeat_job
   SET place = created_at
 WHERE queue = :queue
   AND lane >= :name || ' '
   AND lane < :name || '!'
   AND place IS NULL;

-- name: unorder_line
UPDATE drumbeat_job
   SET place = NULL
 WHERE queue = :queue
   AND lane >= :name || ' '
   AND lane < :name || '!'
   AND place IS NOT NULL;

-- name: untold_lines
-- Lines whose lanes are still to be told of the policy that holds: [queue, name, revision].
SELECT json_group_array(json_array(queue, name, revision))
  FROM drumbeat_line
 WHERE told < revision;

-- name: set_told
UPDATE drumbeat_line
   SET told = max(told, :revision)
 WHERE queue = :queue
   AND name = :name;

-- name: tell_lanes
-- Let these lanes of a line stand under its policy, and be looked at: whoever was held by another order may be next.
UPDATE drumbeat_lane
   SET concurrency = ifnull(json_extract(own_bounds, '$[0]'), CASE WHEN own_bounds IS NULL THEN :concurrency ELSE 2147483647 END),
       open_at = 0,
       head_at = min(head_at, :now),
       turn_at = CASE WHEN :fair THEN turn_at ELSE 0 END
 WHERE queue = :queue
   AND line = :name
   AND name IN (SELECT value FROM json_each(:names));

-- name: lane_names
SELECT json_group_array(name)
  FROM (SELECT name
          FROM drumbeat_lane
         WHERE queue = :queue
           AND line = :name
           AND name > :after
         ORDER BY name
         LIMIT :limit);

-- name: change_group
INSERT INTO drumbeat_lane (queue, name, line, own_bounds, own_weight, concurrency, used_at)
VALUES (:queue, :lane, :name, :bounds, :weight, :concurrency, :now)
    ON CONFLICT (queue, name) DO UPDATE SET own_bounds = excluded.own_bounds,
                                            own_weight = excluded.own_weight,
                                            concurrency = excluded.concurrency,
                                            credit = 0,
                                            open_at = 0;

-- name: lines
-- [queue, name, policy, declared, override, changed_at, changed_by, reason, running, starts]
SELECT json_group_array(json_array(queue, name, json(policy), json(declared), json(override), changed_at, changed_by, reason,
                                   running, json(starts)))
  FROM (SELECT * FROM drumbeat_line ORDER BY queue, name);

-- name: _group
-- [queue, waiting, lane]; what waits is counted up to 10,000.
json_array(queue, (SELECT count(*)
                     FROM (SELECT 1
                             FROM drumbeat_job AS job
                            WHERE job.queue = listed.queue
                              AND job.lane = listed.name
                              AND job.state = 'pending'
                              AND job.blocked_on IS NULL
                            LIMIT 10000)),
           -- include: _lane
           )

-- name: groups
SELECT json_group_array(
       -- include: _group
       )
  FROM (SELECT *
          FROM drumbeat_lane
         WHERE queue = :queue
           AND line = :name
           AND name > :after
         ORDER BY name
         LIMIT :limit) AS listed;

-- name: groups_by_lane
SELECT json_group_array(
       -- include: _group
       )
  FROM (SELECT lane.*
          FROM json_each(:lanes) AS wanted
         CROSS JOIN drumbeat_lane AS lane
         WHERE lane.queue = json_extract(wanted.value, '$[0]')
           AND lane.name = json_extract(wanted.value, '$[1]')) AS listed;

-- name: busiest_groups
SELECT json_group_array(
       -- include: _group
       )
  FROM (SELECT *
          FROM drumbeat_lane
         WHERE running > 0 OR head_at <= :now
         ORDER BY running DESC, head_at
         LIMIT :limit) AS listed;

-- name: idle_lanes
-- [queue, name, policy of its line, starts]
SELECT json_group_array(json_array(queue, name, json(policy), json(starts)))
  FROM (SELECT lane.queue, lane.name, line.policy, lane.starts
          FROM drumbeat_lane AS lane
          LEFT JOIN drumbeat_line AS line
            ON line.queue = lane.queue
           AND line.name = lane.line
         WHERE lane.used_at < :before
           AND lane.running = 0
           AND lane.head_at IS NULL
           AND lane.own_bounds IS NULL
           AND lane.own_weight IS NULL
           AND lane.open_at <= :now
           AND NOT EXISTS (SELECT 1
                             FROM drumbeat_job AS job
                            WHERE job.queue = lane.queue
                              AND job.lane = lane.name
                              AND job.state = 'pending'
                              AND job.blocked_on IS NULL)
         LIMIT :limit);

-- name: keep_lanes
-- So that the next sweep looks at others first.
UPDATE drumbeat_lane
   SET used_at = :now
 WHERE (queue, name) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:lanes));

-- name: delete_lanes
DELETE FROM drumbeat_lane
 WHERE (queue, name) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:lanes));

-- name: running_of_lanes
-- [queue, lane, jobs that run] of all lanes with any, or that say so.
SELECT json_group_array(json_array(queue, name, sum))
  FROM (SELECT queue, name, sum(jobs) AS sum, sum(counted) AS counted
          FROM (SELECT queue, lane AS name, count(*) AS jobs, 0 AS counted
                  FROM drumbeat_job INDEXED BY drumbeat_job_of_instance
                 WHERE state = 'running'
                   AND lane <> ''
                 GROUP BY queue, lane
                 UNION ALL
                SELECT queue, name, 0, running
                  FROM drumbeat_lane
                 WHERE running <> 0)
         GROUP BY queue, name)
 WHERE sum <> counted;

-- name: correct_lane
UPDATE drumbeat_lane
   SET running = :running
 WHERE queue = :queue
   AND name = :name;

-- name: miscounted_lines
SELECT json_group_array(json_array(queue, name, jobs))
  FROM (SELECT line.queue, line.name, line.running,
               (SELECT count(*)
                  FROM drumbeat_job AS job INDEXED BY drumbeat_job_of_instance
                 WHERE job.state = 'running'
                   AND job.queue = line.queue
                   AND job.lane <> ''
                   AND (line.name = '' OR substr(job.lane, 1, instr(job.lane, ' ') - 1) = line.name)) AS jobs
          FROM drumbeat_line AS line
         WHERE line.is_limited)
 WHERE running <> jobs;

-- name: correct_line
UPDATE drumbeat_line
   SET running = :running
 WHERE queue = :queue
   AND name = :name;
