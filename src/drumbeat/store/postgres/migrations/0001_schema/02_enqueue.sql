-- Checks after an INSERT of jobs, and the operations inside a program's own transaction: each is one call with one text, which
-- every driver can make.

-- Undo an INSERT of jobs if one of them is known: its id exists, its unique key is taken, or it has ended.
-- Runs after the insert, with a younger snapshot: a job that ended meanwhile is missing from the live table and not yet in the
-- history that the insert could see. Ids are ordered by time, so the ids of a batch are a narrow range with nothing else in it.
-- `since` limits the lookup to the days on which they can have ended.
CREATE FUNCTION drumbeat.raise_if_known(wanted integer, added bigint, first uuid, last uuid, since bigint) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    AS $$
BEGIN
    IF added < wanted
       OR EXISTS (SELECT FROM drumbeat.history AS history
                   WHERE history.id BETWEEN first AND last
                     AND history.finished_at >= least(since, drumbeat.now_us()) - 86400000000
                     AND history.finished_at < drumbeat.now_us() + 86400000000)
       OR EXISTS (SELECT FROM drumbeat.dead AS dead WHERE dead.id BETWEEN first AND last)
    THEN
        RAISE EXCEPTION 'some of these jobs are known' USING ERRCODE = 'DB001';
    END IF;
END
$$;

-- Those of the added jobs with unique = 'live' whose key is held by a running job with unique = 'pending'. tasks: their tasks.
-- Starts from the holders: most tasks have none.
-- While a 'live' job is being added, others may add and claim a unique job: it is younger than the check before the insert, and
-- already runs when the insert reaches the index of new jobs. So whoever adds 'live' jobs checks again after the insert, with a
-- younger snapshot. (A transaction that keeps its snapshot has none.)
CREATE FUNCTION drumbeat.find_keys_held(added uuid[], tasks text[]) RETURNS uuid[]
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
BEGIN
    RETURN ARRAY(SELECT held.id
                   FROM (SELECT (SELECT new.id
                                   FROM drumbeat.job AS new
                                  WHERE new.task = holder.task
                                    AND new.key = holder.key
                                    AND new."unique" = 'live'
                                  LIMIT 1) AS id
                           FROM drumbeat.job AS holder
                          WHERE holder.task = ANY (tasks)
                            AND holder."unique" = 'pending'
                            AND holder.state = 'running') AS held
                  WHERE held.id = ANY (added));
END
$$;

