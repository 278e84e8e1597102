-- Statistics that instances counted.

-- One row for each interval, queue, task and instance; the instance replaces it as its counts grow.
CREATE TABLE drumbeat_rollup (
    resolution INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    queue      TEXT NOT NULL,
    task       TEXT NOT NULL,
    instance   TEXT NOT NULL,
    written_at INTEGER NOT NULL,
    counts     TEXT NOT NULL,
    PRIMARY KEY (resolution, at, queue, task, instance)
) WITHOUT ROWID;
-- Rows of all queues and tasks together, for the overall charts.
CREATE INDEX drumbeat_rollup_overall
    ON drumbeat_rollup (resolution, at) WHERE queue = '';
