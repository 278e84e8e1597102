-- Steps of jobs: what a run has on record for the runs after it. A row is deleted with the history of its job.
-- `until`: the end of a sleep, the time-out of a wait. `result` of a wait: the payload of its signal; NULL: it timed out.

CREATE TABLE drumbeat.step (
    job         uuid NOT NULL,
    token       bigint NOT NULL,
    started_at  bigint NOT NULL,
    until       bigint,
    finished_at bigint,
    kind        text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    signal      text COLLATE "C",
    result      text,
    CONSTRAINT step_pkey PRIMARY KEY (job, kind, name)
);
CREATE INDEX step_by_age
    ON drumbeat.step (started_at);
