-- Which job enqueued which. Only jobs with a parent are in the indexes, so that others cost nothing more.

ALTER TABLE drumbeat.job
    ADD COLUMN parent text COLLATE "C";
ALTER TABLE drumbeat.history
    ADD COLUMN parent text COLLATE "C";
ALTER TABLE drumbeat.dead
    ADD COLUMN parent text COLLATE "C";
CREATE INDEX job_by_parent
    ON drumbeat.job (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX history_by_parent
    ON drumbeat.history (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX dead_by_parent
    ON drumbeat.dead (parent, id) WHERE parent IS NOT NULL;

-- As in 0001_schema/02_enqueue.sql, with expires_at of 0002 and the parent.
-- Store new jobs. wanted: {"jobs": [{"id": ..., "task": ..., ...}, ...], "since": µs, "notify": true}; no job of these can have
-- ended before `since`. Returns [[id, created], ...] in the same order, as Jobs.add does.
-- Inserts and checks until each job is either inserted or found: each statement sees what others committed before it, and
-- the insert waits for what it does not see. (A transaction that keeps its snapshot ends with a serialization failure.)
-- Planning for all days of history takes longer than the work: so one generic plan that can only use indexes, one lookup for each
-- job. Hence `(SELECT 1 ... LIMIT 1) IS NULL`: EXISTS could become a join with the whole history.
CREATE OR REPLACE FUNCTION drumbeat.enqueue(wanted text) RETURNS text
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
                                       retries, timeout, crash_limit, on_dead, tenant, trace, expires_at, parent)
             SELECT new.id, new.task, new.queue, new.args, new.signature, new.priority, now_at,
                    coalesce(new.run_at, now_at + new.delay), coalesce(new.run_at, now_at + new.delay), new.key,
                    new."unique", new.retries, new.timeout, new.crash_limit, new.on_dead, new.tenant,
                    new.trace, coalesce(new.expires_at, coalesce(new.run_at, now_at + new.delay) + new.expires),
                    new.parent
               FROM ROWS FROM (json_to_recordset(jobs) AS (id uuid, task text, queue text, args text, signature text,
                               priority smallint, run_at bigint, delay bigint, key text, "unique" text, retries integer,
                               timeout bigint, crash_limit integer, on_dead text, tenant text, trace text,
                               expires_at bigint, expires bigint, parent text)) WITH ORDINALITY
                    AS new (id, task, queue, args, signature, priority, run_at, delay, key, "unique", retries, timeout,
                            crash_limit, on_dead, tenant, trace, expires_at, expires, parent, place)
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
