-- Lines and lanes for people and programs: limits.py. Claims of lanes are in claim.sql.

-- name: lock_policies
-- No claim of lanes is under way from here on, and none begins before the end of the transaction: what it reads of lines holds while it
-- claims. Statements after this one see what was committed before.
SELECT pg_advisory_xact_lock(hashtextextended('drumbeat' || '.policies', 0));

-- name: lock_policies_shared
SELECT pg_advisory_xact_lock_shared(hashtextextended('drumbeat' || '.policies', 0));

-- name: policies
-- Of all lines of these queues. Columns as in limits._LineRow.
SELECT queue, name, policy, declared, version, override, starts, is_limited
  FROM drumbeat.line
 WHERE queue = ANY ($1::text[]);

-- name: save_policies
-- Columns: queue, name, policy, declared, version, is_limited, needs_slot, concurrency, open_at, untold.
INSERT INTO drumbeat.line AS line (queue, name, policy, declared, version, is_limited, needs_slot, concurrency, open_at, untold,
                                   declared_at)
SELECT new.*, drumbeat.now_us()
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::boolean[], $7::boolean[], $8::integer[],
              $9::bigint[], $10::smallint[])
       AS new (queue, name, policy, declared, version, is_limited, needs_slot, concurrency, open_at, untold)
    ON CONFLICT (queue, name) DO UPDATE
   SET policy = excluded.policy,
       declared = excluded.declared,
       version = excluded.version,
       is_limited = excluded.is_limited,
       needs_slot = excluded.needs_slot,
       concurrency = excluded.concurrency,
       open_at = excluded.open_at,
       untold = greatest(line.untold, excluded.untold),
       declared_at = CASE WHEN line.declared <> excluded.declared OR line.version <> excluded.version
                          THEN excluded.declared_at ELSE line.declared_at END;

-- name: save_change
-- $1 queue, $2 name, $3 override, $4 by, $5 reason.
UPDATE drumbeat.line
   SET override = $3,
       changed_at = drumbeat.now_us(),
       changed_by = $4,
       reason = $5
 WHERE queue = $1
   AND name = $2;

-- name: _runs
-- Runs of lanes as they count there: until a claim has folded the news of its end, a run counts. Read with one snapshot.
       runs AS MATERIALIZED (
       SELECT each.queue, each.lane, split_part(each.lane, ' ', 1) AS line, sum(each.number)::integer AS number
         FROM (SELECT job.queue, job.lane, count(*) AS number
                 FROM drumbeat.job
                WHERE job.state = 'running' AND job.lane <> ''
                GROUP BY job.queue, job.lane
                UNION ALL
               SELECT news.queue, news.lane, sum(news.ended)
                 FROM drumbeat.news
                WHERE news.ended > 0
                GROUP BY news.queue, news.lane) AS each
        GROUP BY each.queue, each.lane)

-- name: count_lines
-- Correct the counts of these lines, which are locked or cannot be claimed from. $1 queues, $2 names. Returns those that were wrong.
  WITH
       -- include: _runs
UPDATE drumbeat.line
   SET running = counted.number
  FROM (SELECT wanted.queue, wanted.name, coalesce(sum(runs.number), 0)::integer AS number
          FROM unnest($1::text[], $2::text[]) AS wanted (queue, name)
          LEFT JOIN runs
            ON runs.queue = wanted.queue
           AND wanted.name IN ('', runs.line)
         GROUP BY wanted.queue, wanted.name) AS counted
 WHERE line.queue = counted.queue
   AND line.name = counted.name
   AND line.running <> counted.number
RETURNING line.queue, line.name;

-- name: lock_limited_lines
SELECT queue, name
  FROM drumbeat.line
 WHERE is_limited
 ORDER BY queue, name
   FOR NO KEY UPDATE SKIP LOCKED;

-- name: lock_lanes
-- The next lanes by queue and name. $1, $2 the last before; $3 limit.
SELECT queue, name, ctid::text AS place
  FROM drumbeat.lane
 WHERE (queue, name) > ($1::text, $2::text)
 ORDER BY queue, name
 LIMIT $3
   FOR NO KEY UPDATE SKIP LOCKED;

