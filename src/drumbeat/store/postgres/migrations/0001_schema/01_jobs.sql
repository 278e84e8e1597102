-- oldest_code: 1
-- Jobs from enqueue to the record of their end.
-- Times are microseconds UTC by the server's clock. Structured values (errors, roles) are JSON text. Names are compared
-- byte by byte (COLLATE "C"): the server's locale must not change the order of a queue.

CREATE SCHEMA IF NOT EXISTS drumbeat;

CREATE TABLE drumbeat.meta (
    name  text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL
);

-- The store's clock. STABLE, so that it can be an index condition; clock_timestamp() cannot.
CREATE FUNCTION drumbeat.now_us() RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT (date_part(''epoch'', statement_timestamp()) * 1000000)::bigint';

-- Live jobs only: pending and running. Columns are in the order of their alignment, so that rows are narrow.
CREATE TABLE drumbeat.job (
    id               uuid NOT NULL,
    created_at       bigint NOT NULL,
    due_at           bigint NOT NULL,
    run_at           bigint NOT NULL,
    token            bigint NOT NULL DEFAULT 0,
    claimed_at       bigint,
    timeout          bigint,
    expires_at       bigint,
    blocked_since    bigint,
    place            bigint,
    failures         integer NOT NULL DEFAULT 0,
    crashes          integer NOT NULL DEFAULT 0,
    crash_limit      integer NOT NULL,
    replays          integer NOT NULL DEFAULT 0,
    retries          integer,
    open_parents     integer,
    priority         smallint NOT NULL CHECK (priority BETWEEN 0 AND 9),
    cancel_requested boolean NOT NULL DEFAULT false,
    has_run          boolean NOT NULL DEFAULT false,
    is_parent        boolean NOT NULL DEFAULT false,
    binds            boolean NOT NULL DEFAULT false,
    state            text COLLATE "C" NOT NULL DEFAULT 'pending',
    queue            text COLLATE "C" NOT NULL,
    task             text COLLATE "C" NOT NULL,
    key              text COLLATE "C",
    signature        text COLLATE "C" NOT NULL,
    "unique"         text COLLATE "C" NOT NULL DEFAULT '',
    "group"          text COLLATE "C" NOT NULL DEFAULT '',
    lane             text COLLATE "C" NOT NULL DEFAULT '',
    instance         text COLLATE "C",
    blocked_on       text COLLATE "C",
    suspended        text COLLATE "C",
    on_dead          text COLLATE "C",
    schedule         text COLLATE "C",
    trace            text COLLATE "C",
    parent           text COLLATE "C",
    workflow         text COLLATE "C",
    args             text NOT NULL,
    progress         text,
    error            text,
    CONSTRAINT job_pkey PRIMARY KEY (id)
) WITH (
    -- Rows are short-lived: vacuum by count, not by share, at full speed, and never lock the table to truncate it.
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.0,
    autovacuum_analyze_threshold = 50000,
    vacuum_truncate = false
);
CREATE INDEX job_for_claim
    ON drumbeat.job (queue, lane, priority, run_at, id) WHERE state = 'pending' AND blocked_on IS NULL;
-- Jobs of lanes in the order of enqueue; `place` is set where a replay joins at the end. Of all lanes, also of those that need it not:
-- a line that gets an order has a million jobs in order at once, and no add that is under way can miss it.
CREATE INDEX job_in_order
    ON drumbeat.job (queue, lane, coalesce(place, created_at), id)
 WHERE state = 'pending' AND blocked_on IS NULL AND lane <> '';
CREATE INDEX job_blocked
    ON drumbeat.job (blocked_on, queue, priority, run_at, id) WHERE state = 'pending' AND blocked_on IS NOT NULL;
CREATE INDEX job_blocked_since
    ON drumbeat.job (blocked_on, blocked_since)
 WHERE state = 'pending' AND blocked_on IS NOT NULL AND blocked_on <> 'parents';
CREATE INDEX job_of_instance
    ON drumbeat.job (instance) WHERE state = 'running';
CREATE INDEX job_cancel_requested
    ON drumbeat.job (instance) WHERE state = 'running' AND cancel_requested;
