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
                        AND job.priority = level.priority
                        AND job.run_at <= drumbeat.now_us()
                        AND (job.run_at, job.id) >= (level.bound, level.first)
                        AND job.state = 'pending'
                        AND job.blocked_on IS NULL
                      ORDER BY job.run_at, job.id
                      LIMIT $10
                        FOR UPDATE SKIP LOCKED) AS job

-- name: _set_claimed
          SET state = 'running',
              instance = $1,
              token = greatest(least(token, 1000000000000000000) + 1, (SELECT drumbeat.now_us())),
              claimed_at = (SELECT drumbeat.now_us()),
              blocked_on = NULL

-- name: report_and_claim
-- The hot path: succeeded runs become history, and the next jobs are claimed, in one statement.
-- $1 instance; $2 to $7 ids, tokens, started_at, finished_at, result, result_error of the runs (the first four as array
-- literals, which cost the driver a fifth of an array; the last two are empty where all are null);
-- $8, $9 queues and shares in the order of their turn; $10 limit; $11 for each queue and priority a lower bound of run_at,
-- $12 and of the id where run_at is that bound (an array literal; empty: none).
-- Rows: the claimed jobs, and one summary, which alone has `now`, recorded_count (runs recorded), recorded_ids (their ids, if
-- not all were recorded), next_due (if fewer jobs than the limit were claimed) and released_count (releases that were left).
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
          -- include: _set_claimed
        WHERE ctid = ANY (ARRAY(SELECT tid FROM shared UNION ALL SELECT tid FROM rest))
          AND EXISTS (SELECT FROM living)
       RETURNING {{claimed}})
SELECT {{claimed from claimed, id = claimed.id::text}},
       NULL::bigint AS now, NULL::bigint AS recorded_count, NULL::text AS recorded_ids, NULL::bigint AS next_due,
       NULL::bigint AS released_count
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
                            AND job.priority = level.priority
                            AND job.run_at > drumbeat.now_us()
                            AND job.state = 'pending'
                            AND job.blocked_on IS NULL
                          ORDER BY job.run_at
                          LIMIT 1) AS soon)
        END,
       (SELECT count(*) FROM released);

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
   -- include: _set_claimed
 WHERE ctid = ANY (ARRAY(SELECT tid FROM picked))
   AND EXISTS (SELECT FROM living)
RETURNING {{claimed from job, id = job.id::text}};

-- name: list_running
SELECT id::text, token
  FROM drumbeat.job
 WHERE instance = $1
   AND state = 'running'
 ORDER BY job.id;
