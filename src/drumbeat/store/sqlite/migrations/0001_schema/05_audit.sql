-- The audit log: operators' actions and their results.

-- `holds_key`: a second request of the same `who` with this key repeats this one. Cleared after a day.
-- `touched` of `matched` jobs are done so far; actions on many jobs report it at `reported_at`, from whichever process runs them, and
-- end when `stopped_by` says that somebody asked for it.
CREATE TABLE drumbeat_audit (
    id           TEXT PRIMARY KEY,
    at           INTEGER NOT NULL,
    who          TEXT NOT NULL,
    role         TEXT NOT NULL,
    via          TEXT NOT NULL,
    verb         TEXT NOT NULL,
    target       TEXT NOT NULL,
    reason       TEXT NOT NULL,
    request_key  TEXT,
    request_hash TEXT,
    holds_key    INTEGER NOT NULL,
    done_at      INTEGER,
    touched      INTEGER,
    matched      INTEGER,
    reported_at  INTEGER,
    stopped_by   TEXT,
    outcome      TEXT,
    answer       TEXT
) WITHOUT ROWID;
CREATE UNIQUE INDEX drumbeat_audit_one_per_request
    ON drumbeat_audit (who, request_key) WHERE holds_key;
CREATE INDEX drumbeat_audit_by_who
    ON drumbeat_audit (who, id);
CREATE INDEX drumbeat_audit_by_target
    ON drumbeat_audit (target, id);
CREATE INDEX drumbeat_audit_by_age
    ON drumbeat_audit (at);
CREATE INDEX drumbeat_audit_unended
    ON drumbeat_audit (id) WHERE done_at IS NULL AND reported_at IS NOT NULL;
