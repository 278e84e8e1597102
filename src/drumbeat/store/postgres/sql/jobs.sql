-- Statements about the life of jobs. Batches arrive as arrays, one for each column, and leave as rows. Ids travel as text.
-- Where rows are changed in bulk they are named by `id = ANY`: a join with unnest is planned wrongly on stale statistics.
-- A running job is one that has an instance. Statements that must go by the primary key say only that: with
-- `state = 'running'` the planner could walk the index of all that an instance has ever run.

-- name: add
-- Store new jobs, all of them or none: an id or key that is taken raises 23505 (which costs less than ON CONFLICT), and
-- refuse_known raises DB001 if one is known otherwise. An array that is shorter than the ids (an empty one) stands for the
-- default, $17 to $20 for a value that all jobs share.
  WITH added AS (
       INSERT INTO drumbeat.job (id, task, queue, args, signature, priority, created_at, due_at, run_at, key, "unique",
                                 retries, timeout, crash_limit, on_dead, tenant, trace)
       SELECT new.id, coalesce(new.task, $17), coalesce(new.queue, $18), new.args, coalesce(new.signature, $19),
              coalesce(new.priority, $20), (SELECT drumbeat.now_us()),
              coalesce(new.run_at, (SELECT drumbeat.now_us()) + coalesce(new.delay, 0)),
              coalesce(new.run_at, (SELECT drumbeat.now_us()) + coalesce(new.delay, 0)), new.key, coalesce(new."unique", ''),
              new.retries, new.timeout, coalesce(new.crash_limit, 3), new.on_dead, coalesce(new.tenant, ''), new.trace
         FROM unnest($1::text[]::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::bigint[],
                     $8::bigint[], $9::text[], $10::text[], $11::integer[], $12::bigint[], $13::integer[], $14::text[],
                     $15::text[], $21::text[])
              AS new (id, task, queue, args, signature, priority, run_at, delay, key, "unique", retries, timeout,
                      crash_limit, on_dead, tenant, trace)
        WHERE new.key IS NULL
           OR coalesce(new."unique", '') = ''
           OR NOT EXISTS (SELECT FROM drumbeat.job AS holder
                           WHERE holder.task = coalesce(new.task, $17)
                             AND holder.key = new.key
                             AND holder.key IS NOT NULL
                             AND holder."unique" <> ''
                             AND (new."unique" = 'live' OR holder.state = 'pending'))
       RETURNING id)
SELECT drumbeat.now_us() AS now,
       drumbeat.refuse_known(cardinality($1::text[]), count(*), $22::text::uuid, $23::text::uuid, $16),
       CASE WHEN 'live' = ANY ($10::text[])
            THEN drumbeat.refuse_held($1::text[]::uuid[], coalesce(nullif($2::text[], '{}'), ARRAY[$17]))
        END
  FROM added;

-- name: add_one
-- The same for a single job that is not unique, which is planned in a tenth of the time. NewJob's fields in their order, but
-- for `unique`; $15 since, $16 trace; $17 who tells the workers, or null: not here. notified: whether that was done. What tells holds
-- a lock of the whole database until the commit is on disk, so one does at a time, and nobody waits for it.
INSERT INTO drumbeat.job (id, task, queue, args, signature, priority, created_at, due_at, run_at, key, retries, timeout,
                          crash_limit, on_dead, tenant, trace)
VALUES ($1::text::uuid, $2, $3, $4, $5, $6, drumbeat.now_us(), coalesce($7, drumbeat.now_us() + $8),
        coalesce($7, drumbeat.now_us() + $8), $9, $10, $11, $12, $13, $14, $16)
RETURNING drumbeat.now_us() AS now, drumbeat.refuse_known(0, 0, id, id, $15),
          CASE WHEN $17::text IS NULL THEN false
               WHEN pg_try_advisory_xact_lock(hashtextextended('drumbeat' || '.wake', 0))
               THEN pg_notify('drumbeat' || '.wake', run_at::text || ' ' || $17) IS NOT NULL
               ELSE false
           END AS notified;

