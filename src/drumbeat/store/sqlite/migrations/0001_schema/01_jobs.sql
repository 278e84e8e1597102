-- oldest_code: 1
-- Jobs from enqueue to the record of their end.
-- Times are microseconds UTC. Structured values (errors, roles) are JSON text.

CREATE TABLE drumbeat_meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

-- The priorities. A claim scans them one by one, so that it never steps over future jobs of a more urgent priority.
CREATE TABLE drumbeat_level (
    priority INTEGER PRIMARY KEY
);
INSERT INTO drumbeat_level (priority)
VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);

-- Live jobs only: pending and running.
-- INSERT statements name all columns in the order of the table, with `seq` last: SQLite then builds the row in place instead of
-- copying it column by column. A column that a later migration adds comes after `seq`, and its INSERTs copy.
-- lane: of jobs under limits (10_lanes.sql); place: of those whose lane has an order.
-- is_parent: 1 if it has children, 2 if one of them binds its result.
CREATE TABLE drumbeat_job (
    id               TEXT NOT NULL,
    task             TEXT NOT NULL,
    queue            TEXT NOT NULL,
    priority         INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
    key              TEXT,
    args             TEXT NOT NULL,
    signature        TEXT NOT NULL,
    retries          INTEGER,
    timeout          INTEGER,
    crash_limit      INTEGER NOT NULL,
    "unique"         TEXT NOT NULL DEFAULT '',
    on_dead          TEXT,
    "group"          TEXT NOT NULL DEFAULT '',
    lane             TEXT NOT NULL DEFAULT '',
    trace            TEXT,
    parent           TEXT,
    workflow         TEXT,
    state            TEXT NOT NULL DEFAULT 'pending',
    created_at       INTEGER NOT NULL,
    due_at           INTEGER NOT NULL,
    run_at           INTEGER NOT NULL,
    claimed_at       INTEGER,
    instance         TEXT,
    is_parent        INTEGER NOT NULL DEFAULT 0,
    token            INTEGER NOT NULL DEFAULT 0,
    failures         INTEGER NOT NULL DEFAULT 0,
    crashes          INTEGER NOT NULL DEFAULT 0,
    blocked_on       TEXT,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    replays          INTEGER NOT NULL DEFAULT 0,
    schedule         TEXT,
    progress         TEXT,
    error            TEXT,
    expires_at       INTEGER,
    suspended        TEXT,
    open_parents     INTEGER,
    blocked_since    INTEGER,
    has_run          INTEGER NOT NULL DEFAULT 0,
    binds            INTEGER NOT NULL DEFAULT 0,
    place            INTEGER,
    seq              INTEGER PRIMARY KEY
);
CREATE UNIQUE INDEX drumbeat_job_pkey
    ON drumbeat_job (id);
CREATE INDEX drumbeat_job_for_claim
    ON drumbeat_job (queue, lane, priority, run_at, id) WHERE state = 'pending' AND blocked_on IS NULL;
-- Jobs of lanes whose jobs run in the order of enqueue.
CREATE INDEX drumbeat_job_in_order
    ON drumbeat_job (queue, lane, place, id) WHERE state = 'pending' AND blocked_on IS NULL AND place IS NOT NULL;
-- A blocked job is pending: a claim sets blocked_on to null. The condition omits the state so that claims do not change these indexes.
CREATE INDEX drumbeat_job_blocked
    ON drumbeat_job (blocked_on, queue, priority, run_at, id) WHERE blocked_on IS NOT NULL;
CREATE INDEX drumbeat_job_blocked_since
    ON drumbeat_job (blocked_on, blocked_since) WHERE blocked_since IS NOT NULL;
CREATE INDEX drumbeat_job_of_instance
    ON drumbeat_job (instance) WHERE state = 'running';