-- Undo an INSERT of jobs if find_keys_held finds one of them.
CREATE FUNCTION drumbeat.raise_if_key_held(added uuid[], tasks text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE
    AS $$
BEGIN
    IF cardinality(drumbeat.find_keys_held(added, tasks)) > 0 THEN
        RAISE EXCEPTION 'some of these jobs are known' USING ERRCODE = 'DB001';
    END IF;
END
$$;

-- Store new jobs. wanted: {"jobs": [{"id": ..., "task": ..., ...}, ...], "since": µs, "notify": true}; no job of these can have
-- ended before `since`. Returns [[id, created], ...] in the same order, as Jobs.add does.
-- Inserts and checks until each job is either inserted or found: each statement sees what others committed before it, and
-- the insert waits for what it does not see. (A transaction that keeps its snapshot ends with a serialization failure.)
-- Planning for all days of history takes longer than the work: so one generic plan that can only use indexes, one lookup for each
-- job. Hence `(SELECT 1 ... LIMIT 1) IS NULL`: EXISTS could become a join with the whole history.
CREATE FUNCTION drumbeat.enqueue(wanted text) RETURNS text
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
DECLARE
    given    json := wanted::json;
    jobs     json := given -> 'jobs';
    now_at   bigint := drumbeat.now_us();
    oldest   bigint := least((given ->> 'since')::bigint, now_at) - 86400000000;
    created  uuid[] := '{}';
    inserted    uuid[];
    ended    uuid[];
    earliest_due  bigint;
    answer   text;
    unresolved bigint;
BEGIN
    FOR turn IN 1 .. 100 LOOP
        WITH added AS (
             INSERT INTO drumbeat.job (id, task, queue, args, signature, priority, created_at, due_at, run_at, key, "unique",
                                       retries, timeout, crash_limit, on_dead, "group", lane, trace, expires_at, parent,
                                       workflow)
             SELECT new.id, new.task, new.queue, new.args, new.signature, new.priority, now_at,
                    coalesce(new.run_at, now_at + new.delay), coalesce(new.run_at, now_at + new.delay), new.key,
                    new."unique", new.retries, new.timeout, new.crash_limit, new.on_dead, new."group", new.lane,
                    new.trace, coalesce(new.expires_at, coalesce(new.run_at, now_at + new.delay) + new.expires),
                    new.parent, new.workflow
               FROM ROWS FROM (json_to_recordset(jobs) AS (id uuid, task text, queue text, args text, signature text,
                               priority smallint, run_at bigint, delay bigint, key text, "unique" text, retries integer,
                               timeout bigint, crash_limit integer, on_dead text, "group" text, lane text, trace text,
                               expires_at bigint, expires bigint, parent text, workflow text)) WITH ORDINALITY
                    AS new (id, task, queue, args, signature, priority, run_at, delay, key, "unique", retries, timeout,
                            crash_limit, on_dead, "group", lane, trace, expires_at, expires, parent, workflow, place)
              WHERE (SELECT 1 FROM drumbeat.history
                      WHERE history.id = new.id AND history.finished_at >= oldest LIMIT 1) IS NULL
                AND (SELECT 1 FROM drumbeat.dead WHERE dead.id = new.id LIMIT 1) IS NULL
                AND (new."unique" = ''
                     OR (SELECT 1 FROM drumbeat.job AS holder
                          WHERE holder.task = new.task
                            AND holder.key = new.key
                            AND holder.key IS NOT NULL
                            AND holder."unique" <> ''
                            AND (new."unique" = 'live' OR holder.state = 'pending')
                          LIMIT 1) IS NULL)
              ORDER BY new.place
                 ON CONFLICT DO NOTHING
             RETURNING job.id, job.run_at)
        SELECT coalesce(array_agg(added.id ORDER BY added.id), '{}'), least(earliest_due, min(added.run_at))
          INTO inserted, earliest_due
          FROM added;

        -- A job that ended during the insert was no longer in the live table, and not yet in the history that the insert saw.
        IF EXISTS (SELECT FROM drumbeat.history
                    WHERE history.id BETWEEN inserted[1] AND inserted[cardinality(inserted)] AND history.finished_at >= oldest)
           OR EXISTS (SELECT FROM drumbeat.dead WHERE dead.id BETWEEN inserted[1] AND inserted[cardinality(inserted)])
        THEN
            WITH gone AS (
                 DELETE FROM drumbeat.job
                  WHERE job.id = ANY (inserted)
                    AND ((SELECT 1 FROM drumbeat.history
                           WHERE history.id = job.id AND history.finished_at >= oldest LIMIT 1) IS NOT NULL
                         OR (SELECT 1 FROM drumbeat.dead WHERE dead.id = job.id LIMIT 1) IS NOT NULL)
                 RETURNING job.id)
            SELECT array_agg(gone.id) INTO ended FROM gone;
            inserted := ARRAY(SELECT unnest(inserted) EXCEPT SELECT unnest(ended));
        END IF;
        -- Others may have added and claimed a job of the same key meanwhile.
        ended := drumbeat.find_keys_held(inserted, ARRAY(SELECT DISTINCT new.task
                                                        FROM json_to_recordset(jobs) AS new (task text, "unique" text)
                                                       WHERE new."unique" = 'live'));
        IF cardinality(ended) > 0 THEN
            DELETE FROM drumbeat.job
             WHERE job.id = ANY (ended);
            inserted := ARRAY(SELECT unnest(inserted) EXCEPT SELECT unnest(ended));
        END IF;
        created := created || inserted;

        IF cardinality(created) = json_array_length(jobs) THEN
            SELECT json_agg(json_build_array(new.id, true) ORDER BY new.place)::text
              INTO answer
              FROM ROWS FROM (json_to_recordset(jobs) AS (id text)) WITH ORDINALITY AS new (id, place);
            EXIT;
        END IF;

        SELECT json_agg(json_build_array(CASE WHEN found.is_known THEN found.id ELSE found.holder END, found.is_new)
                        ORDER BY found.place)::text,
               count(*) FILTER (WHERE NOT found.is_known AND found.holder IS NULL)
          INTO answer, unresolved
          FROM (SELECT new.id, new.place,
                       made.id IS NOT NULL AND row_number() OVER (PARTITION BY new.id ORDER BY new.place) = 1 AS is_new,
                       (SELECT 1 FROM drumbeat.job WHERE job.id = new.id LIMIT 1) IS NOT NULL
                           OR (SELECT 1 FROM drumbeat.history
                                WHERE history.id = new.id AND history.finished_at >= oldest LIMIT 1) IS NOT NULL
                           OR (SELECT 1 FROM drumbeat.dead WHERE dead.id = new.id LIMIT 1) IS NOT NULL AS is_known,
                       (SELECT holder.id
                          FROM drumbeat.job AS holder
                         WHERE holder.task = new.task
                           AND holder.key = new.key
                           AND holder.key IS NOT NULL
                           AND holder."unique" <> ''
                           AND new."unique" <> ''
                           AND (new."unique" = 'live' OR holder.state = 'pending')
                         ORDER BY holder.id
                         LIMIT 1) AS holder
                  FROM ROWS FROM (json_to_recordset(jobs) AS (id uuid, task text, key text, "unique" text)) WITH ORDINALITY
                       AS new (id, task, key, "unique", place)
                  LEFT JOIN unnest(created) AS made (id)
                    ON made.id = new.id) AS found;
        EXIT WHEN unresolved = 0;
        IF turn = 100 THEN
            RAISE EXCEPTION 'a unique key changed hands too often' USING ERRCODE = '40001';
        END IF;
    END LOOP;

    IF earliest_due IS NOT NULL AND (given ->> 'notify')::boolean THEN
        PERFORM pg_notify('drumbeat' || '.wake', earliest_due::text);
    END IF;
    RETURN answer;
END
$$;

-- Move a running job to history as succeeded. ended: {"id", "token", "instance", "started_at", "result", "result_error"}.
-- The job's row is the fence: declaring an instance dead takes its jobs away in the same step, and waits here for a completion
-- under way. A stale claim is an error, so that the transaction around it cannot commit: DB002, or DB003 if the same claim has
-- completed the job before.
CREATE FUNCTION drumbeat.complete(ended text) RETURNS boolean
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
DECLARE
    given      record;
    now_at     bigint := drumbeat.now_us();
    is_current boolean;
    is_parent  boolean;
    in_lane    boolean;
BEGIN
    SELECT claim.* INTO given
      FROM json_to_record(ended::json) AS claim (id uuid, token bigint, instance text, started_at bigint, result text,
                                                 result_error text);
    PERFORM drumbeat.ensure_history_day(now_at / 86400000000 * 86400000000);
    WITH gone AS (
         DELETE FROM drumbeat.job
          WHERE job.id = given.id
            AND job.token = given.token
            AND job.instance = given.instance
         RETURNING job.*),
         left_over AS (
         INSERT INTO drumbeat.release (parent, life, event)
         SELECT gone.id, gone.replays, 'succeeded' FROM gone WHERE gone.is_parent),
         kept AS (
         INSERT INTO drumbeat.history
         SELECT kept.*
           FROM gone
          CROSS JOIN jsonb_populate_record(NULL::drumbeat.history, to_jsonb(gone) || jsonb_build_object(
                         'state', 'succeeded', 'outcome', 'succeeded', 'started_at', given.started_at, 'finished_at', now_at,
                         'result', given.result, 'result_error', given.result_error, 'error', NULL)) AS kept)
    SELECT true, gone.is_parent, gone.lane <> '' INTO is_current, is_parent, in_lane FROM gone;
    IF is_current THEN
        IF in_lane THEN -- there is room for another
            PERFORM pg_notify('drumbeat' || '.wake', now_at::text);
        END IF;
        RETURN is_parent;
    END IF;
    IF EXISTS (SELECT FROM drumbeat.history
                WHERE history.id = given.id AND history.token = given.token AND history.instance = given.instance
                  AND history.outcome = 'succeeded')
    THEN
        RAISE EXCEPTION 'job % has been completed already', given.id USING ERRCODE = 'DB003';
    END IF;
    RAISE EXCEPTION 'job % is no longer this worker''s', given.id USING ERRCODE = 'DB002';
END
$$;