-- name: before_copy
-- For jobs that are about to be copied into the table. $1 the tasks of those of Unique.LIVE; doubtful: whether such a task has
-- live jobs of Unique.PENDING, which may hold a key that no index sees.
SELECT drumbeat.now_us() AS now,
       EXISTS (SELECT FROM drumbeat.job WHERE task = ANY ($1::text[]) AND "unique" = 'pending' AND state = 'pending')
       OR EXISTS (SELECT FROM drumbeat.job WHERE task = ANY ($1::text[]) AND "unique" = 'pending' AND state = 'running')
       AS doubtful;

-- name: after_copy
-- The same look again. $2, $3 first and last id; $4 since. crowded: whether any job of these ids or between them has ended, as in
-- refuse_known. It may be somebody else's, if the ids were not made at once, so it is no reason yet to undo the copy.
SELECT EXISTS (SELECT FROM drumbeat.job WHERE task = ANY ($1::text[]) AND "unique" = 'pending' AND state = 'pending')
       OR EXISTS (SELECT FROM drumbeat.job WHERE task = ANY ($1::text[]) AND "unique" = 'pending' AND state = 'running')
       AS doubtful,
       EXISTS (SELECT FROM drumbeat.history
                WHERE history.id BETWEEN $2::text::uuid AND $3::text::uuid
                  AND history.finished_at >= least($4, drumbeat.now_us()) - 86400000000
                  AND history.finished_at < drumbeat.now_us() + 86400000000)
       OR EXISTS (SELECT FROM drumbeat.dead WHERE dead.id BETWEEN $2::text::uuid AND $3::text::uuid)
       AS crowded;

-- name: known
-- Which of these ids are anywhere.
SELECT wanted.id::text
  FROM unnest($1::text[]::uuid[]) AS wanted (id)
 WHERE EXISTS (SELECT FROM drumbeat.job WHERE job.id = wanted.id)
    OR EXISTS (SELECT FROM drumbeat.history WHERE history.id = wanted.id)
    OR EXISTS (SELECT FROM drumbeat.dead WHERE dead.id = wanted.id);

-- name: key_holders
-- Live unique jobs of these (task, key).
SELECT job.task, job.key, job.id::text, job.state
  FROM unnest($1::text[], $2::text[]) AS wanted (task, key)
  JOIN drumbeat.job
    ON job.task = wanted.task
   AND job.key = wanted.key
   AND job.key IS NOT NULL
   AND job."unique" <> ''
 ORDER BY job.id;

-- name: insert_unknown
-- Store those of these new jobs that collide with nothing; whoever calls has looked before, and looks at the answer.
INSERT INTO drumbeat.job (id, task, queue, args, signature, priority, created_at, due_at, run_at, key, "unique", retries,
                          timeout, crash_limit, on_dead, tenant, trace)
SELECT new.id, coalesce(new.task, $17), coalesce(new.queue, $18), new.args, coalesce(new.signature, $19),
       coalesce(new.priority, $20), drumbeat.now_us(), coalesce(new.run_at, drumbeat.now_us() + coalesce(new.delay, 0)),
       coalesce(new.run_at, drumbeat.now_us() + coalesce(new.delay, 0)), new.key, coalesce(new."unique", ''), new.retries,
       new.timeout, coalesce(new.crash_limit, 3), new.on_dead, coalesce(new.tenant, ''), new.trace
  FROM unnest($1::text[]::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::bigint[],
              $8::bigint[], $9::text[], $10::text[], $11::integer[], $12::bigint[], $13::integer[], $14::text[], $15::text[],
              $21::text[])
       AS new (id, task, queue, args, signature, priority, run_at, delay, key, "unique", retries, timeout, crash_limit,
               on_dead, tenant, trace)
 WHERE NOT EXISTS (SELECT FROM drumbeat.history
                    WHERE history.id = new.id
                      AND history.finished_at >= least($16, drumbeat.now_us()) - 86400000000)
   AND NOT EXISTS (SELECT FROM drumbeat.dead WHERE dead.id = new.id)
    ON CONFLICT DO NOTHING
RETURNING id::text, drumbeat.now_us() AS now;

-- name: refuse_held
-- After `insert_unknown`, for jobs of Unique.LIVE. $1 ids, $2 their tasks.
SELECT drumbeat.refuse_held($1::text[]::uuid[], $2);

