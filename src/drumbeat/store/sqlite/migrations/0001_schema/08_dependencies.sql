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
CREATE INDEX drumbeat_release_of_parent
    ON drumbeat_release (parent);

-- How a parent ended whose result or outcome a child binds. Deleted with the last edge that binds it.
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

-- The end of a job that has children. Every end deletes the job from the live table after its record was made, whichever statement
-- does it: so none forgets it. For a job without children it is one condition.
CREATE TRIGGER drumbeat_release_after_job
 AFTER DELETE ON drumbeat_job
  WHEN OLD.is_parent
BEGIN
    INSERT INTO drumbeat_release (parent, event, life)
    SELECT OLD.id,
           CASE WHEN EXISTS (SELECT 1 FROM drumbeat_dead WHERE id = OLD.id) THEN 'died'
                WHEN (SELECT state FROM drumbeat_history WHERE id = OLD.id) = 'succeeded' THEN 'succeeded'
                ELSE 'cancelled'
            END,
           OLD.replays;
    INSERT OR REPLACE INTO drumbeat_parent_result (parent, task, state, result, result_error, error)
    SELECT id, task, state, result, result_error, error
      FROM (SELECT id, task, state, result, result_error, error FROM drumbeat_dead WHERE id = OLD.id
             UNION ALL
            SELECT id, task, state, result, result_error, error FROM drumbeat_history WHERE id = OLD.id)
     WHERE EXISTS (SELECT 1 FROM drumbeat_edge INDEXED BY drumbeat_edge_bound WHERE parent = OLD.id AND binding <> '')
     LIMIT 1;
END;
