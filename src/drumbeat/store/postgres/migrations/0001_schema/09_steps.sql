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

-- Record the result of a step of a running job, in a transaction of its handler's own. given: {"id", "token", "instance", "name",
-- "started_at", "finished_at", "result"}. The lock is that of sql/steps.sql: record. A stale claim is an error, so that the
-- transaction around it cannot commit: DB002.
CREATE FUNCTION drumbeat.record_step(given text) RETURNS void
    LANGUAGE plpgsql VOLATILE
    AS $$
DECLARE
    step record;
BEGIN
    SELECT new.* INTO step
      FROM json_to_record(given::json) AS new (id uuid, token bigint, instance text, name text, started_at bigint,
                                               finished_at bigint, result text);
    PERFORM
       FROM drumbeat.job
      WHERE job.id = step.id
        AND job.token = step.token
        AND job.instance = step.instance
        FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'job % is no longer this worker''s', step.id USING ERRCODE = 'DB002';
    END IF;
    INSERT INTO drumbeat.step (job, kind, name, token, started_at, finished_at, result)
    VALUES (step.id, 'step', step.name, step.token, step.started_at, step.finished_at, step.result)
        ON CONFLICT DO NOTHING;
END
$$;