-- name: report_and_claim
-- The hot one: runs that succeeded become history, and the next jobs are claimed, in one statement.
-- $1 instance; $2 to $7 ids, tokens, started_at, finished_at, result, result_error of the runs (the first four as array
-- literals, which cost the driver a fifth of an array; the last two are empty where all are null);
-- $8, $9 queues and shares in the order of their turn; $10 limit; $11 for each queue and level a lower bound of run_at,
-- $12 and of the id where run_at is that bound (an array literal; empty: none).
-- The first row is no job: token is now, created_at how many runs were recorded, due_at the next due moment if fewer than
-- the limit were claimed, args the ids that were recorded if those were not all. Then columns as in core.claim.ClaimedJob.
  WITH ended AS MATERIALIZED (
       SELECT id, token, started_at, finished_at, result, result_error
         FROM unnest($2::text::uuid[], $3::text::bigint[], $4::text::bigint[], $5::text::bigint[], $6::text[], $7::text[])
              AS ended (id, token, started_at, finished_at, result, result_error)),
       gone AS (
       DELETE FROM drumbeat.job
        WHERE id = ANY (ARRAY(SELECT ended.id FROM ended))
          AND instance = $1
          -- Inside CASE it stays a filter; as a plain condition it could become a join, and the join a walk of the table.
          AND CASE WHEN (id, token) IN (SELECT ended.id, ended.token FROM ended) THEN true ELSE false END
       RETURNING id, task, queue, priority, key, args, signature, created_at, due_at, run_at, token, failures, crashes,
                 retries, timeout, crash_limit, "unique", cancel_requested, progress, on_dead, replays, tenant, schedule, trace),
       kept AS (
       INSERT INTO drumbeat.history (state, finished_at, instance, outcome, id, task, queue, priority, key, args, signature,
                                     created_at, due_at, run_at, started_at, token, failures, crashes, retries, timeout,
                                     crash_limit, "unique", cancel_requested, progress, result, result_error, on_dead,
                                     replays, tenant, schedule, trace)
       SELECT 'succeeded', coalesce(ended.finished_at, drumbeat.now_us()), $1, 'succeeded', gone.id, gone.task, gone.queue,
              gone.priority, gone.key, gone.args, gone.signature, gone.created_at, gone.due_at, gone.run_at,
              ended.started_at, gone.token, gone.failures, gone.crashes, gone.retries, gone.timeout, gone.crash_limit,
              gone."unique", gone.cancel_requested, gone.progress, ended.result, ended.result_error, gone.on_dead,
              gone.replays, gone.tenant, gone.schedule, gone.trace
         FROM gone
         JOIN ended ON ended.id = gone.id
       RETURNING id),
       asked AS MATERIALIZED (
       SELECT asked.queue, asked.share, asked.turn
         FROM unnest($8::text[], $9::integer[]) WITH ORDINALITY AS asked (queue, share, turn)
        WHERE NOT EXISTS (SELECT FROM drumbeat.queue WHERE queue.name = asked.queue)),
       -- Queue by queue and level by level, each a range of the claim index: future jobs are never stepped over, and no
       -- row is locked that is not taken.
       shared AS MATERIALIZED (
       SELECT due.tid, asked.turn
         FROM (SELECT queue, share, turn FROM asked ORDER BY turn) AS asked
        CROSS JOIN LATERAL (
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
               LIMIT asked.share) AS due
        LIMIT $10),
       -- What is left of the limit comes from the queues that gave their whole share, in the same order.
       rest AS MATERIALIZED (
       SELECT due.tid
         FROM (SELECT queue, share, turn
                 FROM asked
                WHERE (SELECT count(*) FROM shared WHERE shared.turn = asked.turn) = asked.share
                ORDER BY turn) AS asked
        CROSS JOIN LATERAL (
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
              OFFSET asked.share) AS due
        LIMIT $10 - (SELECT count(*) FROM shared)),
       -- A burial locks this row against it: jobs are never claimed behind the back of whoever frees them.
       living AS MATERIALIZED (
       SELECT 1
         FROM drumbeat.instance
        WHERE id = $1
          AND state = 'alive'
          AND EXISTS (SELECT FROM shared UNION ALL SELECT FROM rest)
          FOR KEY SHARE),
       claimed AS (
       UPDATE drumbeat.job
          SET state = 'running',
              instance = $1,
              token = greatest(least(token, 1000000000000000000) + 1, (SELECT drumbeat.now_us())),
              claimed_at = (SELECT drumbeat.now_us()),
              blocked_on = NULL
        WHERE ctid = ANY (ARRAY(SELECT tid FROM shared UNION ALL SELECT tid FROM rest))
          AND EXISTS (SELECT FROM living)
       RETURNING id, token, task, queue, priority, key, args, signature, created_at, due_at, run_at, failures, crashes,
                 retries, timeout, crash_limit, on_dead, replays, blocked_since, trace)
