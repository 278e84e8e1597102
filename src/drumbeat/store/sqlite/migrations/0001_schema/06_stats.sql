-- What instances counted.

-- One row for each stretch of time, queue, task and instance, which replaces it as it grows.
CREATE TABLE drumbeat_rollup (
    resolution      INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    queue      TEXT NOT NULL,
    task       TEXT NOT NULL,
    instance   TEXT NOT NULL,
    written_at INTEGER NOT NULL,
    counts     TEXT NOT NULL,
    PRIMARY KEY (resolution, at, queue, task, instance)
) WITHOUT ROWID;
-- Rows of all queues and tasks together, for charts of everything.
CREATE INDEX drumbeat_rollup_overall
    ON drumbeat_rollup (resolution, at) WHERE queue = '';
