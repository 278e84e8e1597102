-- oldest_code: 1
-- A unique job may be added and claimed by others while one of "live" is being added: it is younger than the look before the
-- insert, and runs already when the insert comes to the index of those that are new. So whoever adds "live" ones looks again
-- after the insert, with a younger snapshot. (In a transaction that keeps its snapshot there is none.)

CREATE INDEX job_running_beside_live
    ON drumbeat.job (task, key) WHERE "unique" = 'pending' AND state = 'running';

-- Those of these jobs of "live" whose key is held by one of "pending" that runs. tasks: theirs. Begun at the holders: most
-- tasks have none.
CREATE FUNCTION drumbeat.held_meanwhile(added uuid[], tasks text[]) RETURNS uuid[]
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

-- Undo an INSERT of jobs if that is so for one of them.
CREATE FUNCTION drumbeat.refuse_held(added uuid[], tasks text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE
    AS $$
BEGIN
    IF cardinality(drumbeat.held_meanwhile(added, tasks)) > 0 THEN
        RAISE EXCEPTION 'some of these jobs are known' USING ERRCODE = 'DB001';
    END IF;
END
$$;

-- As in 0002, with that look.
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
                                       retries, timeout, crash_limit, on_dead, tenant)
             SELECT new.id, new.task, new.queue, new.args, new.signature, new.priority, moment,
                    coalesce(new.run_at, moment + new.delay), coalesce(new.run_at, moment + new.delay), new.key,
                    new."unique", new.retries, new.timeout, new.crash_limit, new.on_dead, new.tenant
               FROM ROWS FROM (json_to_recordset(jobs) AS (id uuid, task text, queue text, args text, signature text,
                               priority smallint, run_at bigint, delay bigint, key text, "unique" text, retries integer,
                               timeout bigint, crash_limit integer, on_dead text, tenant text)) WITH ORDINALITY
                    AS new (id, task, queue, args, signature, priority, run_at, delay, key, "unique", retries, timeout,
                            crash_limit, on_dead, tenant, place)
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