-- name: count_lanes
-- The same as `count_lines` of locked lanes. Columns: place, queue, name.
  WITH
       -- include: _runs
UPDATE drumbeat.lane
   SET running = counted.number
  FROM (SELECT wanted.place, coalesce(runs.number, 0) AS number
          FROM unnest($1::text[]::tid[], $2::text[], $3::text[]) AS wanted (place, queue, name)
          LEFT JOIN runs
            ON runs.queue = wanted.queue
           AND runs.lane = wanted.name) AS counted
 WHERE lane.ctid = ANY ($1::text[]::tid[])
   AND lane.ctid = counted.place
   AND lane.running <> counted.number
RETURNING lane.queue, lane.name;

-- name: untold_lines
-- Lines whose lanes are still to be told of a change.
SELECT queue, name, policy
  FROM drumbeat.line
 WHERE untold > 0
 ORDER BY queue, name;

-- name: untold_line
SELECT policy, untold
  FROM drumbeat.line
 WHERE queue = $1
   AND name = $2
   AND untold > 0;

-- name: lock_lanes_of_line
-- Waits for lanes that claims hold, which may leave them as they are: claims wait for nobody. $1 queue, $2 line, $3 the last lane before,
-- $4 limit.
SELECT name, ctid::text AS place
  FROM drumbeat.lane
 WHERE queue = $1
   AND name >= $2 || ' ' COLLATE "C"
   AND name < $2 || '!' COLLATE "C"
   AND name > $3
 ORDER BY name
 LIMIT $4
   FOR NO KEY UPDATE;

-- name: tell_lanes
-- Let locked lanes stand under new limits. $1 places, $2 the line's concurrency for each, $3 whether it has an order, $4 whether that
-- has changed.
UPDATE drumbeat.lane
   SET concurrency = CASE WHEN $3::boolean THEN 1
                          WHEN own_bounds IS NULL THEN $2
                          ELSE coalesce((own_bounds::json ->> 0)::integer, 2147483647)
                      END,
       open_at = 0,
       head_at = CASE WHEN $4::boolean AND head_at IS NOT NULL THEN least(head_at, drumbeat.now_us()) ELSE head_at END,
       levels = CASE WHEN $4 AND head_at IS NOT NULL THEN 1023 ELSE levels END
 WHERE ctid = ANY ($1::text[]::tid[]);

-- name: set_told
-- $3 the policy when the first of its lanes were told: if another holds by now, they are to be told again.
UPDATE drumbeat.line
   SET untold = 0
 WHERE queue = $1
   AND name = $2
   AND policy = $3;

-- name: change_group
-- $1 queue, $2 lane, $3 line, $4 bounds, $5 weight, $6 concurrency.
INSERT INTO drumbeat.lane (queue, name, line, own_bounds, own_weight, concurrency, used_at)
VALUES ($1, $2, $3, $4, $5, $6, drumbeat.now_us())
    ON CONFLICT (queue, name) DO UPDATE
   SET own_bounds = excluded.own_bounds,
       own_weight = excluded.own_weight,
       concurrency = excluded.concurrency,
       open_at = 0,
       credit = 0;

-- name: lines
-- Columns as in limits._ListedLineRow.
  WITH runs AS MATERIALIZED (
       SELECT job.queue, split_part(job.lane, ' ', 1) AS line, count(*) AS number
         FROM drumbeat.job
        WHERE job.state = 'running' AND job.lane <> ''
        GROUP BY job.queue, split_part(job.lane, ' ', 1))
SELECT line.queue, line.name, line.policy, line.declared, line.override, line.changed_at, line.changed_by, line.reason, line.starts,
       (SELECT coalesce(sum(runs.number), 0)::bigint
          FROM runs
         WHERE runs.queue = line.queue AND line.name IN ('', runs.line)) AS running,
       drumbeat.now_us() AS now
  FROM drumbeat.line
 ORDER BY line.queue, line.name;

