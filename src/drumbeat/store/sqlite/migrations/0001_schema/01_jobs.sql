-- oldest_code: 1
-- Jobs from enqueue to the record of their end.
-- Times are microseconds UTC. Structured values (errors, roles) are JSON text.

CREATE TABLE drumbeat_meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

-- The priorities. A claim walks them one by one, so that future jobs of a more urgent one are never stepped over.
CREATE TABLE drumbeat_level (
    priority INTEGER PRIMARY KEY
);
INSERT INTO drumbeat_level (priority)
VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);

-- Live jobs only: pending and running.
-- Here and in history `seq` is the last column: INSERT statements then name all others in the order of the table, and SQLite
-- builds the row where it stands instead of copying it column by column.
CREATE TABLE drumbeat_job (
    id               TEXT NOT NULL,
    task             TEXT NOT NULL,
    queue            TEXT NOT NULL,
    state            TEXT NOT NULL DEFAULT 'pending',
    priority         INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
    key              TEXT,
    args             TEXT NOT NULL,
    signature        TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    due_at           INTEGER NOT NULL,
    run_at           INTEGER NOT NULL,
    claimed_at       INTEGER,
    instance         TEXT,
    token            INTEGER NOT NULL DEFAULT 0,
    failures         INTEGER NOT NULL DEFAULT 0,
    crashes          INTEGER NOT NULL DEFAULT 0,
    retries          INTEGER,
    timeout          INTEGER,
    crash_limit      INTEGER NOT NULL,
    "unique"         TEXT NOT NULL DEFAULT '',
    blocked_on        TEXT,
    blocked_since      INTEGER,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    progress         TEXT,
    error            TEXT,
    on_dead          TEXT,
    replays             INTEGER NOT NULL DEFAULT 0,
    tenant           TEXT NOT NULL DEFAULT '',
    schedule         TEXT,
    trace            TEXT, -- the span that enqueued it: a W3C traceparent
    seq              INTEGER PRIMARY KEY
);
CREATE UNIQUE INDEX drumbeat_job_one_per_id
    ON drumbeat_job (id);
CREATE INDEX drumbeat_job_for_claim
    ON drumbeat_job (queue, priority, run_at, id) WHERE state = 'pending' AND blocked_on IS NULL;
-- Who waits is pending: a claim makes blocked_on null. The state is left out so that ordinary claims do not touch these.
CREATE INDEX drumbeat_job_for_those_who_can
    ON drumbeat_job (blocked_on, queue, priority, run_at, id) WHERE blocked_on IS NOT NULL;
CREATE INDEX drumbeat_job_waiting_since
    ON drumbeat_job (blocked_on, blocked_since) WHERE blocked_on IS NOT NULL;
CREATE INDEX drumbeat_job_of_instance
    ON drumbeat_job (instance) WHERE state = 'running';
CREATE INDEX drumbeat_job_by_key
    ON drumbeat_job (task, key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX drumbeat_job_one_live_per_key
    ON drumbeat_job (task, key) WHERE "unique" = 'live';
CREATE UNIQUE INDEX drumbeat_job_one_pending_per_key
    ON drumbeat_job (task, key) WHERE "unique" = 'pending' AND state = 'pending';
-- Those that have failed or crashed before: few, and people look for them. The state is left out so that a claim does not touch
-- this index.
CREATE INDEX drumbeat_job_tried
    ON drumbeat_job (run_at, id) WHERE failures + crashes > 0;

-- Jobs that have ended: succeeded, cancelled, and dead letters that somebody discarded. Rows are in the order of their end.
-- Nothing says NOT NULL: rows are only ever copied from tables that do, and each check would be made for every job.
CREATE TABLE drumbeat_history (
    id               TEXT,
    task             TEXT,
    queue            TEXT,
    state            TEXT,
    priority         INTEGER,
    key              TEXT,
    args             TEXT,
    signature        TEXT,
    created_at       INTEGER,
    due_at           INTEGER,
    run_at           INTEGER,
    started_at       INTEGER,
    finished_at      INTEGER,
    instance         TEXT,
    token            INTEGER,
    outcome          TEXT,
    failures         INTEGER,
    crashes          INTEGER,
    retries          INTEGER,
    timeout          INTEGER,
    crash_limit      INTEGER,
    "unique"         TEXT,
    cancel_requested INTEGER,
    progress         TEXT,
    result           TEXT,
    result_error     TEXT,
    error            TEXT,
    on_dead          TEXT,
    replays             INTEGER,
    tenant           TEXT,
    schedule         TEXT,
    trace            TEXT, -- the span that enqueued it: a W3C traceparent
    seq              INTEGER PRIMARY KEY
);
CREATE UNIQUE INDEX drumbeat_history_one_per_id
    ON drumbeat_history (id);
CREATE INDEX drumbeat_history_by_task
    ON drumbeat_history (task, id);
CREATE INDEX drumbeat_history_by_key
    ON drumbeat_history (key, id) WHERE key IS NOT NULL;
CREATE INDEX drumbeat_history_not_succeeded
    ON drumbeat_history (state, task, id) WHERE state <> 'succeeded';

-- Dead letters: they wait for a person who replays or discards them.
CREATE TABLE drumbeat_dead (
    id               TEXT PRIMARY KEY,
    task             TEXT NOT NULL,
    queue            TEXT NOT NULL,
    state            TEXT NOT NULL DEFAULT 'dead',
    priority         INTEGER NOT NULL,
    key              TEXT,
    args             TEXT NOT NULL,
    signature        TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    due_at           INTEGER NOT NULL,
    run_at           INTEGER NOT NULL,
    started_at       INTEGER,
    finished_at      INTEGER NOT NULL,
    instance         TEXT,
    token            INTEGER NOT NULL,
    outcome          TEXT,
    failures         INTEGER NOT NULL,
    crashes          INTEGER NOT NULL,
    retries          INTEGER,
    timeout          INTEGER,
    crash_limit      INTEGER NOT NULL,
    "unique"         TEXT NOT NULL,
    cancel_requested INTEGER NOT NULL,
    progress         TEXT,
    result           TEXT,
    result_error     TEXT,
    error            TEXT,
    on_dead          TEXT,
    replays             INTEGER NOT NULL,
    tenant           TEXT NOT NULL,
    schedule         TEXT,
    trace            TEXT
) WITHOUT ROWID;
CREATE INDEX drumbeat_dead_by_task
    ON drumbeat_dead (task, id);

-- Ended runs that were not their job's last; the last one is in the row of history or dead itself.
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

-- Queues somebody has paused; a queue that is not here is open.
CREATE TABLE drumbeat_queue (
    name       TEXT PRIMARY KEY,
    paused_at  INTEGER NOT NULL,
    paused_by  TEXT NOT NULL,
    paused_reason TEXT NOT NULL
) WITHOUT ROWID;
