-- Schedules and the record of their fires.

CREATE TABLE drumbeat.schedule (
    name           text COLLATE "C" PRIMARY KEY,
    task           text COLLATE "C" NOT NULL,
    kind           text COLLATE "C" NOT NULL,
    rule           text NOT NULL,
    queue          text COLLATE "C" NOT NULL,
    args           text NOT NULL,
    signature      text COLLATE "C" NOT NULL,
    tz             text NOT NULL,
    priority       smallint NOT NULL,
    retries        integer,
    timeout        bigint,
    crash_limit    integer NOT NULL,
    on_dead        text COLLATE "C",
    -- How long after its fire time a job expires.
    expires        bigint,
    -- Of its jobs.
    "group"        text NOT NULL DEFAULT '',
    lane           text NOT NULL DEFAULT '',
    catch_up       text COLLATE "C" NOT NULL,
    catch_up_limit integer NOT NULL,
    max_late       bigint,
    overlap        text COLLATE "C" NOT NULL,
    jitter         bigint NOT NULL,
    start          bigint,
    "end"          bigint,
    origin         text COLLATE "C" NOT NULL,
    app            text NOT NULL,
    version        text NOT NULL,
    -- The interval if the end of a job sets the next fire time; else null.
    every          bigint,
    state          text COLLATE "C" NOT NULL,
    revision       bigint NOT NULL,
    cursor         bigint,
    next_at        bigint,
    current        uuid,
    created_at     bigint NOT NULL,
    changed_at     bigint NOT NULL,
    declared_at    bigint,
    changed_by     text NOT NULL,
    reason         text NOT NULL
) WITH (fillfactor = 70);
-- What is not active has no next_at.
CREATE INDEX schedule_by_next_at
    ON drumbeat.schedule (next_at, name) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_running
    ON drumbeat.schedule (every) WHERE every IS NOT NULL AND state = 'active' AND next_at IS NULL;
CREATE INDEX schedule_of_code
    ON drumbeat.schedule (declared_at) WHERE origin = 'code' AND state <> 'retired';

-- A fire time is fired once; one that was skipped may still be fired by a backfill.
CREATE TABLE drumbeat.fire (
    schedule    text COLLATE "C" NOT NULL,
    at          bigint NOT NULL,
    skipped     boolean NOT NULL,
    last        bigint NOT NULL,
    count       bigint NOT NULL,
    outcome     text COLLATE "C" NOT NULL,
    reason      text NOT NULL,
    job         uuid,
    recorded_at bigint NOT NULL,
    CONSTRAINT fire_pkey PRIMARY KEY (schedule, at, skipped)
);
CREATE INDEX fire_by_age
    ON drumbeat.fire (last);

-- Work that one instance of the cluster does once.
CREATE TABLE drumbeat.once (
    key      text COLLATE "C" PRIMARY KEY,
    instance text COLLATE "C" NOT NULL,
    begun_at bigint NOT NULL,
    done_at  bigint
);

-- Unblock the oldest job that waits for this schedule, and return its id; null if there is none. The caller has locked the
-- schedule. A locked job is being cancelled: it is skipped, so that nobody waits for a job while holding a schedule.
CREATE FUNCTION drumbeat.start_next(schedule_name text) RETURNS uuid
    LANGUAGE plpgsql
    SET enable_seqscan = off
    AS $$
DECLARE
    successor uuid;
    due  bigint;
BEGIN
    SELECT job.id, job.run_at
      INTO successor, due
      FROM drumbeat.job
     WHERE job.blocked_on = 'schedule:' || schedule_name
       AND job.state = 'pending'
       AND job.blocked_on IS NOT NULL
     ORDER BY job.blocked_since, job.id
     LIMIT 1
       FOR UPDATE SKIP LOCKED;
    IF successor IS NOT NULL THEN
        UPDATE drumbeat.job
           SET blocked_on = NULL,
               blocked_since = NULL
         WHERE job.id = successor;
        PERFORM pg_notify('drumbeat' || '.wake', due::text);
    END IF;
    RETURN successor;
END
$$;

-- Runs when a schedule's current job ends. Locks the schedule first and reads it in later statements, whose snapshot is younger
-- than the wait: a fire may have added another waiting job meanwhile.
CREATE FUNCTION drumbeat.advance_schedule() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan = off
    AS $$
DECLARE
    successor   uuid;
    now_at bigint := drumbeat.now_us();
BEGIN
    PERFORM FROM drumbeat.schedule
      WHERE schedule.name = NEW.schedule
        AND schedule.current = NEW.id
        FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    successor := drumbeat.start_next(NEW.schedule);
    UPDATE drumbeat.schedule
       SET current = successor,
           next_at = CASE WHEN schedule.every IS NULL THEN schedule.next_at
                          WHEN successor IS NOT NULL OR schedule.state <> 'active' OR now_at + schedule.every >= schedule."end"
                          THEN NULL
                          ELSE now_at + schedule.every
                      END
     WHERE schedule.name = NEW.schedule;
    RETURN NULL;
END
$$;

-- On insert, where the row is at hand: a job without a schedule costs the condition only. Partitions attached later inherit it.
CREATE TRIGGER history_advances_schedule
 AFTER INSERT ON drumbeat.history
   FOR EACH ROW WHEN (NEW.schedule IS NOT NULL)
       EXECUTE FUNCTION drumbeat.advance_schedule();
CREATE TRIGGER dead_advances_schedule
 AFTER INSERT ON drumbeat.dead
   FOR EACH ROW WHEN (NEW.schedule IS NOT NULL)
       EXECUTE FUNCTION drumbeat.advance_schedule();
