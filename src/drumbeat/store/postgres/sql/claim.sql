-- Statements that claim jobs. A running job is one that has an instance.

-- name: _due_of_queue
-- Priority by priority, each a range of the claim index: future jobs are never stepped over, and no row is locked that is not
-- taken.
              SELECT job.tid
                FROM (SELECT priority, ($11::bigint[])[(asked.turn - 1) * 10 + priority + 1] AS bound,
                             coalesce(($12::text::uuid[])[(asked.turn - 1) * 10 + priority + 1],
                                      '00000000-0000-0000-0000-000000000000') AS first
                        FROM generate_series(0, 9) AS priority
                       ORDER BY priority) AS level
               CROSS JOIN LATERAL (
                     SELECT job.ctid AS tid
                       FROM drumbeat.job
                      WHERE job.queue = asked.queue
                        AND job.lane = ''
                        AND job.priority = level.priority
                        AND job.run_at <= drumbeat.now_us()
                        AND (job.run_at, job.id) >= (level.bound, level.first)
                        AND job.state = 'pending'
                        AND job.blocked_on IS NULL
                      ORDER BY job.run_at, job.id
                      LIMIT $10
                        FOR UPDATE SKIP LOCKED) AS job

-- name: _set_claimed
-- `here` is the moment.
          SET state = 'running',
              instance = $1,
              token = greatest(least(token, 1000000000000000000) + 1, {{here}}),
              claimed_at = {{here}},
              blocked_on = NULL

-- name: report_and_claim
-- The hot path: succeeded runs become history, and the next jobs are claimed, in one statement.
-- $1 instance; $2 to $7 ids, tokens, started_at, finished_at, result, result_error of the runs (the first four as array
-- literals, which cost the driver a fifth of an array; the last two are empty where all are null);
-- $8, $9 queues and shares in the order of their turn; $10 limit; $11 for each queue and priority a lower bound of run_at,
-- $12 and of the id where run_at is that bound (an array literal; empty: none).
-- Rows: the claimed jobs, and one summary, which alone has `now`, recorded_count (runs recorded), recorded_ids (their ids, if
-- not all were recorded), next_due (if fewer jobs than the limit were claimed), released_count (releases that were left),
-- lane_ends (runs of lanes among the recorded, if any), and `lanes`: what `find_lanes_due` says of these queues, null where there are
-- no lines.
  WITH ended (id, token, started_at, finished_at, result, result_error) AS MATERIALIZED (
       SELECT * FROM unnest($2::text::uuid[], $3::text::bigint[], $4::text::bigint[], $5::text::bigint[], $6::text[],
                            $7::text[])),
       gone AS (
       DELETE FROM drumbeat.job
        WHERE id = ANY (ARRAY(SELECT ended.id FROM ended))
          AND instance = $1
          -- Inside CASE it stays a filter; as a plain condition it could become a join, and the join a scan of the table.
          AND CASE WHEN (id, token) IN (SELECT ended.id, ended.token FROM ended) THEN true ELSE false END
       RETURNING {{moved}}, is_parent),
       released AS (
       INSERT INTO drumbeat.release (parent, life, event)
       SELECT gone.id, gone.replays, 'succeeded'
         FROM gone
        WHERE gone.is_parent
       RETURNING 1),
       kept AS (
       INSERT INTO drumbeat.history ({{history}})
       SELECT {{history from gone, state = 'succeeded', outcome = 'succeeded', instance = $1, started_at = ended.started_at,
                finished_at = coalesce(ended.finished_at, drumbeat.now_us()), result = ended.result,
                result_error = ended.result_error, error = NULL}}
         FROM gone
         JOIN ended ON ended.id = gone.id
       RETURNING id),
       asked AS MATERIALIZED (
       SELECT asked.queue, asked.share, asked.turn
         FROM unnest($8::text[], $9::integer[]) WITH ORDINALITY AS asked (queue, share, turn)
        WHERE NOT EXISTS (SELECT FROM drumbeat.queue WHERE queue.name = asked.queue)),
       shared AS MATERIALIZED (
       SELECT due.tid, asked.turn
         FROM (SELECT queue, share, turn FROM asked ORDER BY turn) AS asked
        CROSS JOIN LATERAL (
              -- include: _due_of_queue
               LIMIT asked.share) AS due
        LIMIT $10),
       -- The rest of the limit comes from the queues that gave their whole share, in the same order.
       rest AS MATERIALIZED (
       SELECT due.tid
         FROM (SELECT queue, share, turn
                 FROM asked
                WHERE (SELECT count(*) FROM shared WHERE shared.turn = asked.turn) = asked.share
                ORDER BY turn) AS asked
        CROSS JOIN LATERAL (
              -- include: _due_of_queue
              OFFSET asked.share) AS due
        LIMIT $10 - (SELECT count(*) FROM shared)),
       -- Declaring the instance dead locks this row as well: no job is claimed while its jobs are being released.
       living AS MATERIALIZED (
       SELECT 1
         FROM drumbeat.instance
        WHERE id = $1
          AND state = 'alive'
          AND EXISTS (SELECT FROM shared UNION ALL SELECT FROM rest)
          FOR KEY SHARE),
       claimed AS (
       UPDATE drumbeat.job
          -- include: _set_claimed with (SELECT drumbeat.now_us())
        WHERE ctid = ANY (ARRAY(SELECT tid FROM shared UNION ALL SELECT tid FROM rest))
          AND EXISTS (SELECT FROM living)
       RETURNING {{claimed}})
