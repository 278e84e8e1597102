-- Statistics that instances counted.

-- One row for each interval, queue, task and instance; the instance replaces it as its counts grow.
CREATE TABLE drumbeat.rollup (
    resolution bigint NOT NULL,
    at         bigint NOT NULL,
    queue      text COLLATE "C" NOT NULL,
    task       text COLLATE "C" NOT NULL,
    instance   text COLLATE "C" NOT NULL,
    written_at bigint NOT NULL,
    counts     text NOT NULL,
    PRIMARY KEY (resolution, at, queue, task, instance)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
-- Rows of all queues and tasks together, for the overall charts.
CREATE INDEX rollup_overall
    ON drumbeat.rollup (resolution, at) WHERE queue = '';
