-- Limits, order and turns: core/lanes.py. Who adds a job or ends a run never touches the row of a lane, which it would hold until its
-- commit: triggers append to `news`. A claim locks lanes (only ever SKIP LOCKED, so that nobody waits for one), folds their news
-- and looks for jobs, in this order, each in a later statement: what commits between is still news.

-- A line: a task with a policy of its own, or ('') a queue with one. Policies are JSON text; `policy` is what holds now, made of what
-- code has declared and what people have set. `running`, `concurrency`, `starts` and `open_at` count where the line as a whole is
-- limited (is_limited), and such a line is locked before its lanes; of the line '' they count all jobs of the queue that are in lanes.
CREATE TABLE drumbeat.line (
    version     bigint NOT NULL,
    declared_at bigint NOT NULL,
    changed_at  bigint,
    open_at     bigint NOT NULL DEFAULT 0,
    running     integer NOT NULL DEFAULT 0,
    concurrency integer NOT NULL DEFAULT 2147483647,
    -- What lanes are still to be told of a change: 0 nothing, 1 limits, 2 that jobs are in order now, or not any more.
    untold      smallint NOT NULL DEFAULT 0,
    is_limited  boolean NOT NULL DEFAULT false,
    -- Its jobs are claimed for free slots only.
    needs_slot  boolean NOT NULL DEFAULT false,
    queue       text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    policy      text NOT NULL,
    declared    text NOT NULL,
    override    text,
    changed_by  text,
    reason      text,
    starts      text NOT NULL DEFAULT '[]',
    CONSTRAINT line_pkey PRIMARY KEY (queue, name)
) WITH (fillfactor = 50);

-- A lane: the jobs of a group in a line. Made by the claim that first reads news of it, deleted when it has been idle for a while.
-- greatest() ignores nulls: a lane without pending jobs must not be ready.
CREATE TABLE drumbeat.lane (
    head_at     bigint,
    turn_at     bigint NOT NULL DEFAULT 0,
    open_at     bigint NOT NULL DEFAULT 0,
    used_at     bigint NOT NULL,
    ready_at    bigint GENERATED ALWAYS AS (
                CASE WHEN head_at IS NOT NULL AND running < concurrency THEN greatest(head_at, turn_at, open_at) END) STORED,
    running     integer NOT NULL DEFAULT 0,
    concurrency integer NOT NULL DEFAULT 2147483647,
    credit      integer NOT NULL DEFAULT 0,
    levels      integer NOT NULL DEFAULT 0,
    own_weight  integer,
    queue       text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    line        text COLLATE "C" NOT NULL,
    starts      text NOT NULL DEFAULT '[]',
    own_bounds  text,
    CONSTRAINT lane_pkey PRIMARY KEY (queue, name)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = false
);
CREATE INDEX lane_ready
    ON drumbeat.lane (queue, line, ready_at, name) WHERE ready_at IS NOT NULL;
CREATE INDEX lane_idle
    ON drumbeat.lane (used_at) WHERE head_at IS NULL AND running = 0;

