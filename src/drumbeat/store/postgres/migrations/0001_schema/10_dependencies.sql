-- Dependencies between jobs: core/dependencies.py.

-- A child waits for a parent. Made with the child, never changed, deleted with the child's history.
-- `life`: replays of the parent when the edge was made. `place`: of the parent among the child's parents.
CREATE TABLE drumbeat.edge (
    parent   uuid NOT NULL,
    child    uuid NOT NULL,
    place    integer NOT NULL,
    life     integer NOT NULL,
    if_fails text COLLATE "C" NOT NULL,
    binding  text COLLATE "C" NOT NULL,
    argument text COLLATE "C" NOT NULL,
    CONSTRAINT edge_pkey PRIMARY KEY (parent, child)
);
CREATE INDEX edge_of_child
    ON drumbeat.edge (child, place);
-- Edges that bind: only those are in these indexes.
CREATE INDEX edge_single
    ON drumbeat.edge (child, place) WHERE binding IN ('result', 'outcome');
CREATE INDEX edge_paged
    ON drumbeat.edge (child, argument, place) WHERE binding = 'results';

-- What happened to a parent, and up to which child its edges have been followed. Written by the step in which it happened.
CREATE TABLE drumbeat.release (
    seq         bigint GENERATED ALWAYS AS IDENTITY,
    parent      uuid NOT NULL,
    after_child uuid,
    life        integer NOT NULL,
    event       text COLLATE "C" NOT NULL,
    CONSTRAINT release_pkey PRIMARY KEY (seq)
) WITH (
    -- A queue: vacuum by count, as of jobs.
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = false
);
CREATE INDEX release_of_parent
    ON drumbeat.release (parent);

-- How a parent ended whose result or outcome a child binds. Deleted with the last edge that binds it.
CREATE TABLE drumbeat.parent_result (
    parent       uuid NOT NULL,
    task         text COLLATE "C" NOT NULL,
    state        text COLLATE "C" NOT NULL,
    result       text,
    result_error text,
    error        text,
    CONSTRAINT parent_result_pkey PRIMARY KEY (parent)
);

-- Children that were cancelled because this parent failed; its replay revives them. Deleted with the child's history.
CREATE TABLE drumbeat.cancelled_child (
    child  uuid NOT NULL,
    parent uuid NOT NULL,
    CONSTRAINT cancelled_child_pkey PRIMARY KEY (child)
);

-- Workflows. `labels` is JSON text. Deleted with the history of the last of its jobs.
CREATE TABLE drumbeat.workflow (
    id           text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    labels       text NOT NULL,
    created_at   bigint NOT NULL,
    cancelled_at bigint,
    CONSTRAINT workflow_pkey PRIMARY KEY (id)
);
CREATE INDEX workflow_by_name
    ON drumbeat.workflow (name, id);
CREATE INDEX workflow_cancelled
    ON drumbeat.workflow (id) WHERE cancelled_at IS NOT NULL;