CREATE INDEX job_by_key
    ON drumbeat.job (task, key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX job_one_live_per_key
    ON drumbeat.job (task, key) WHERE "unique" = 'live';
CREATE UNIQUE INDEX job_one_pending_per_key
    ON drumbeat.job (task, key) WHERE "unique" = 'pending' AND state = 'pending';
-- Unique jobs of both kinds that were never claimed: two transactions that add one at the same time do not see each other's.
CREATE UNIQUE INDEX job_one_new_per_key
    ON drumbeat.job (task, key) WHERE "unique" <> '' AND state = 'pending' AND token = 0;
CREATE INDEX job_running_beside_live
    ON drumbeat.job (task, key) WHERE "unique" = 'pending' AND state = 'running';
-- Jobs that have failed or crashed before. The condition omits the state so that a claim does not change this index.
CREATE INDEX job_retrying
    ON drumbeat.job (run_at, id) WHERE failures + crashes > 0;
-- Jobs that have slept or waited for a signal; without the state, for the same reason.
CREATE INDEX job_suspended
    ON drumbeat.job (suspended, run_at) WHERE suspended IS NOT NULL;
-- Jobs that expire if they have not started by then; without the state, for the same reason.
CREATE INDEX job_expiring
    ON drumbeat.job (expires_at) WHERE expires_at IS NOT NULL AND failures + crashes + replays = 0;
-- Which job enqueued which. Only jobs with a parent are in the indexes of these three tables: others cost nothing more.
CREATE INDEX job_by_parent
    ON drumbeat.job (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX job_by_workflow
    ON drumbeat.job (workflow, id) WHERE workflow IS NOT NULL;

-- Jobs that have ended: succeeded, cancelled, and discarded dead letters. One partition for each day (UTC) of finished_at,
-- created ahead by every instance; old ones are detached and dropped.
CREATE TABLE drumbeat.history (
    id               uuid NOT NULL,
    created_at       bigint NOT NULL,
    due_at           bigint NOT NULL,
    run_at           bigint NOT NULL,
    started_at       bigint,
    finished_at      bigint NOT NULL,
    token            bigint NOT NULL,
    timeout          bigint,
    expires_at       bigint,
    failures         integer NOT NULL,
    crashes          integer NOT NULL,
    crash_limit      integer NOT NULL,
    replays          integer NOT NULL,
    retries          integer,
    priority         smallint NOT NULL,
    cancel_requested boolean NOT NULL,
    state            text COLLATE "C" NOT NULL,
    queue            text COLLATE "C" NOT NULL,
    task             text COLLATE "C" NOT NULL,
    key              text COLLATE "C",
    signature        text COLLATE "C" NOT NULL,
    "unique"         text COLLATE "C" NOT NULL,
    "group"          text COLLATE "C" NOT NULL,
    lane             text COLLATE "C" NOT NULL,
    instance         text COLLATE "C",
    outcome          text COLLATE "C",
    on_dead          text COLLATE "C",
    schedule         text COLLATE "C",
    trace            text COLLATE "C",
    parent           text COLLATE "C",
    workflow         text COLLATE "C",
    args             text NOT NULL,
    progress         text,
    result           text,
    result_error     text,
    error            text
) PARTITION BY RANGE (finished_at);
CREATE INDEX history_by_id
    ON drumbeat.history (id);
CREATE INDEX history_by_task
    ON drumbeat.history (task, id);
CREATE INDEX history_by_key
    ON drumbeat.history (key, id) WHERE key IS NOT NULL;
CREATE INDEX history_not_succeeded
    ON drumbeat.history (state, task, id) WHERE state <> 'succeeded';
CREATE INDEX history_by_parent
    ON drumbeat.history (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX history_by_workflow
    ON drumbeat.history (workflow, id) WHERE workflow IS NOT NULL;

-- Dead letters, until a person replays or discards them. The columns are those of history.
CREATE TABLE drumbeat.dead (
    LIKE drumbeat.history,
    CONSTRAINT dead_pkey PRIMARY KEY (id)
);
CREATE INDEX dead_by_task
    ON drumbeat.dead (task, id);
CREATE INDEX dead_by_parent
    ON drumbeat.dead (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX dead_by_workflow
    ON drumbeat.dead (workflow, id) WHERE workflow IS NOT NULL;

-- Ended attempts except a job's last one, which is in its row of history or dead.
CREATE TABLE drumbeat.attempt (
    id          uuid NOT NULL,
    token       bigint NOT NULL,
    started_at  bigint,
    finished_at bigint NOT NULL,
    instance    text COLLATE "C",
    outcome     text COLLATE "C" NOT NULL,
    error       text,
    CONSTRAINT attempt_pkey PRIMARY KEY (id, token)
);
CREATE INDEX attempt_by_age
    ON drumbeat.attempt (finished_at);

-- Paused queues; a queue without a row is open.
CREATE TABLE drumbeat.queue (
    name          text COLLATE "C" PRIMARY KEY,
    paused_at     bigint NOT NULL,
    paused_by     text NOT NULL,
    paused_reason text NOT NULL
);

-- Create the partition of history for the day that begins at this time, if it is missing. CREATE, then ATTACH: that takes no lock
-- which a finishing job would wait for. SECURITY DEFINER: a role that writes jobs need not own tables.
CREATE FUNCTION drumbeat.ensure_history_day(day bigint) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    name text := 'history_' || to_char(to_timestamp(day / 1000000) AT TIME ZONE 'UTC', 'YYYYMMDD');
BEGIN
    IF to_regclass(format('%I.%I', 'drumbeat', name)) IS NOT NULL THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('drumbeat' || '.history', 0));
    -- A query, because to_regclass may answer from a cache that is older than our wait for the lock.
    IF EXISTS (SELECT FROM pg_catalog.pg_class AS part
                 JOIN pg_catalog.pg_namespace AS space ON space.oid = part.relnamespace
                WHERE part.relname = name AND space.nspname = 'drumbeat')
    THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE %I.%I (LIKE %I.history INCLUDING ALL)', 'drumbeat', name, 'drumbeat');
    EXECUTE format('ALTER TABLE %I.history ATTACH PARTITION %I.%I FOR VALUES FROM (%s) TO (%s)',
                   'drumbeat', 'drumbeat', name, day, day + 86400000000);
    RETURN true;
END
$$;
