-- oldest_code: 1
-- Schedules, the record of their fires, and who leads.

ALTER TABLE drumbeat.job ADD COLUMN schedule text COLLATE "C";
ALTER TABLE drumbeat.history ADD COLUMN schedule text COLLATE "C";
ALTER TABLE drumbeat.dead ADD COLUMN schedule text COLLATE "C";

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
    why            text NOT NULL
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

-- Who leads: one row. `until` is when the lease runs out.
CREATE TABLE drumbeat.leader (
    one      integer PRIMARY KEY CHECK (one = 1),
    term     bigint NOT NULL,
    until    bigint NOT NULL,
    instance text COLLATE "C"
) WITH (fillfactor = 10);
INSERT INTO drumbeat.leader (one, term, until)
VALUES (1, 0, 0);

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
     WHERE job.waits_for = 'schedule:' || plan
       AND job.state = 'pending'
       AND job.waits_for IS NOT NULL
     ORDER BY job.waits_since, job.id
     LIMIT 1
       FOR UPDATE SKIP LOCKED;
    IF heir IS NOT NULL THEN
        UPDATE drumbeat.job
           SET waits_for = NULL,
               waits_since = NULL
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

-- As in 0002, with the schedule.
CREATE OR REPLACE FUNCTION drumbeat.complete(ended text) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
#variable_conflict use_column
DECLARE
    given  json := ended::json;
    claim  uuid := (given ->> 'id')::uuid;
    number bigint := (given ->> 'token')::bigint;
    holder text := given ->> 'instance';
    moment bigint := drumbeat.now_us();
BEGIN
    PERFORM drumbeat.ensure_day(moment / 86400000000 * 86400000000);
    WITH gone AS (
         DELETE FROM drumbeat.job
          WHERE job.id = claim
            AND job.token = number
            AND job.instance = holder
         RETURNING job.id, job.task, job.queue, job.priority, job.key, job.args, job.signature, job.created_at, job.due_at,
                   job.run_at, job.instance, job.token, job.failures, job.crashes, job.retries, job.timeout, job.crash_limit,
                   job."unique", job.cancel_requested, job.progress, job.on_dead, job.life, job.tenant,
                   job.schedule)
    INSERT INTO drumbeat.history (state, finished_at, instance, outcome, id, task, queue, priority, key, args, signature,
                                  created_at, due_at, run_at, started_at, token, failures, crashes, retries, timeout,
                                  crash_limit, "unique", cancel_requested, progress, result, result_error, on_dead, life,
                                  tenant, schedule)
    SELECT 'succeeded', moment, gone.instance, 'succeeded', gone.id, gone.task, gone.queue, gone.priority, gone.key, gone.args,
           gone.signature, gone.created_at, gone.due_at, gone.run_at, (given ->> 'started_at')::bigint, gone.token,
           gone.failures, gone.crashes, gone.retries, gone.timeout, gone.crash_limit, gone."unique", gone.cancel_requested,
           gone.progress, given ->> 'result', given ->> 'result_error', gone.on_dead, gone.life, gone.tenant,
           gone.schedule
      FROM gone;
    IF FOUND THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM drumbeat.history
                WHERE history.id = claim AND history.token = number AND history.instance = holder
                  AND history.outcome = 'succeeded')
    THEN
        RAISE EXCEPTION 'job % has been completed already', claim USING ERRCODE = 'DB003';
    END IF;
    RAISE EXCEPTION 'job % is no longer this worker''s', claim USING ERRCODE = 'DB002';
END
$$;
