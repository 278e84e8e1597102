-- Dependencies between jobs: core/dependencies.py.

-- A child waits for a parent. Made with the child, never changed, deleted with the child's history.
-- `life`: replays of the parent when the edge was made. `place`: of the parent among the child's parents.
CREATE TABLE drumbeat_edge (
    parent   TEXT NOT NULL,
    child    TEXT NOT NULL,
    place    INTEGER NOT NULL,
    life     INTEGER NOT NULL,
    if_fails TEXT NOT NULL,
    binding  TEXT NOT NULL,
    argument TEXT NOT NULL,
    PRIMARY KEY (parent, child)
) WITHOUT ROWID;
CREATE INDEX drumbeat_edge_of_child
    ON drumbeat_edge (child, place);
-- Only edges that bind something are in these. A child may bind a hundred thousand parents by one argument: that is read in pages.
CREATE INDEX drumbeat_edge_bound
    ON drumbeat_edge (parent) WHERE binding <> '';
CREATE INDEX drumbeat_edge_single
    ON drumbeat_edge (child, place) WHERE binding IN ('result', 'outcome');
CREATE INDEX drumbeat_edge_paged
    ON drumbeat_edge (child, argument, place) WHERE binding = 'results';

-- What happened to a parent, and up to which child its edges have been followed. Written by the step in which it happened.
CREATE TABLE drumbeat_release (
    seq         INTEGER PRIMARY KEY,
    parent      TEXT NOT NULL,
    event       TEXT NOT NULL,
    life        INTEGER NOT NULL,
    after_child TEXT NOT NULL DEFAULT ''
);

-- How a parent ended whose result or outcome a child binds, and which is not in history or among the dead letters any more: what
-- removes it from there copies it here first. Deleted with the last edge that binds it.
CREATE TABLE drumbeat_parent_result (
    parent       TEXT PRIMARY KEY,
    task         TEXT NOT NULL,
    state        TEXT NOT NULL,
    result       TEXT,
    result_error TEXT,
    error        TEXT
) WITHOUT ROWID;

-- Children that were cancelled because this parent failed; its replay revives them. Deleted with the child's history.
CREATE TABLE drumbeat_cancelled_child (
    child  TEXT PRIMARY KEY,
    parent TEXT NOT NULL
) WITHOUT ROWID;

-- Workflows. `labels` is JSON text. Deleted with the history of the last of its jobs.
CREATE TABLE drumbeat_workflow (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    labels       TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    cancelled_at INTEGER
) WITHOUT ROWID;
CREATE INDEX drumbeat_workflow_by_name
    ON drumbeat_workflow (name, id);