SELECT {{claimed from claimed, id = claimed.id::text}},
       NULL::bigint AS now, NULL::bigint AS recorded_count, NULL::text AS recorded_ids, NULL::bigint AS next_due,
       NULL::bigint AS released_count, NULL::integer AS lane_ends, NULL::bigint[] AS lanes
  FROM claimed
 UNION ALL
SELECT {{claimed from nulls}},
       drumbeat.now_us(),
       (SELECT count(*) FROM kept),
       CASE WHEN (SELECT count(*) FROM kept) < (SELECT count(*) FROM ended)
            THEN (SELECT string_agg(kept.id::text, ' ') FROM kept)
        END,
       CASE WHEN (SELECT count(*) FROM claimed) < $10
            THEN (SELECT min(soon.run_at)
                    FROM asked
                   CROSS JOIN generate_series(0, 9) AS level (priority)
                   CROSS JOIN LATERAL (
                         SELECT job.run_at
                           FROM drumbeat.job
                          WHERE job.queue = asked.queue
                            AND job.lane = ''
                            AND job.priority = level.priority
                            AND job.run_at > drumbeat.now_us()
                            AND job.state = 'pending'
                            AND job.blocked_on IS NULL
                          ORDER BY job.run_at
                          LIMIT 1) AS soon)
        END,
       (SELECT count(*) FROM released),
       -- Functions, which cost nothing where there are no lanes. As parts of this statement they were a tenth of a call.
       (SELECT drumbeat.tell_of_ends(array_agg(gone.queue), array_agg(gone.lane))
          FROM gone
         WHERE gone.lane <> ''
        HAVING count(*) > 0),
       CASE WHEN EXISTS (SELECT FROM drumbeat.line) THEN drumbeat.find_lanes_due(ARRAY(SELECT asked.queue FROM asked)) END;

-- name: lanes_due
-- $1 queues; without paused ones.
SELECT drumbeat.find_lanes_due(ARRAY(
       SELECT asked.queue
         FROM unnest($1::text[]) AS asked (queue)
        WHERE NOT EXISTS (SELECT FROM drumbeat.queue WHERE queue.name = asked.queue)));

-- name: open_lanes
-- The first statement of a claim of lanes. $1 queues, $2 lanes of each line, $3 news of each queue.
SELECT queue, line, lane, place::text, policy, running, head_at, turn_at, open_at, starts, credit, levels, concurrency, own_bounds,
       own_weight, now_at
  FROM drumbeat.open_lanes($1::text[], $2, $3);

-- name: _in_lane
                       job.queue = asked.queue
                   AND job.lane = asked.lane
                   AND job.state = 'pending'
                   AND job.blocked_on IS NULL