CREATE INDEX drumbeat_job_by_key
    ON drumbeat_job (task, key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX drumbeat_job_one_live_per_key
    ON drumbeat_job (task, key) WHERE "unique" = 'live';
CREATE UNIQUE INDEX drumbeat_job_one_pending_per_key
    ON drumbeat_job (task, key) WHERE "unique" = 'pending' AND state = 'pending';
-- Jobs that have failed or crashed before. The condition omits the state so that a claim does not change this index.
CREATE INDEX drumbeat_job_retrying
    ON drumbeat_job (run_at, id) WHERE failures + crashes > 0;
-- Jobs that have slept or waited for a signal; without the state, for the same reason.
CREATE INDEX drumbeat_job_suspended
    ON drumbeat_job (suspended, run_at) WHERE suspended IS NOT NULL;
-- Jobs that expire if they have not started by then; without the state, for the same reason.
CREATE INDEX drumbeat_job_expiring
    ON drumbeat_job (expires_at) WHERE expires_at IS NOT NULL AND failures + crashes + replays = 0;
-- Which job enqueued which. Only jobs with a parent are in the indexes of these three tables: others cost nothing more.
CREATE INDEX drumbeat_job_by_parent
    ON drumbeat_job (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX drumbeat_job_by_workflow
    ON drumbeat_job (workflow, id) WHERE workflow IS NOT NULL;

-- Jobs that have ended: succeeded, cancelled, and discarded dead letters. Rows are in the order of their end.
-- No column is NOT NULL: rows are copied from tables that check it, and each check would be repeated for every job.
CREATE TABLE drumbeat_history (
    id               TEXT,
    task             TEXT,
    queue            TEXT,
    priority         INTEGER,
    key              TEXT,
    args             TEXT,
    signature        TEXT,
    retries          INTEGER,
    timeout          INTEGER,
    crash_limit      INTEGER,
    "unique"         TEXT,
    on_dead          TEXT,
    "group"          TEXT,
    lane             TEXT,
    trace            TEXT,
    parent           TEXT,
    workflow         TEXT,
    state            TEXT,
    created_at       INTEGER,
    due_at           INTEGER,
    run_at           INTEGER,
    started_at       INTEGER,
    finished_at      INTEGER,
    instance         TEXT,
    token            INTEGER,
    failures         INTEGER,
    crashes          INTEGER,
    cancel_requested INTEGER,
    replays          INTEGER,
    schedule         TEXT,
    progress         TEXT,
    result           TEXT,
    result_error     TEXT,
    error            TEXT,
    expires_at       INTEGER,
    outcome          TEXT,
    seq              INTEGER PRIMARY KEY
);
CREATE UNIQUE INDEX drumbeat_history_pkey
    ON drumbeat_history (id);
CREATE INDEX drumbeat_history_by_task
    ON drumbeat_history (task, id);
CREATE INDEX drumbeat_history_by_key
    ON drumbeat_history (key, id) WHERE key IS NOT NULL;
CREATE INDEX drumbeat_history_not_succeeded
    ON drumbeat_history (state, task, id) WHERE state <> 'succeeded';
CREATE INDEX drumbeat_history_by_parent
    ON drumbeat_history (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX drumbeat_history_by_workflow
    ON drumbeat_history (workflow, id) WHERE workflow IS NOT NULL;

-- Dead letters, until a person replays or discards them.
CREATE TABLE drumbeat_dead (
    id               TEXT PRIMARY KEY,
    task             TEXT NOT NULL,
    queue            TEXT NOT NULL,
    priority         INTEGER NOT NULL,
    key              TEXT,
    args             TEXT NOT NULL,
    signature        TEXT NOT NULL,
    retries          INTEGER,
    timeout          INTEGER,
    crash_limit      INTEGER NOT NULL,
    "unique"         TEXT NOT NULL,
    on_dead          TEXT,
    "group"          TEXT NOT NULL,
    lane             TEXT NOT NULL,
    trace            TEXT,
    parent           TEXT,
    workflow         TEXT,
    state            TEXT NOT NULL DEFAULT 'dead',
    created_at       INTEGER NOT NULL,
    due_at           INTEGER NOT NULL,
    run_at           INTEGER NOT NULL,
    started_at       INTEGER,
    finished_at      INTEGER NOT NULL,
    instance         TEXT,
    token            INTEGER NOT NULL,
    failures         INTEGER NOT NULL,
    crashes          INTEGER NOT NULL,
    cancel_requested INTEGER NOT NULL,
    replays          INTEGER NOT NULL,
    schedule         TEXT,
    progress         TEXT,
    result           TEXT,
    result_error     TEXT,
    error            TEXT,
    expires_at       INTEGER,
    outcome          TEXT
) WITHOUT ROWID;
CREATE INDEX drumbeat_dead_by_task
    ON drumbeat_dead (task, id);
CREATE INDEX drumbeat_dead_by_parent
    ON drumbeat_dead (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX drumbeat_dead_by_workflow
    ON drumbeat_dead (workflow, id) WHERE workflow IS NOT NULL;

-- Ended attempts except a job's last one, which is in its row of history or dead.
CREATE TABLE drumbeat_attempt (
    id          TEXT NOT NULL,
    token       INTEGER NOT NULL,
    instance    TEXT,
    outcome     TEXT NOT NULL,
    started_at  INTEGER,
    finished_at INTEGER NOT NULL,
    error       TEXT,
    PRIMARY KEY (id, token)
) WITHOUT ROWID;

-- Paused queues; a queue without a row is open.
CREATE TABLE drumbeat_queue (
    name          TEXT PRIMARY KEY,
    paused_at     INTEGER NOT NULL,
    paused_by     TEXT NOT NULL,
    paused_reason TEXT NOT NULL
) WITHOUT ROWID;
