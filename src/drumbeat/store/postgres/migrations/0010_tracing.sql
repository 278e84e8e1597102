-- oldest_code: 1
-- Which span enqueued a job: a W3C traceparent, or null.

ALTER TABLE drumbeat.job ADD COLUMN trace text COLLATE "C";
ALTER TABLE drumbeat.history ADD COLUMN trace text COLLATE "C";
ALTER TABLE drumbeat.dead ADD COLUMN trace text COLLATE "C";

-- As in 0003, with the trace.
CREATE OR REPLACE FUNCTION drumbeat.enqueue(wanted text) RETURNS text
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
#variable_conflict use_column
DECLARE
    given    json := wanted::json;
    jobs     json := given -> 'jobs';
    moment   bigint := drumbeat.now_us();
    oldest   bigint := least((given ->> 'since')::bigint, moment) - 86400000000;
    created  uuid[] := '{}';
    fresh    uuid[];
    ended    uuid[];
    soonest  bigint;
    answer   text;
    doubtful bigint;
BEGIN
    FOR turn IN 1 .. 100 LOOP
        WITH added AS (
             INSERT INTO drumbeat.job (id, task, queue, args, signature, priority, created_at, due_at, run_at, key, "unique",
                                       retries, timeout, crash_limit, on_dead, tenant, trace)
             SELECT new.id, new.task, new.queue, new.args, new.signature, new.priority, moment,
                    coalesce(new.run_at, moment + new.delay), coalesce(new.run_at, moment + new.delay), new.key,
                    new."unique", new.retries, new.timeout, new.crash_limit, new.on_dead, new.tenant,
                    new.trace
               FROM ROWS FROM (json_to_recordset(jobs) AS (id uuid, task text, queue text, args text, signature text,
                               priority smallint, run_at bigint, delay bigint, key text, "unique" text, retries integer,
                               timeout bigint, crash_limit integer, on_dead text, tenant text, trace text)) WITH ORDINALITY
                    AS new (id, task, queue, args, signature, priority, run_at, delay, key, "unique", retries, timeout,
                            crash_limit, on_dead, tenant, trace, place)
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
        SELECT coalesce(array_agg(added.id ORDER BY added.id), '{}'), least(soonest, min(added.run_at))
          INTO fresh, soonest
          FROM added;

        -- One that ended while we inserted: it was no longer in the way, and not yet in the history that we could see.
        IF EXISTS (SELECT FROM drumbeat.history
                    WHERE history.id BETWEEN fresh[1] AND fresh[cardinality(fresh)] AND history.finished_at >= oldest)
           OR EXISTS (SELECT FROM drumbeat.dead WHERE dead.id BETWEEN fresh[1] AND fresh[cardinality(fresh)])
        THEN
            WITH gone AS (
                 DELETE FROM drumbeat.job
                  WHERE job.id = ANY (fresh)
                    AND ((SELECT 1 FROM drumbeat.history
                           WHERE history.id = job.id AND history.finished_at >= oldest LIMIT 1) IS NOT NULL
                         OR (SELECT 1 FROM drumbeat.dead WHERE dead.id = job.id LIMIT 1) IS NOT NULL)
                 RETURNING job.id)
            SELECT array_agg(gone.id) INTO ended FROM gone;
            fresh := ARRAY(SELECT unnest(fresh) EXCEPT SELECT unnest(ended));
        END IF;
        -- Or one of the same key that was added and claimed by others meanwhile.
        ended := drumbeat.held_meanwhile(fresh, ARRAY(SELECT DISTINCT new.task
                                                        FROM json_to_recordset(jobs) AS new (task text, "unique" text)
                                                       WHERE new."unique" = 'live'));
        IF cardinality(ended) > 0 THEN
            DELETE FROM drumbeat.job
             WHERE job.id = ANY (ended);
            fresh := ARRAY(SELECT unnest(fresh) EXCEPT SELECT unnest(ended));
        END IF;
        created := created || fresh;

        IF cardinality(created) = json_array_length(jobs) THEN
            SELECT json_agg(json_build_array(new.id, true) ORDER BY new.place)::text
              INTO answer
              FROM ROWS FROM (json_to_recordset(jobs) AS (id text)) WITH ORDINALITY AS new (id, place);
            EXIT;
        END IF;

        SELECT json_agg(json_build_array(CASE WHEN found.is_known THEN found.id ELSE found.holder END, found.is_new)
                        ORDER BY found.place)::text,
               count(*) FILTER (WHERE NOT found.is_known AND found.holder IS NULL)
          INTO answer, doubtful
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
        EXIT WHEN doubtful = 0;
        IF turn = 100 THEN
            RAISE EXCEPTION 'a unique key changed hands too often' USING ERRCODE = '40001';
        END IF;
    END LOOP;

    IF soonest IS NOT NULL AND (given ->> 'notify')::boolean THEN
        PERFORM pg_notify('drumbeat' || '.wake', soonest::text);
    END IF;
    RETURN answer;
END
$$;

-- As in 0005, with the trace.
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
                   job.schedule, job.trace)
    INSERT INTO drumbeat.history (state, finished_at, instance, outcome, id, task, queue, priority, key, args, signature,
                                  created_at, due_at, run_at, started_at, token, failures, crashes, retries, timeout,
                                  crash_limit, "unique", cancel_requested, progress, result, result_error, on_dead, life,
                                  tenant, schedule, trace)
    SELECT 'succeeded', moment, gone.instance, 'succeeded', gone.id, gone.task, gone.queue, gone.priority, gone.key, gone.args,
           gone.signature, gone.created_at, gone.due_at, gone.run_at, (given ->> 'started_at')::bigint, gone.token,
           gone.failures, gone.crashes, gone.retries, gone.timeout, gone.crash_limit, gone."unique", gone.cancel_requested,
           gone.progress, given ->> 'result', given ->> 'result_error', gone.on_dead, gone.life, gone.tenant,
           gone.schedule, gone.trace
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
