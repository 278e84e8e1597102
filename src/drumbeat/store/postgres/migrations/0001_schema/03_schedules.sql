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
    -- The rule as a number where the end of a job sets the next moment; else null.
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
    reason            text NOT NULL
) WITH (fillfactor = 70);
-- What is not active has no next_at.
CREATE INDEX schedule_by_moment
    ON drumbeat.schedule (next_at, name) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_under_way
    ON drumbeat.schedule (every) WHERE every IS NOT NULL AND state = 'active' AND next_at IS NULL;
CREATE INDEX schedule_of_code
    ON drumbeat.schedule (declared_at) WHERE origin = 'code' AND state <> 'retired';

-- A moment is fired once, whatever became of it before: a skipped one may be fired by a backfill.
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
    CONSTRAINT fire_one_per_moment PRIMARY KEY (schedule, at, skipped)
);
CREATE INDEX fire_by_age
    ON drumbeat.fire (last);

-- What is done once in the whole cluster.
CREATE TABLE drumbeat.once (
    key      text COLLATE "C" PRIMARY KEY,
    instance text COLLATE "C" NOT NULL,
    begun_at bigint NOT NULL,
    done_at  bigint
);

-- Let the oldest job that waits for this schedule go on; null if there is none. The schedule is locked. One that is locked is
-- being cancelled: it is passed over, so that nobody waits for a job while he holds a schedule.
CREATE FUNCTION drumbeat.successor(plan text) RETURNS uuid
    LANGUAGE plpgsql VOLATILE
    SET enable_seqscan = off
    AS $$
#variable_conflict use_column
DECLARE
    heir uuid;
    due  bigint;
BEGIN
    SELECT job.id, job.run_at
      INTO heir, due
      FROM drumbeat.job
     WHERE job.blocked_on = 'schedule:' || plan
       AND job.state = 'pending'
       AND job.blocked_on IS NOT NULL
     ORDER BY job.blocked_since, job.id
     LIMIT 1
       FOR UPDATE SKIP LOCKED;
    IF heir IS NOT NULL THEN
        UPDATE drumbeat.job
           SET blocked_on = NULL,
               blocked_since = NULL
         WHERE job.id = heir;
        PERFORM pg_notify('drumbeat' || '.wake', due::text);
    END IF;
    RETURN heir;
END
$$;

-- The end of a schedule's current job, whoever writes it down. The schedule is locked first, and looked at in later statements,
-- whose snapshot is younger than the wait: a fire may have put another job in line meanwhile.
CREATE FUNCTION drumbeat.go_on() RETURNS trigger
    LANGUAGE plpgsql VOLATILE
    SET enable_seqscan = off
    AS $$
#variable_conflict use_column
DECLARE
    heir   uuid;
    moment bigint := drumbeat.now_us();
BEGIN
    PERFORM FROM drumbeat.schedule
      WHERE schedule.name = NEW.schedule
        AND schedule.current = NEW.id
        FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    heir := drumbeat.successor(NEW.schedule);
    UPDATE drumbeat.schedule
       SET current = heir,
           next_at = CASE WHEN schedule.every IS NULL THEN schedule.next_at
                          WHEN heir IS NOT NULL OR schedule.state <> 'active' OR moment + schedule.every >= schedule."end"
                          THEN NULL
                          ELSE moment + schedule.every
                      END
     WHERE schedule.name = NEW.schedule;
    RETURN NULL;
END
$$;

-- On insert: the row is at hand, so that a job of no schedule pays for the condition only. Days that are attached later get it too.
CREATE TRIGGER history_goes_on
 AFTER INSERT ON drumbeat.history
   FOR EACH ROW WHEN (NEW.schedule IS NOT NULL)
       EXECUTE FUNCTION drumbeat.go_on();
CREATE TRIGGER dead_goes_on
 AFTER INSERT ON drumbeat.dead
   FOR EACH ROW WHEN (NEW.schedule IS NOT NULL)
       EXECUTE FUNCTION drumbeat.go_on();