-- name: claim_lanes
-- Claim jobs of locked lanes, in a later statement than the lock: an add that commits before the lock is seen, and any other is still
-- news. $1 instance, $2 now, $3 to $7 of each lane: queue, name, how many are wanted, the levels that it may have jobs of, its order.
-- A head that another session has locked is waited for, not stepped over. Rows: the claimed jobs with the number of their lane, and a
-- summary of each lane, which has next_at (when the first job is due that is left) and `levels` (of what is left).
  WITH asked AS MATERIALIZED (
       SELECT *
         FROM unnest($3::text[], $4::text[], $5::integer[], $6::integer[], $7::text[]) WITH ORDINALITY
              AS asked (queue, lane, wanted, levels, "order", number)),
       picked AS MATERIALIZED (
       SELECT asked.number, asked.queue, asked.lane, due.tid, due.priority
         FROM asked
        CROSS JOIN LATERAL (
              SELECT each.tid, level.priority
                FROM (SELECT priority FROM generate_series(0, 9) AS priority WHERE asked.levels >> priority & 1 = 1
                       ORDER BY priority) AS level
               CROSS JOIN LATERAL (
                     SELECT job.ctid AS tid
                       FROM drumbeat.job
                      WHERE
                       -- include: _in_lane
                        AND job.priority = level.priority
                        AND job.run_at <= $2
                      ORDER BY job.run_at, job.id
                      LIMIT asked.wanted
                        FOR UPDATE SKIP LOCKED) AS each
               LIMIT asked.wanted) AS due
        WHERE asked."order" = ''
        UNION ALL
       SELECT asked.number, asked.queue, asked.lane, due.tid, due.priority
         FROM asked
        CROSS JOIN LATERAL (
              SELECT first.ctid AS tid, first.priority
                FROM drumbeat.job AS first
               WHERE first.id = (SELECT job.id
                                   FROM drumbeat.job
                                  WHERE
                                   -- include: _in_lane
                                    AND job.lane <> ''
                                    AND (job.run_at <= $2 OR asked."order" = 'hold')
                                  ORDER BY coalesce(job.place, job.created_at), job.id
                                  LIMIT 1)
                 AND first.run_at <= $2
                 AND first.state = 'pending'
                 AND first.blocked_on IS NULL
                 FOR UPDATE SKIP LOCKED) AS due
        WHERE asked."order" <> ''
          AND asked.wanted > 0),
       living AS MATERIALIZED (
       SELECT 1
         FROM drumbeat.instance
        WHERE id = $1
          AND state = 'alive'
          FOR KEY SHARE),
       claimed AS (
       UPDATE drumbeat.job
          -- include: _set_claimed with $2
        WHERE ctid = ANY (ARRAY(SELECT tid FROM picked))
          AND EXISTS (SELECT FROM living)
       RETURNING {{claimed}}),
       -- Not what was picked: a job that has changed since the statement began was locked, but is not claimed.
       taken AS MATERIALIZED (
       SELECT asked.number, claimed.priority, count(*) AS count
         FROM claimed
         JOIN asked
           ON asked.queue = claimed.queue
          AND asked.lane = claimed.lane
        GROUP BY asked.number, claimed.priority)
SELECT {{claimed from claimed, id = claimed.id::text}},
       NULL::bigint AS number, NULL::bigint AS next_at, NULL::integer AS levels
  FROM claimed
 UNION ALL
SELECT {{claimed from nulls}},
       asked.number, rest.next_at, rest.levels
  FROM asked
 CROSS JOIN LATERAL (
       -- To this statement what it has claimed is still pending: the first of its level are stepped over. Where it skipped one of
       -- them, one that is due is stepped over in its place, which is as good.
       SELECT min(soonest.run_at) AS next_at, coalesce(bit_or(1 << level.priority), 0) AS levels
         FROM generate_series(0, 9) AS level (priority)
        CROSS JOIN LATERAL (
              SELECT job.run_at
                FROM drumbeat.job
               WHERE
                 -- include: _in_lane
                 AND job.priority = level.priority
               ORDER BY job.run_at, job.id
               LIMIT 1
              OFFSET coalesce((SELECT taken.count
                                 FROM taken
                                WHERE taken.number = asked.number AND taken.priority = level.priority), 0)) AS soonest
        WHERE asked.levels >> level.priority & 1 = 1
       HAVING asked."order" = ''
        UNION ALL
       -- In an order, its jobs are not looked for by level: all of them, for when it loses its order.
       SELECT CASE WHEN asked."order" = 'hold' THEN following.run_at
                   -- Where others are stepped over, who is next is not known: too early costs a look.
                   WHEN following.number > 1 THEN least(following.run_at, $2)
                   ELSE following.soonest
               END,
              CASE WHEN following.run_at IS NULL THEN 0 ELSE 1023 END
         FROM (SELECT mine.number,
                      (SELECT job.run_at
                         FROM drumbeat.job
                        WHERE
                          -- include: _in_lane
                          AND job.lane <> ''
                        ORDER BY coalesce(job.place, job.created_at), job.id
                        LIMIT 1
                       OFFSET mine.number - 1) AS run_at,
                      CASE WHEN asked."order" = 'skip' AND mine.number = 1
                           THEN (SELECT min(each.run_at)
                                   FROM generate_series(0, 9) AS level (priority)
                                  CROSS JOIN LATERAL (
                                        SELECT job.run_at
                                          FROM drumbeat.job
                                         WHERE
                                           -- include: _in_lane
                                           AND job.priority = level.priority
                                         ORDER BY job.run_at, job.id
                                         LIMIT 1) AS each)
                       END AS soonest
                 FROM (SELECT 1 + count(*) AS number FROM taken WHERE taken.number = asked.number) AS mine) AS following
        WHERE asked."order" <> '') AS rest
 WHERE EXISTS (SELECT FROM living);

