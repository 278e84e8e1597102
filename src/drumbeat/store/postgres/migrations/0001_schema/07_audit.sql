-- The audit log: operators' actions and their results.

-- `holds_key`: a second request of the same `who` with this key repeats this one. Cleared after a day.
-- `touched` of `matched` jobs are done so far; actions on many jobs report it at `reported_at`, from whichever process runs them, and
-- end when `stopped_by` says that somebody asked for it.
CREATE TABLE drumbeat.audit (
    at           bigint NOT NULL,
    done_at      bigint,
    touched      bigint,
    matched      bigint,
    reported_at  bigint,
    holds_key    boolean NOT NULL,
    id           text COLLATE "C" PRIMARY KEY,
    who          text COLLATE "C" NOT NULL,
    role         text NOT NULL,
    via          text NOT NULL,
    verb         text COLLATE "C" NOT NULL,
    target       text COLLATE "C" NOT NULL,
    reason       text NOT NULL,
    request_key  text COLLATE "C",
    request_hash text,
    stopped_by   text,
    outcome      text,
    answer       text
);
CREATE UNIQUE INDEX audit_one_per_request
    ON drumbeat.audit (who, request_key) WHERE holds_key;
CREATE INDEX audit_by_who
    ON drumbeat.audit (who, id);
CREATE INDEX audit_by_target
    ON drumbeat.audit (target, id);
CREATE INDEX audit_by_age
    ON drumbeat.audit (at);
CREATE INDEX audit_unended
    ON drumbeat.audit (id) WHERE done_at IS NULL AND reported_at IS NOT NULL;
