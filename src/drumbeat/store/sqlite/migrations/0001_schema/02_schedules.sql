-- Schedules, the record of their fires, and work that is done once in the cluster.

CREATE TABLE drumbeat_schedule (
    name           TEXT PRIMARY KEY,
    task           TEXT NOT NULL,
    kind           TEXT NOT NULL,
    rule           TEXT NOT NULL,
    queue          TEXT NOT NULL,
    args           TEXT NOT NULL,
    signature      TEXT NOT NULL,
    tz             TEXT NOT NULL,
    priority       INTEGER NOT NULL,
    retries        INTEGER,
    timeout        INTEGER,
    crash_limit    INTEGER NOT NULL,
    on_dead        TEXT,
    -- How long after its fire time a job expires.
    expires        INTEGER,
    -- Of its jobs.
    "group"        TEXT NOT NULL DEFAULT '',
    lane           TEXT NOT NULL DEFAULT '',
    catch_up       TEXT NOT NULL,
    catch_up_limit INTEGER NOT NULL,
    max_late       INTEGER,
    overlap        TEXT NOT NULL,
    jitter         INTEGER NOT NULL,
    start          INTEGER,
    "end"          INTEGER,
    origin         TEXT NOT NULL,
    app            TEXT NOT NULL,
    version        TEXT NOT NULL,
    -- The interval if the end of a job sets the next fire time; else null.
    every          INTEGER,
    state          TEXT NOT NULL,
    revision       INTEGER NOT NULL,
    cursor         INTEGER,
    next_at        INTEGER,
    current        TEXT,
    created_at     INTEGER NOT NULL,
    changed_at     INTEGER NOT NULL,
    declared_at    INTEGER,
    changed_by     TEXT NOT NULL,
    reason         TEXT NOT NULL
);
-- What is not active has no next_at.
CREATE INDEX drumbeat_schedule_by_next_at
    ON drumbeat_schedule (next_at, name) WHERE next_at IS NOT NULL;
CREATE INDEX drumbeat_schedule_running
    ON drumbeat_schedule (every, current) WHERE every IS NOT NULL AND state = 'active' AND next_at IS NULL;
CREATE INDEX drumbeat_schedule_of_code
    ON drumbeat_schedule (declared_at) WHERE origin = 'code' AND state <> 'retired';

-- A fire time is fired once; one that was skipped may still be fired by a backfill.
CREATE TABLE drumbeat_fire (
    schedule    TEXT NOT NULL,
    at          INTEGER NOT NULL,
    skipped     INTEGER NOT NULL,
    last        INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    outcome     TEXT NOT NULL,
    reason      TEXT NOT NULL,
    job         TEXT,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (schedule, at, skipped)
) WITHOUT ROWID;
CREATE INDEX drumbeat_fire_by_age
    ON drumbeat_fire (last);

-- Work that one instance of the cluster does once.
CREATE TABLE drumbeat_once (
    key      TEXT PRIMARY KEY,
    instance TEXT NOT NULL,
    begun_at INTEGER NOT NULL,
    done_at  INTEGER
) WITHOUT ROWID;
