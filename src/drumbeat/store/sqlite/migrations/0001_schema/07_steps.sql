-- Steps of jobs: what a run has on record for the runs after it. A row is deleted with the history of its job.
-- `until`: the end of a sleep, the time-out of a wait. `result` of a wait: the payload of its signal; NULL: it timed out.

CREATE TABLE drumbeat_step (
    job         TEXT NOT NULL,
    kind        TEXT NOT NULL,
    name        TEXT NOT NULL,
    token       INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    until       INTEGER,
    finished_at INTEGER,
    signal      TEXT,
    result      TEXT,
    PRIMARY KEY (job, kind, name)
) WITHOUT ROWID;

-- What others have told jobs. `read_by`: the wait that has got it.
CREATE TABLE drumbeat_signal (
    job     TEXT NOT NULL,
    id      TEXT NOT NULL,
    name    TEXT NOT NULL,
    sent_at INTEGER NOT NULL,
    payload TEXT NOT NULL,
    read_by TEXT,
    PRIMARY KEY (job, id)
) WITHOUT ROWID;
