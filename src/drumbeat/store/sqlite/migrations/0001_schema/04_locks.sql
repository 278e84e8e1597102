-- Locks: lines of tickets. Leases and rate windows are reckoned in boot time (expires_at, at), which no clock change touches and
-- all processes of the machine share; a lock that was last used before a reboot has no living tickets. All other times are UTC.

CREATE TABLE drumbeat_lock (
    name         TEXT PRIMARY KEY,
    "limit"      INTEGER NOT NULL,
    per          INTEGER,
    last         INTEGER NOT NULL,
    boot         TEXT NOT NULL,
    -- Exact to the hour, so that its index is rarely changed.
    used_at      INTEGER NOT NULL,
    released     TEXT NOT NULL DEFAULT '',
    released_at  INTEGER,
    released_by  TEXT,
    released_reason TEXT
) WITHOUT ROWID;
CREATE INDEX drumbeat_lock_by_use
    ON drumbeat_lock (used_at);

CREATE TABLE drumbeat_ticket (
    id         TEXT PRIMARY KEY,
    lock       TEXT NOT NULL,
    number     INTEGER NOT NULL,
    lease      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    entered_at INTEGER NOT NULL,
    granted_at INTEGER,
    lane       INTEGER,
    owner      TEXT NOT NULL,
    what       TEXT NOT NULL,
    wake       TEXT
) WITHOUT ROWID;
CREATE UNIQUE INDEX drumbeat_ticket_line
    ON drumbeat_ticket (lock, number);
CREATE INDEX drumbeat_ticket_by_end
    ON drumbeat_ticket (lock, expires_at);
CREATE UNIQUE INDEX drumbeat_ticket_one_per_lane
    ON drumbeat_ticket (lock, lane) WHERE granted_at IS NOT NULL;

-- What a rate window counts. at is boot time, granted_at the same moment in UTC.
CREATE TABLE drumbeat_lock_grant (
    lock       TEXT NOT NULL,
    at         INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    granted_at INTEGER NOT NULL,
    PRIMARY KEY (lock, at, number)
) WITHOUT ROWID;
