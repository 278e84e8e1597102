-- Limits, order and turns: core/lanes.py.

-- A line: a task with a policy of its own, or ('') a queue with one. `policy` is JSON text: what holds now, made of what code has
-- declared and what people have set. `running` and `starts` count where the line as a whole is limited (is_limited); of the line ''
-- they count all jobs of the queue that are in lanes. `told`: the revision of the policy that all lanes have been told of.
CREATE TABLE drumbeat_line (
    queue       TEXT NOT NULL,
    name        TEXT NOT NULL,
    policy      TEXT NOT NULL,
    declared    TEXT,
    version     INTEGER NOT NULL DEFAULT 0,
    declared_at INTEGER,
    override    TEXT,
    changed_at  INTEGER,
    changed_by  TEXT,
    reason      TEXT,
    "order"     TEXT NOT NULL DEFAULT '',
    is_limited  INTEGER NOT NULL DEFAULT 0,
    revision    INTEGER NOT NULL DEFAULT 0,
    told        INTEGER NOT NULL DEFAULT 0,
    running     INTEGER NOT NULL DEFAULT 0,
    starts      TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (queue, name)
) WITHOUT ROWID;

-- A lane: the jobs of a group in a line. Made with its first job, deleted when it has been idle for a while.
CREATE TABLE drumbeat_lane (
    queue       TEXT NOT NULL,
    name        TEXT NOT NULL,
    line        TEXT NOT NULL,
    running     INTEGER NOT NULL DEFAULT 0,
    head_at     INTEGER,
    turn_at     INTEGER NOT NULL DEFAULT 0,
    open_at     INTEGER NOT NULL DEFAULT 0,
    starts      TEXT NOT NULL DEFAULT '[]',
    credit      INTEGER NOT NULL DEFAULT 0,
    levels      INTEGER NOT NULL DEFAULT 0,
    concurrency INTEGER NOT NULL DEFAULT 2147483647,
    own_bounds  TEXT,
    own_weight  INTEGER,
    used_at     INTEGER NOT NULL DEFAULT 0,
    ready_at    INTEGER AS (CASE WHEN running < concurrency THEN max(head_at, turn_at, open_at) END),
    PRIMARY KEY (queue, name)
) WITHOUT ROWID;
CREATE INDEX drumbeat_lane_ready
    ON drumbeat_lane (queue, line, ready_at) WHERE ready_at IS NOT NULL;

-- A job of a lane that becomes pending, or due earlier, moves its lane; one that has run gives its room back. No claim writes these
-- columns, so this costs plain jobs nothing when they are claimed.
CREATE TRIGGER drumbeat_job_moved
 AFTER UPDATE OF run_at, blocked_on, lane ON drumbeat_job
  WHEN OLD.lane <> '' OR NEW.lane <> ''
BEGIN
    INSERT INTO drumbeat_lane (queue, name, line, head_at, levels)
    SELECT NEW.queue, NEW.lane, substr(NEW.lane, 1, instr(NEW.lane, ' ') - 1), NEW.run_at, 1 << NEW.priority
     WHERE NEW.lane <> '' AND NEW.state = 'pending' AND NEW.blocked_on IS NULL
        ON CONFLICT (queue, name) DO UPDATE SET head_at = min(ifnull(head_at, excluded.head_at), excluded.head_at),
                                                levels = levels | excluded.levels;
    UPDATE drumbeat_lane
       SET running = running - 1
     WHERE OLD.state = 'running'
       AND NEW.state <> 'running'
       AND queue = OLD.queue
       AND name = OLD.lane;
    UPDATE drumbeat_line
       SET running = running - 1
     WHERE OLD.state = 'running'
       AND NEW.state <> 'running'
       AND OLD.lane <> ''
       AND queue = OLD.queue
       AND name IN ('', substr(OLD.lane, 1, instr(OLD.lane, ' ') - 1))
       AND is_limited;
END;
