-- Locks and the tickets of those who hold or wait for them. Leases and rate windows (expires_at, at) are in boot time, which no
-- clock change affects and all processes of the machine share; after a reboot no ticket is alive. All other times are UTC.

CREATE TABLE drumbeat_lock (
    name             TEXT PRIMARY KEY,
    "limit"          INTEGER NOT NULL,
    per              INTEGER,
    last_number      INTEGER NOT NULL,
    boot             TEXT NOT NULL,
    -- Rounded to the hour, so that its index rarely changes.
    used_at          INTEGER NOT NULL,
    released_tickets TEXT NOT NULL DEFAULT '',
    released_at      INTEGER,
    released_by      TEXT,
    released_reason  TEXT
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
CREATE UNIQUE INDEX drumbeat_ticket_by_number
    ON drumbeat_ticket (lock, number);
CREATE INDEX drumbeat_ticket_by_end
    ON drumbeat_ticket (lock, expires_at);
CREATE UNIQUE INDEX drumbeat_ticket_one_per_lane
    ON drumbeat_ticket (lock, lane) WHERE granted_at IS NOT NULL;

-- The grants that a rate window counts. `at` is boot time, `granted_at` the same time in UTC.
CREATE TABLE drumbeat_lock_grant (
    lock       TEXT NOT NULL,
    at         INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    granted_at INTEGER NOT NULL,
    PRIMARY KEY (lock, at, number)
) WITHOUT ROWID;