-- name: settle_lanes
-- Columns: place (of the locked row), running, head_at, turn_at, open_at, starts, credit, levels, concurrency. $10 now.
UPDATE drumbeat.lane
   SET (running, head_at, turn_at, open_at, starts, credit, levels, concurrency)
           = (settled.running, settled.head_at, settled.turn_at, settled.open_at, settled.starts, settled.credit, settled.levels,
              settled.concurrency),
       used_at = $10
  FROM unnest($1::text[]::tid[], $2::integer[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::integer[],
              $8::integer[], $9::integer[])
       AS settled (place, running, head_at, turn_at, open_at, starts, credit, levels, concurrency)
 WHERE lane.ctid = ANY ($1::text[]::tid[])
   AND lane.ctid = settled.place;

-- name: start_lines
-- Columns: place (of the locked row), running, starts, open_at.
UPDATE drumbeat.line
   SET (running, starts, open_at) = (started.running, started.starts, started.open_at)
  FROM unnest($1::text[]::tid[], $2::integer[], $3::text[], $4::bigint[]) AS started (place, running, starts, open_at)
 WHERE line.ctid = ANY ($1::text[]::tid[])
   AND line.ctid = started.place;

-- name: unblock_lanes
-- Jobs of lanes that are blocked on what this worker can run: their lanes give them. $1 values of blocked_on, $2 queues, $3 limit.
UPDATE drumbeat.job
   SET blocked_on = NULL
 WHERE ctid = ANY (ARRAY(
       SELECT due.tid
         FROM unnest($1::text[]) AS wanted (blocked_on)
        CROSS JOIN unnest($2::text[]) AS asked (queue)
        CROSS JOIN LATERAL (
              SELECT job.ctid AS tid
                FROM drumbeat.job
               WHERE job.blocked_on = wanted.blocked_on
                 AND job.queue = asked.queue
                 AND job.run_at <= drumbeat.now_us()
                 AND job.state = 'pending'
                 AND job.blocked_on IS NOT NULL
                 AND job.lane <> ''
               LIMIT $3
                 FOR UPDATE SKIP LOCKED) AS due
        LIMIT $3));

-- name: claim_blocked
-- Claim blocked jobs that this worker can take. $1 instance, $2 values of blocked_on, $3 queues, $4 limit.
  WITH picked AS MATERIALIZED (
       SELECT due.tid
         FROM (SELECT wanted.blocked_on, asked.queue, level.priority
                 FROM unnest($2::text[]) WITH ORDINALITY AS wanted (blocked_on, place)
                CROSS JOIN unnest($3::text[]) WITH ORDINALITY AS asked (queue, turn)
                CROSS JOIN generate_series(0, 9) AS level (priority)
                WHERE NOT EXISTS (SELECT FROM drumbeat.queue WHERE queue.name = asked.queue)
                ORDER BY wanted.place, asked.turn, level.priority) AS candidate
        CROSS JOIN LATERAL (
              SELECT job.ctid AS tid
                FROM drumbeat.job
               WHERE job.blocked_on = candidate.blocked_on
                 AND job.queue = candidate.queue
                 AND job.priority = candidate.priority
                 AND job.run_at <= drumbeat.now_us()
                 AND job.state = 'pending'
                 AND job.blocked_on IS NOT NULL
                 AND job.lane = ''
               ORDER BY job.run_at, job.id
               LIMIT $4
                 FOR UPDATE SKIP LOCKED) AS due
        LIMIT $4),
       living AS MATERIALIZED (
       SELECT 1
         FROM drumbeat.instance
        WHERE id = $1
          AND state = 'alive'
          AND EXISTS (SELECT FROM picked)
          FOR KEY SHARE)
UPDATE drumbeat.job
   -- include: _set_claimed with (SELECT drumbeat.now_us())
 WHERE ctid = ANY (ARRAY(SELECT tid FROM picked))
   AND EXISTS (SELECT FROM living)
RETURNING {{claimed from job, id = job.id::text}};

-- name: list_running
SELECT id::text, token
  FROM drumbeat.job
 WHERE instance = $1
   AND state = 'running'
 ORDER BY job.id;