-- What has happened to lanes since a claim last looked: jobs that became pending or due earlier (run_at and their levels as bits),
-- and runs that ended.
CREATE TABLE drumbeat.news (
    id     bigint GENERATED ALWAYS AS IDENTITY,
    run_at bigint,
    levels integer NOT NULL DEFAULT 0,
    ended  integer NOT NULL DEFAULT 0,
    queue  text COLLATE "C" NOT NULL,
    lane   text COLLATE "C" NOT NULL,
    CONSTRAINT news_pkey PRIMARY KEY (queue, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.0,
    autovacuum_analyze_threshold = 50000,
    vacuum_truncate = false
);

-- The same news again in the same transaction is none: it becomes visible with the jobs of both. A setting remembers them, as long as
-- they are few; it ends with the transaction, and goes back with a savepoint.
CREATE FUNCTION drumbeat.tell_of_pending() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    told text := coalesce(current_setting('job_lanes.told', true), '');
    news text;
BEGIN
    IF length(told) < 640 THEN
        news := md5(ROW(TG_TABLE_SCHEMA, NEW.run_at, NEW.priority, NEW.queue, NEW.lane)::text);
        IF strpos(told, news) > 0 THEN
            RETURN NULL;
        END IF;
        PERFORM set_config('job_lanes.told', told || news, true);
    END IF;
    INSERT INTO drumbeat.news (queue, lane, run_at, levels)
    VALUES (NEW.queue, NEW.lane, NEW.run_at, 1 << NEW.priority);
    RETURN NULL;
END
$$;

CREATE FUNCTION drumbeat.tell_of_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    is_due boolean := NEW.state = 'pending' AND NEW.blocked_on IS NULL;
    ends   integer := (OLD.state = 'running' AND NEW.state <> 'running')::integer;
BEGIN
    -- A job that moves to another lane gives back the room of its own.
    IF OLD.lane <> NEW.lane AND OLD.lane <> '' AND ends > 0 THEN
        INSERT INTO drumbeat.news (queue, lane, ended)
        VALUES (OLD.queue, OLD.lane, ends);
    END IF;
    IF OLD.lane <> NEW.lane THEN
        ends := 0;
    END IF;
    IF NEW.lane <> '' THEN
        INSERT INTO drumbeat.news (queue, lane, run_at, levels, ended)
        VALUES (NEW.queue, NEW.lane, CASE WHEN is_due THEN NEW.run_at END, CASE WHEN is_due THEN 1 << NEW.priority ELSE 0 END,
                ends);
    END IF;
    RETURN NULL;
END
$$;

-- The hot statement tells of all its ends together, and says so for its own triggers, which run after it.
CREATE FUNCTION drumbeat.tell_of_end() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF current_setting('job_lanes.ends_told_at', true) IS DISTINCT FROM statement_timestamp()::text THEN
        INSERT INTO drumbeat.news (queue, lane, ended)
        VALUES (OLD.queue, OLD.lane, 1);
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION drumbeat.tell_of_ends(queues text[], lanes text[]) RETURNS integer
    LANGUAGE plpgsql VOLATILE
    AS $$
BEGIN
    INSERT INTO drumbeat.news (queue, lane, ended)
    SELECT gone.queue, gone.lane, count(*)
      FROM unnest(queues, lanes) AS gone (queue, lane)
     GROUP BY gone.queue, gone.lane;
    PERFORM set_config('job_lanes.ends_told_at', statement_timestamp()::text, true);
    RETURN cardinality(lanes);
END
$$;

-- By row, with a condition: no path can forget it, and plain jobs pay next to nothing.
CREATE TRIGGER job_becomes_pending
 AFTER INSERT ON drumbeat.job
   FOR EACH ROW WHEN (NEW.lane <> '' AND NEW.state = 'pending' AND NEW.blocked_on IS NULL)
       EXECUTE FUNCTION drumbeat.tell_of_pending();
CREATE TRIGGER job_changes
 AFTER UPDATE ON drumbeat.job
   FOR EACH ROW WHEN ((NEW.lane <> '' OR OLD.lane <> '')
                      AND (OLD.state = 'running' AND NEW.state <> 'running'
                           OR NEW.state = 'pending' AND NEW.blocked_on IS NULL
                              AND (OLD.state <> 'pending' OR OLD.blocked_on IS NOT NULL OR NEW.run_at < OLD.run_at)))
       EXECUTE FUNCTION drumbeat.tell_of_change();
CREATE TRIGGER job_ends
 AFTER DELETE ON drumbeat.job
   FOR EACH ROW WHEN (OLD.lane <> '' AND OLD.state = 'running')
       EXECUTE FUNCTION drumbeat.tell_of_end();

-- Fold the oldest news of each queue into their lanes, as far as these can be locked. A limited line is locked before its lanes;
-- `held` are such lines that are not locked. Lanes that are missing are made by one at a time: the insert would wait for another's.
CREATE FUNCTION drumbeat.fold_news(queues text[], held_queues text[], held text[], max_news integer) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET enable_nestloop = on
    AS $$
DECLARE
    now_at     bigint := drumbeat.now_us();
    seqs       bigint[];
    lane_of    integer[]; -- of each news, its place in the following
    lane_queue text[];
    lane_name  text[];
    is_locked  boolean[];
BEGIN
    WITH fresh AS MATERIALIZED (
         SELECT found.id, found.queue, found.lane, dense_rank() OVER (ORDER BY found.queue, found.lane) AS lane_number
           FROM unnest(queues) AS asked (queue)
          CROSS JOIN LATERAL (SELECT news.id, news.queue, news.lane
                                FROM drumbeat.news
                               WHERE news.queue = asked.queue
                               ORDER BY news.id
                               LIMIT max_news) AS found
          WHERE NOT EXISTS (SELECT
                              FROM unnest(held_queues, held) AS other (queue, line)
                             WHERE other.queue = found.queue AND other.line IN ('', split_part(found.lane, ' ', 1))))
    SELECT array_agg(fresh.id), array_agg(fresh.lane_number),
           (SELECT array_agg(told.queue ORDER BY told.lane_number)
              FROM (SELECT DISTINCT fresh.queue, fresh.lane_number FROM fresh) AS told),
           (SELECT array_agg(told.lane ORDER BY told.lane_number)
              FROM (SELECT DISTINCT fresh.lane, fresh.lane_number FROM fresh) AS told)
      INTO seqs, lane_of, lane_queue, lane_name
      FROM fresh;
    IF seqs IS NULL THEN
        RETURN;
    END IF;

    IF EXISTS (SELECT
                 FROM unnest(lane_queue, lane_name) AS told (queue, name)
                WHERE (SELECT 1 FROM drumbeat.lane WHERE lane.queue = told.queue AND lane.name = told.name) IS NULL)
       AND pg_try_advisory_xact_lock(hashtextextended('drumbeat' || '.new_lanes', 0))
    THEN
        INSERT INTO drumbeat.lane (queue, name, line, used_at)
        SELECT told.queue, told.name, split_part(told.name, ' ', 1), now_at
          FROM unnest(lane_queue, lane_name) AS told (queue, name)
         WHERE (SELECT 1 FROM drumbeat.lane WHERE lane.queue = told.queue AND lane.name = told.name) IS NULL
         ORDER BY told.queue, told.name
            ON CONFLICT DO NOTHING;
    END IF;

    SELECT array_agg(found.queue IS NOT NULL ORDER BY told.lane_number)
      INTO is_locked
      FROM unnest(lane_queue, lane_name) WITH ORDINALITY AS told (queue, name, lane_number)
      LEFT JOIN LATERAL (SELECT lane.queue
                           FROM drumbeat.lane
                          WHERE lane.queue = told.queue
                            AND lane.name = told.name
                            FOR NO KEY UPDATE SKIP LOCKED) AS found
        ON true;

    -- Another may have folded some of them before we had the lock: they are gone now.
    WITH taken AS (
         DELETE FROM drumbeat.news
          WHERE news.queue = ANY (queues)
            AND news.id = ANY (ARRAY(SELECT told.id
                                       FROM unnest(seqs, lane_of) AS told (id, lane_number)
                                      WHERE is_locked[told.lane_number]))
         RETURNING news.queue, news.lane, news.run_at, news.levels, news.ended),
         sums AS MATERIALIZED (
         SELECT taken.queue, taken.lane, min(taken.run_at) AS run_at, bit_or(taken.levels) AS levels,
                sum(taken.ended)::integer AS ended
           FROM taken
          GROUP BY taken.queue, taken.lane),
         folded AS (
         UPDATE drumbeat.lane
            SET head_at = least(lane.head_at, sums.run_at),
                levels = lane.levels | sums.levels,
                running = lane.running - sums.ended,
                used_at = now_at
           FROM sums
          WHERE lane.queue = sums.queue
            AND lane.name = sums.lane)
    UPDATE drumbeat.line
       SET running = line.running - ended.number
      FROM (SELECT sums.queue, each.line, sum(sums.ended)::integer AS number
              FROM sums
             CROSS JOIN LATERAL (SELECT DISTINCT unnest(ARRAY['', split_part(sums.lane, ' ', 1)]) AS line) AS each
             WHERE sums.ended > 0
             GROUP BY sums.queue, each.line) AS ended
     WHERE line.queue = ended.queue
       AND line.name = ended.line
       AND line.is_limited;
END
$$;

-- Of the lanes of these queues: whether there is news (1), when the first is ready in lines that have room, and the first of those
-- whose jobs are claimed for free slots only.
CREATE FUNCTION drumbeat.find_lanes_due(queues text[]) RETURNS bigint[]
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
BEGIN
RETURN (
SELECT ARRAY[(EXISTS (SELECT
                        FROM unnest(queues) AS asked (queue)
                       WHERE (SELECT 1 FROM drumbeat.news WHERE news.queue = asked.queue LIMIT 1) IS NOT NULL))::integer,
             min(found.ready_at) FILTER (WHERE NOT found.needs_slot),
             min(found.ready_at) FILTER (WHERE found.needs_slot)]
  FROM (SELECT line.needs_slot,
               CASE WHEN line.running < line.concurrency AND coalesce(whole.running < whole.concurrency, true)
                    THEN (SELECT greatest(lane.ready_at, line.open_at, whole.open_at)
                            FROM drumbeat.lane
                           WHERE lane.queue = line.queue
                             AND lane.line = line.name
                             AND lane.ready_at IS NOT NULL
                           ORDER BY lane.ready_at
                           LIMIT 1)
                END AS ready_at
          FROM drumbeat.line
          LEFT JOIN drumbeat.line AS whole
            ON whole.queue = line.queue
           AND whole.name = ''
         WHERE line.queue = ANY (queues)) AS found);
END
$$;

-- What a claim begins with. Rows: the lines of these queues that it may take from (lane is null), then ready lanes of them, locked, in
-- the order of their turn, up to max_lanes of each line that has room. `now_at` was read after the locks: with an earlier one, starts
-- and ends were recorded in another order than they happened. No rows: policies are being changed at this moment.
CREATE FUNCTION drumbeat.open_lanes(queues text[], max_lanes integer, max_news integer)
    RETURNS TABLE (queue text, line text, lane text, place tid, policy text, running integer, head_at bigint, turn_at bigint,
                   open_at bigint, starts text, credit integer, levels integer, concurrency integer, own_bounds text,
                   own_weight integer, now_at bigint)
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
#variable_conflict use_column
DECLARE
    held_queues text[];
    held_lines  text[];
    due_at      bigint;
BEGIN
    -- In statements of their own: what follows must see what was committed before the lock was granted.
    IF NOT pg_try_advisory_xact_lock_shared(hashtextextended('drumbeat' || '.policies', 0)) THEN
        RETURN;
    END IF;
    WITH locked AS MATERIALIZED (
         SELECT line.queue, line.name
           FROM drumbeat.line
          WHERE line.queue = ANY (queues)
            AND line.is_limited
          ORDER BY line.queue, line.name
            FOR NO KEY UPDATE SKIP LOCKED)
    SELECT coalesce(array_agg(line.queue), '{}'), coalesce(array_agg(line.name), '{}')
      INTO held_queues, held_lines
      FROM drumbeat.line
     WHERE line.queue = ANY (queues)
       AND line.is_limited
       AND NOT EXISTS (SELECT FROM locked WHERE locked.queue = line.queue AND locked.name = line.name);
    PERFORM drumbeat.fold_news(queues, held_queues, held_lines, max_news);

    due_at := (date_part('epoch', clock_timestamp()) * 1000000)::bigint;
    RETURN QUERY
    WITH usable AS MATERIALIZED (
         SELECT line.queue, line.name, line.policy, line.running, line.starts, line.ctid AS place,
                line.running < line.concurrency AND line.open_at <= due_at
                AND coalesce(whole.running < whole.concurrency AND whole.open_at <= due_at, true)
                AND (SELECT 1 FROM drumbeat.queue AS paused WHERE paused.name = line.queue) IS NULL AS has_room
           FROM drumbeat.line
           LEFT JOIN drumbeat.line AS whole
             ON whole.queue = line.queue
            AND whole.name = ''
          WHERE line.queue = ANY (queues)
            AND NOT EXISTS (SELECT
                              FROM unnest(held_queues, held_lines) AS other (queue, line)
                             WHERE other.queue = line.queue AND other.line IN ('', line.name))),
         ready AS MATERIALIZED (
         SELECT usable.queue, usable.name AS line, turn.*
           FROM usable
          CROSS JOIN LATERAL (SELECT lane.name AS lane, lane.ctid AS place, NULL::text AS policy, lane.running, lane.head_at,
                                     lane.turn_at, lane.open_at, lane.starts, lane.credit, lane.levels, lane.concurrency,
                                     lane.own_bounds, lane.own_weight
                                FROM drumbeat.lane
                               WHERE lane.queue = usable.queue
                                 AND lane.line = usable.name
                                 AND lane.ready_at <= due_at
                                 AND lane.ready_at IS NOT NULL
                               ORDER BY lane.ready_at, lane.name
                               LIMIT max_lanes
                                 FOR NO KEY UPDATE SKIP LOCKED) AS turn
          WHERE usable.has_room)
    SELECT usable.queue, usable.name, NULL::text, usable.place, usable.policy, usable.running, NULL::bigint, NULL::bigint,
           NULL::bigint, usable.starts, NULL::integer, NULL::integer, NULL::integer, NULL::text, NULL::integer, NULL::bigint
      FROM usable
     UNION ALL
    SELECT ready.*, (date_part('epoch', clock_timestamp()) * 1000000)::bigint
      FROM ready;
END
$$;
