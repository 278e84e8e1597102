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

-- What others have told jobs. `read_by`: the wait that has got it.
CREATE TABLE drumbeat.signal (
    job     uuid NOT NULL,
    sent_at bigint NOT NULL,
    id      text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    read_by text COLLATE "C",
    payload text NOT NULL,
    CONSTRAINT signal_pkey PRIMARY KEY (job, id)
);
CREATE INDEX signal_by_age
    ON drumbeat.signal (sent_at);

-- Wake a job if it is suspended on this signal. Its row is locked before, whatever its state, and looked at by this later statement:
-- a run that is being suspended does the same, so one of both sees the other.
CREATE FUNCTION drumbeat.wake_suspended(wanted uuid, signal_name text) RETURNS void
    LANGUAGE plpgsql VOLATILE
    AS $$
BEGIN
    UPDATE drumbeat.job
       SET run_at = drumbeat.now_us()
     WHERE job.id = wanted
       AND job.state = 'pending'
       AND job.suspended = 'signal:' || signal_name
       AND job.run_at > drumbeat.now_us();
    IF FOUND THEN
        PERFORM pg_notify('drumbeat' || '.wake', drumbeat.now_us()::text);
    END IF;
END
$$;

-- Signals that were sent in transactions of programs' own, until somebody has looked whether their job waits for them. Nearly always
-- that is the commit itself, so that the table is empty.
CREATE TABLE drumbeat.unseen_signal (
    seq  bigint GENERATED ALWAYS AS IDENTITY,
    job  uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    CONSTRAINT unseen_signal_pkey PRIMARY KEY (seq)
);

-- Look at one of them. Never waits for the row of the job: a program's transaction may hold others, in any order, and would be one
-- of a deadlock. Returns false where the row is locked.
CREATE FUNCTION drumbeat.see_signal(wanted bigint, its_job uuid, signal_name text) RETURNS boolean
    LANGUAGE plpgsql VOLATILE
    AS $$
BEGIN
    PERFORM FROM drumbeat.job WHERE job.id = its_job FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        PERFORM drumbeat.wake_suspended(its_job, signal_name);
    ELSIF EXISTS (SELECT FROM drumbeat.job WHERE job.id = its_job) THEN
        RETURN false;
    END IF;
    DELETE FROM drumbeat.unseen_signal WHERE unseen_signal.seq = wanted;
    RETURN true;
END
$$;

-- At the commit. With a snapshot of the whole transaction a row that has changed since could not be locked, and the commit would fail.
CREATE FUNCTION drumbeat.see_at_commit() RETURNS trigger
    LANGUAGE plpgsql VOLATILE
    AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('repeatable read', 'serializable') THEN
        PERFORM drumbeat.see_signal(NEW.seq, NEW.job, NEW.name);
    END IF;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER signal_seen
    AFTER INSERT ON drumbeat.unseen_signal
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION drumbeat.see_at_commit();

-- What commits have left: the sweep looks again.
CREATE FUNCTION drumbeat.see_signals() RETURNS void
    LANGUAGE plpgsql VOLATILE
    AS $$
DECLARE
    left_over record;
BEGIN
    FOR left_over IN SELECT * FROM drumbeat.unseen_signal ORDER BY unseen_signal.seq FOR UPDATE SKIP LOCKED LOOP
        PERFORM drumbeat.see_signal(left_over.seq, left_over.job, left_over.name);
    END LOOP;
END
$$;

-- Send a signal to a live job. given: {"job", "id", "name", "payload", "limit", "alone"}; alone: nothing else is in this transaction,
-- which may wait for the job's row. Returns 'sent', also of one that was sent before; or why nothing was stored: the state of a job
-- that has ended, 'unknown', or 'too many'.
CREATE FUNCTION drumbeat.send_signal(given text) RETURNS text
    LANGUAGE plpgsql VOLATILE
    AS $$
DECLARE
    new record;
BEGIN
    SELECT sent.* INTO new
      FROM json_to_record(given::json) AS sent (job uuid, id text, name text, payload text, "limit" integer,
                                                alone boolean);
    IF EXISTS (SELECT FROM drumbeat.signal WHERE signal.job = new.job AND signal.id = new.id) THEN
        RETURN 'sent';
    END IF;
    IF NOT EXISTS (SELECT FROM drumbeat.job WHERE job.id = new.job) THEN
        RETURN coalesce((SELECT history.state FROM drumbeat.history WHERE history.id = new.job LIMIT 1),
                        (SELECT dead.state FROM drumbeat.dead WHERE dead.id = new.job),
                        'unknown');
    END IF;
    IF (SELECT count(*) FROM drumbeat.signal WHERE signal.job = new.job AND signal.read_by IS NULL) >= new."limit" THEN
        RETURN 'too many';
    END IF;
    INSERT INTO drumbeat.signal (job, sent_at, id, name, payload)
    VALUES (new.job, drumbeat.now_us(), new.id, new.name, new.payload)
        ON CONFLICT DO NOTHING;
    IF new.alone THEN
        PERFORM FROM drumbeat.job WHERE job.id = new.job FOR UPDATE;
        PERFORM drumbeat.wake_suspended(new.job, new.name);
    ELSE
        INSERT INTO drumbeat.unseen_signal (job, name) VALUES (new.job, new.name);
    END IF;
    RETURN 'sent';
END
$$;
