-- Instances, the leader, and messages to rooms.

CREATE TABLE drumbeat_instance (
    id           TEXT PRIMARY KEY,
    state        TEXT NOT NULL DEFAULT 'alive',
    app          TEXT NOT NULL,
    version      TEXT NOT NULL,
    host         TEXT NOT NULL,
    pid          INTEGER NOT NULL,
    roles        TEXT NOT NULL,
    queues       TEXT NOT NULL,
    tasks        TEXT NOT NULL,
    concurrency  INTEGER NOT NULL,
    running      INTEGER NOT NULL DEFAULT 0,
    refused      INTEGER NOT NULL DEFAULT 0,
    beat         INTEGER NOT NULL DEFAULT 0,
    started_at   INTEGER NOT NULL,
    beat_at      INTEGER NOT NULL,
    ended_at     INTEGER,
    ended_reason TEXT,
    wake         TEXT,
    rooms        TEXT NOT NULL DEFAULT '{}'
) WITHOUT ROWID;

-- The leader: one row. `until`: end of the lease, `since`: begin of the term.
CREATE TABLE drumbeat_leader (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    instance TEXT,
    term     INTEGER NOT NULL,
    until    INTEGER NOT NULL,
    since    INTEGER NOT NULL DEFAULT 0
);
INSERT INTO drumbeat_leader (one, instance, term, until)
VALUES (1, NULL, 0, 0);

-- Messages to each instance. They are short-lived, and written without fsync.
CREATE TABLE drumbeat_room_message (
    "to"      TEXT NOT NULL,
    id        TEXT NOT NULL,
    sent_at   INTEGER NOT NULL,
    room      TEXT NOT NULL,
    signature TEXT NOT NULL,
    args      TEXT NOT NULL,
    PRIMARY KEY ("to", id)
);