-- name: _groups
-- `here`: which lanes. Columns as in limits._GroupRow.
  WITH runs AS MATERIALIZED (
       SELECT job.queue, job.lane, count(*) AS number
         FROM drumbeat.job
        WHERE job.state = 'running' AND job.lane <> ''
        GROUP BY job.queue, job.lane)
SELECT lane.queue, lane.name, lane.head_at, lane.open_at, lane.starts, lane.own_bounds, lane.own_weight,
       coalesce(runs.number, 0) AS running,
       (SELECT count(*)
          FROM (SELECT
                  FROM drumbeat.job
                 WHERE job.queue = lane.queue
                   AND job.lane = lane.name
                   AND job.state = 'pending'
                   AND job.blocked_on IS NULL
                 LIMIT 10000) AS waiting) AS waiting,
       line.policy, drumbeat.now_us() AS now
  FROM {{here}} AS lane
  LEFT JOIN runs
    ON runs.queue = lane.queue
   AND runs.lane = lane.name
  LEFT JOIN drumbeat.line
    ON line.queue = lane.queue
   AND line.name = lane.line

-- name: groups
-- $1 queue, $2 line, $3 the last lane before or null, $4 limit.
-- include: _groups with (SELECT * FROM drumbeat.lane AS each WHERE each.queue = $1 AND each.name >= $2 || ' ' COLLATE "C" AND each.name < $2 || '!' COLLATE "C" AND each.name > coalesce($3, '') ORDER BY each.name LIMIT $4)
 ORDER BY lane.name;

-- name: groups_of_lanes
-- $1 queues, $2 lanes.
-- include: _groups with (SELECT each.* FROM unnest($1::text[], $2::text[]) AS wanted (queue, name) JOIN drumbeat.lane AS each ON each.queue = wanted.queue AND each.name = wanted.name)
;

-- name: busiest_lanes
-- The lanes with the most running jobs, and of each line those that have waited longest. $1 limit. Columns: queue, name, running, head_at.
  WITH runs AS MATERIALIZED (
       SELECT job.queue, job.lane, count(*) AS number
         FROM drumbeat.job
        WHERE job.state = 'running' AND job.lane <> ''
        GROUP BY job.queue, job.lane)
SELECT found.queue, found.name
  FROM (SELECT runs.queue, runs.lane AS name, runs.number, NULL::bigint AS ready_at
          FROM runs
         UNION ALL
        SELECT waiting.queue, waiting.name, 0, waiting.ready_at
          FROM drumbeat.line
         CROSS JOIN LATERAL (SELECT lane.queue, lane.name, lane.ready_at
                               FROM drumbeat.lane
                              WHERE lane.queue = line.queue
                                AND lane.line = line.name
                                AND lane.ready_at IS NOT NULL
                              ORDER BY lane.ready_at
                              LIMIT $1) AS waiting
         WHERE NOT EXISTS (SELECT FROM runs WHERE runs.queue = waiting.queue AND runs.lane = waiting.name)) AS found
 ORDER BY found.number DESC, found.ready_at, found.queue, found.name
 LIMIT $1;

-- name: lock_idle_lanes
-- $1 last used before, $2 limit.
SELECT lane.ctid::text AS place, lane.starts, line.policy, drumbeat.now_us() AS now
  FROM drumbeat.lane
  LEFT JOIN drumbeat.line
    ON line.queue = lane.queue
   AND line.name = lane.line
 WHERE lane.used_at < $1
   AND lane.head_at IS NULL
   AND lane.running = 0
   AND lane.own_bounds IS NULL
   AND lane.own_weight IS NULL
 ORDER BY lane.used_at
 LIMIT $2
   FOR NO KEY UPDATE OF lane SKIP LOCKED;

-- name: keep_lanes
-- So that the next sweep looks at others first.
UPDATE drumbeat.lane
   SET used_at = drumbeat.now_us()
 WHERE ctid = ANY ($1::text[]::tid[]);

-- name: delete_lanes
DELETE FROM drumbeat.lane
 WHERE ctid = ANY ($1::text[]::tid[]);