SELECT NULL AS id, drumbeat.now_us() AS token, NULL AS task, NULL AS queue, NULL AS priority, NULL AS key,
       CASE WHEN (SELECT count(*) FROM kept) < (SELECT count(*) FROM ended)
            THEN (SELECT string_agg(kept.id::text, ' ') FROM kept)
        END AS args,
       NULL AS signature,
       (SELECT count(*) FROM kept) AS created_at,
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
        END AS due_at,
       NULL AS run_at, NULL AS failures, NULL AS crashes, NULL AS retries, NULL AS timeout, NULL AS crash_limit,
       NULL AS on_dead, NULL AS replays, NULL AS blocked_since, NULL AS trace
 UNION ALL
SELECT id::text, token, task, queue, priority, key, args, signature, created_at, due_at, run_at, failures, crashes, retries,
       timeout, crash_limit, on_dead, replays, blocked_since, trace
  FROM claimed;

-- name: claim_blocked
-- Claim jobs that wait for something this worker has. $1 instance, $2 wants, $3 queues, $4 limit.
  WITH picked AS MATERIALIZED (
       SELECT due.tid
         FROM (SELECT wanted.blocked_on, asked.queue, level.priority
                 FROM unnest($2::text[]) WITH ORDINALITY AS wanted (blocked_on, place)
                CROSS JOIN unnest($3::text[]) WITH ORDINALITY AS asked (queue, turn)
                CROSS JOIN generate_series(0, 9) AS level (priority)
                WHERE NOT EXISTS (SELECT FROM drumbeat.queue WHERE queue.name = asked.queue)
                ORDER BY wanted.place, asked.turn, level.priority) AS line
        CROSS JOIN LATERAL (
              SELECT job.ctid AS tid
                FROM drumbeat.job
               WHERE job.blocked_on = line.blocked_on
                 AND job.queue = line.queue
                 AND job.priority = line.priority
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
   SET state = 'running',
       instance = $1,
       token = greatest(least(token, 1000000000000000000) + 1, drumbeat.now_us()),
       claimed_at = drumbeat.now_us(),
       blocked_on = NULL
 WHERE ctid = ANY (ARRAY(SELECT tid FROM picked))
   AND EXISTS (SELECT FROM living)
RETURNING id::text, token, task, queue, priority, key, args, signature, created_at, due_at, run_at, failures, crashes,
          retries, timeout, crash_limit, on_dead, replays, blocked_since, trace;

-- name: lock_running
-- Those of these jobs that run under this instance, locked in the order of ids. Columns as in rows.Held.
SELECT id::text, token, task, key, "unique", run_at, claimed_at, failures, crashes, crash_limit, blocked_since,
       cancel_requested, on_dead, drumbeat.now_us() AS now
  FROM drumbeat.job
 WHERE id = ANY ($2::text[]::uuid[])
   AND instance = $1
 ORDER BY job.id
   FOR UPDATE;

-- name: lock_running_of_instance
-- All jobs that run under this instance, likewise.
SELECT id::text, token, task, key, "unique", run_at, claimed_at, failures, crashes, crash_limit, blocked_since,
       cancel_requested, on_dead, drumbeat.now_us() AS now
  FROM drumbeat.job
 WHERE instance = $1
   AND state = 'running'
 ORDER BY job.id
   FOR UPDATE;

-- name: move_to_history
-- Move live jobs to history; they are locked. Columns: id, state, outcome, started_at, finished_at, result, result_error,
-- error. The instance is the job's own: a pending one has none.
  WITH ended AS MATERIALIZED (
       SELECT id, state, outcome, started_at, finished_at, result, result_error, error
         FROM unnest($1::text[]::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::text[],
                     $8::text[])
              AS ended (id, state, outcome, started_at, finished_at, result, result_error, error)),
       gone AS (
       DELETE FROM drumbeat.job
        WHERE id = ANY ($1::text[]::uuid[])
       RETURNING id, task, queue, priority, key, args, signature, created_at, due_at, run_at, instance, token, failures,
                 crashes, retries, timeout, crash_limit, "unique", cancel_requested, progress, error, on_dead, replays, tenant,
                 schedule, trace)
INSERT INTO drumbeat.history (state, finished_at, instance, outcome, id, task, queue, priority, key, args, signature,
                              created_at, due_at, run_at, started_at, token, failures, crashes, retries, timeout,
                              crash_limit, "unique", cancel_requested, progress, result, result_error, error, on_dead, replays,
                              tenant, schedule, trace)
SELECT ended.state, coalesce(ended.finished_at, drumbeat.now_us()), gone.instance, ended.outcome, gone.id, coalesce(gone.task, ''),
       coalesce(gone.queue, ''), coalesce(gone.priority, 5), gone.key, coalesce(gone.args, ''), coalesce(gone.signature, ''), coalesce(gone.created_at, 0), coalesce(gone.due_at, 0), coalesce(gone.run_at, 0),
       ended.started_at, coalesce(gone.token, 0), coalesce(gone.failures, 0), coalesce(gone.crashes, 0), gone.retries, gone.timeout, coalesce(gone.crash_limit, 0),
       coalesce(gone."unique", ''), coalesce(gone.cancel_requested, false) OR (ended.state = 'cancelled' AND ended.outcome IS NULL), gone.progress,
       ended.result, ended.result_error,
       CASE WHEN ended.outcome IS NULL THEN gone.error ELSE ended.error END, gone.on_dead, coalesce(gone.replays, 0), coalesce(gone.tenant, ''),
       gone.schedule, gone.trace
  FROM gone
  JOIN ended ON ended.id = gone.id;

-- name: move_to_dead
-- Make dead letters of live jobs; they are locked. Columns: id, outcome, started_at, finished_at, failures, crashes, error.
  WITH ended AS MATERIALIZED (
       SELECT id, outcome, started_at, finished_at, failures, crashes, error
         FROM unnest($1::text[]::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[], $7::text[])
              AS ended (id, outcome, started_at, finished_at, failures, crashes, error)),
       gone AS (
       DELETE FROM drumbeat.job
        WHERE id = ANY ($1::text[]::uuid[])
       RETURNING id, task, queue, priority, key, args, signature, created_at, due_at, run_at, instance, token, retries,
                 timeout, crash_limit, "unique", cancel_requested, progress, on_dead, replays, tenant, schedule, trace)
INSERT INTO drumbeat.dead (finished_at, id, task, queue, priority, key, args, signature, created_at, due_at, run_at,
                           started_at, instance, token, outcome, failures, crashes, retries, timeout, crash_limit, "unique",
                           cancel_requested, progress, error, on_dead, replays, tenant, schedule, trace)
SELECT coalesce(ended.finished_at, drumbeat.now_us()), gone.id, coalesce(gone.task, ''), coalesce(gone.queue, ''), coalesce(gone.priority, 5), gone.key, coalesce(gone.args, ''),
       coalesce(gone.signature, ''), coalesce(gone.created_at, 0), coalesce(gone.due_at, 0), coalesce(gone.run_at, 0), ended.started_at, gone.instance, coalesce(gone.token, 0),
       ended.outcome, ended.failures, ended.crashes, gone.retries, gone.timeout, coalesce(gone.crash_limit, 0), coalesce(gone."unique", ''),
       coalesce(gone.cancel_requested, false), gone.progress, ended.error, gone.on_dead, coalesce(gone.replays, 0), coalesce(gone.tenant, ''), gone.schedule, gone.trace
  FROM gone
  JOIN ended ON ended.id = gone.id;

-- name: requeue
-- Make running jobs pending again; they are locked.
-- Columns: id, run_at, failures, crashes, unique, blocked_on, blocked_since, error.
UPDATE drumbeat.job
   SET state = 'pending',
       instance = NULL,
       claimed_at = NULL,
       progress = NULL,
       run_at = back.run_at,
       failures = back.failures,
       crashes = back.crashes,
       "unique" = back."unique",
       blocked_on = back.blocked_on,
       blocked_since = back.blocked_since,
       error = coalesce(back.error, job.error)
  FROM unnest($1::text[]::uuid[], $2::bigint[], $3::integer[], $4::integer[], $5::text[], $6::text[], $7::bigint[],
              $8::text[])
       AS back (id, run_at, failures, crashes, "unique", blocked_on, blocked_since, error)
 WHERE job.id = ANY ($1::text[]::uuid[])
   AND job.id = back.id;

-- name: insert_attempts
-- Columns: id, token, instance, outcome, started_at, finished_at, error.
INSERT INTO drumbeat.attempt (id, token, instance, outcome, started_at, finished_at, error)
SELECT id, token, instance, outcome, started_at, finished_at, error
  FROM unnest($1::text[]::uuid[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[])
       AS attempt (id, token, instance, outcome, started_at, finished_at, error)
    ON CONFLICT DO NOTHING;

-- name: recorded
-- What is on record about these (id, token) of this instance: the outcome, or null. In the order of the question.
SELECT coalesce((SELECT history.outcome
                   FROM drumbeat.history
                  WHERE history.id = wanted.id AND history.token = wanted.token AND history.instance = $1
                  LIMIT 1),
                (SELECT dead.outcome
                   FROM drumbeat.dead
                  WHERE dead.id = wanted.id AND dead.token = wanted.token AND dead.instance = $1),
                (SELECT attempt.outcome
                   FROM drumbeat.attempt
                  WHERE attempt.id = wanted.id AND attempt.token = wanted.token AND attempt.instance = $1))
  FROM unnest($2::text[]::uuid[], $3::bigint[]) WITH ORDINALITY AS wanted (id, token, place)
 ORDER BY wanted.place;

-- name: count_refused
UPDATE drumbeat.instance
   SET refused = refused + $2
 WHERE id = $1;

-- name: running
SELECT id::text, token
  FROM drumbeat.job
 WHERE instance = $1
   AND state = 'running'
 ORDER BY job.id;

-- name: note
-- $1 instance. Columns: id, token, progress.
UPDATE drumbeat.job
   SET progress = note.progress
  FROM unnest($2::text[]::uuid[], $3::bigint[], $4::text[]) AS note (id, token, progress)
 WHERE job.id = ANY ($2::text[]::uuid[])
   AND job.id = note.id
   AND job.token = note.token
   AND job.instance = $1;

-- name: lock
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

-- name: states
-- How these jobs ended; nothing for one that is nowhere.
SELECT history.id::text, history.state
  FROM drumbeat.history
 WHERE history.id = ANY ($1::text[]::uuid[])
 UNION ALL
SELECT dead.id::text, dead.state
  FROM drumbeat.dead
 WHERE dead.id = ANY ($1::text[]::uuid[]);

-- name: request_cancel
UPDATE drumbeat.job
   SET cancel_requested = true
 WHERE id = ANY ($1::text[]::uuid[]);

-- name: run_now
  WITH due AS MATERIALIZED (
       SELECT id
         FROM drumbeat.job
        WHERE id = ANY ($1::text[]::uuid[])
          AND state = 'pending'
        ORDER BY id
          FOR UPDATE)
UPDATE drumbeat.job
   SET run_at = least(run_at, drumbeat.now_us())
 WHERE id = ANY (ARRAY(SELECT due.id FROM due))
RETURNING drumbeat.now_us();

-- name: lock_dead_letters
-- What a replay must know, locked in the order of ids.
SELECT id::text, task, key, "unique"
  FROM drumbeat.dead
 WHERE id = ANY ($1::text[]::uuid[])
 ORDER BY dead.id
   FOR UPDATE;

-- name: insert_last_attempts
-- Before a dead letter lives again: its last run becomes one of its earlier runs.
INSERT INTO drumbeat.attempt (id, token, instance, outcome, started_at, finished_at, error)
SELECT id, token, instance, outcome, started_at, finished_at, error
  FROM drumbeat.dead
 WHERE id = ANY ($1::text[]::uuid[])
   AND outcome IS NOT NULL
    ON CONFLICT DO NOTHING;

-- name: replay
-- A new life under the same id. The token goes on growing from where it was.
  WITH gone AS (
       DELETE FROM drumbeat.dead
        WHERE id = ANY ($1::text[]::uuid[])
       RETURNING id, task, queue, priority, key, args, signature, created_at, due_at, token, retries, timeout, crash_limit,
                 "unique", on_dead, replays, tenant, schedule, trace)
INSERT INTO drumbeat.job (id, task, queue, priority, key, args, signature, created_at, due_at, run_at, token, retries,
                          timeout, crash_limit, "unique", on_dead, replays, tenant, schedule, trace)
SELECT id, task, queue, CASE WHEN priority BETWEEN 0 AND 9 THEN priority ELSE 5 END, key, args, signature, created_at, due_at,
       drumbeat.now_us(), token, retries, timeout, crash_limit, "unique", on_dead, least(replays, 2147483646) + 1, tenant, schedule,
       trace
  FROM gone
RETURNING id::text, drumbeat.now_us() AS now;

-- name: discard
  WITH gone AS (
       DELETE FROM drumbeat.dead
        WHERE id = ANY ($1::text[]::uuid[])
       RETURNING id, task, queue, state, priority, key, args, signature, created_at, due_at, run_at, started_at, finished_at,
                 instance, token, outcome, failures, crashes, retries, timeout, crash_limit, "unique", cancel_requested,
                 progress, result, result_error, error, on_dead, replays, tenant, schedule, trace)
INSERT INTO drumbeat.history (id, task, queue, state, priority, key, args, signature, created_at, due_at, run_at, started_at,
                              finished_at, instance, token, outcome, failures, crashes, retries, timeout, crash_limit,
                              "unique", cancel_requested, progress, result, result_error, error, on_dead, replays, tenant,
                              schedule, trace)
SELECT id, task, queue, state, priority, key, args, signature, created_at, due_at, run_at, started_at, finished_at, instance,
       token, outcome, failures, crashes, retries, timeout, crash_limit, "unique", cancel_requested, progress, result,
       result_error, error, on_dead, replays, tenant, schedule, trace
  FROM gone
RETURNING id::text;

-- name: ended
-- How jobs ended; state is null for a live one. A job that is nowhere has no row. $2: only history since then.
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

-- name: lock_expired_waits
-- Jobs that have waited since before $2 for something beginning with $1, locked. Columns as in rows.job.
SELECT id::text, task, queue, state, priority, key, args, signature, created_at, due_at, run_at, claimed_at,
       NULL::bigint AS finished_at, instance, token, NULL AS outcome, failures, crashes, retries, timeout, crash_limit,
       "unique", blocked_on, blocked_since, cancel_requested, progress, NULL AS result, NULL AS result_error, error, on_dead,
       replays, tenant, schedule, trace, drumbeat.now_us() AS now
  FROM drumbeat.job
 WHERE blocked_on >= $1
   AND starts_with(blocked_on, $1)
   AND blocked_since < $2
   AND state = 'pending'
   AND blocked_on IS NOT NULL
 LIMIT $3
   FOR UPDATE SKIP LOCKED;

-- name: prune
-- The oldest of one day of history, with their attempts. $1 from, $2 before, $3 limit.
  WITH old AS MATERIALIZED (
       SELECT history.id
         FROM drumbeat.history
        WHERE history.finished_at >= $1
          AND history.finished_at < $2
        ORDER BY history.finished_at
        LIMIT $3),
       attempts AS (
       DELETE FROM drumbeat.attempt
        WHERE id = ANY (ARRAY(SELECT old.id FROM old))),
       pruned AS (
       DELETE FROM drumbeat.history
        WHERE id = ANY (ARRAY(SELECT old.id FROM old))
          AND finished_at >= $1
          AND finished_at < $2
       RETURNING 1)
SELECT count(*)
  FROM pruned;

-- name: prune_attempts
-- Attempts of jobs that went with a whole day.
DELETE FROM drumbeat.attempt
 WHERE ctid = ANY (ARRAY(
       SELECT attempt.ctid
         FROM drumbeat.attempt
        WHERE attempt.finished_at < $1
          AND NOT EXISTS (SELECT FROM drumbeat.job WHERE job.id = attempt.id)
          AND NOT EXISTS (SELECT FROM drumbeat.dead WHERE dead.id = attempt.id)
          AND NOT EXISTS (SELECT FROM drumbeat.history WHERE history.id = attempt.id)
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
