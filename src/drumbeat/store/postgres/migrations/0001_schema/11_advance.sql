-- What the end of a parent does to its children: core/dependencies.py.

-- core.dependencies.judge_edge. A parent that is pruned (no state) counts as met.
CREATE FUNCTION drumbeat.judge_edge(if_fails text, edge_life integer, state text, life integer, is_letter boolean) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
SELECT CASE WHEN state IS NULL OR (if_fails = 'run' AND life > edge_life) THEN 'met'
            WHEN state IN ('pending', 'running') THEN 'nothing'
            WHEN state = 'succeeded' OR if_fails = 'run' THEN 'met'
            WHEN is_letter AND if_fails = 'wait' THEN 'nothing'
            ELSE 'cancel'
        END
$$;

-- core.dependencies.edge_effect.
CREATE FUNCTION drumbeat.edge_effect(if_fails text, edge_life integer, event text, life integer) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
SELECT CASE WHEN life < edge_life THEN 'nothing'
            WHEN event = 'replayed' THEN CASE WHEN if_fails = 'run' THEN 'nothing' ELSE 'revive' END
            WHEN if_fails = 'run' THEN CASE WHEN event = 'discarded' OR life <> edge_life THEN 'nothing' ELSE 'met' END
            WHEN event = 'succeeded' THEN 'met'
            WHEN event = CASE WHEN if_fails = 'wait' THEN 'died' ELSE 'discarded' END THEN 'nothing'
            ELSE 'cancel'
        END
$$;

-- The job of an edge's parent, wherever it is; no row: it is pruned.
CREATE FUNCTION drumbeat.find_parent(wanted uuid) RETURNS TABLE (task text, state text, life integer, is_letter boolean)
    LANGUAGE sql STABLE PARALLEL SAFE ROWS 1
    AS $$
SELECT job.task, job.state, job.replays, false FROM drumbeat.job WHERE job.id = wanted
 UNION ALL
SELECT dead.task, dead.state, dead.replays, true FROM drumbeat.dead WHERE dead.id = wanted
 UNION ALL
SELECT history.task, history.state, history.replays, false FROM drumbeat.history WHERE history.id = wanted
 LIMIT 1
$$;

-- Keep how these jobs ended, for children that bind it. Nearly always they ended lately: all days of history are searched only if
-- one was not found.
CREATE FUNCTION drumbeat.keep_results(parents uuid[]) RETURNS void
    LANGUAGE plpgsql VOLATILE
    AS $$
DECLARE
    since bigint;
    found integer;
BEGIN
    FOREACH since IN ARRAY ARRAY[drumbeat.now_us() - 86400000000, -9223372036854775808] LOOP
        INSERT INTO drumbeat.parent_result (parent, task, state, result, result_error, error)
        SELECT ended.id, ended.task, ended.state, ended.result, ended.result_error, ended.error
          FROM (SELECT id, task, state, result, result_error, error
                  FROM drumbeat.history
                 WHERE history.id = ANY (parents)
                   AND history.finished_at >= since
                 UNION ALL
                SELECT id, task, state, result, result_error, error FROM drumbeat.dead WHERE dead.id = ANY (parents)) AS ended
         ORDER BY ended.id
            ON CONFLICT (parent) DO UPDATE
           SET state = excluded.state,
               result = excluded.result,
               result_error = excluded.result_error,
               error = excluded.error;
        GET DIAGNOSTICS found = ROW_COUNT;
        EXIT WHEN found >= cardinality(parents);
    END LOOP;
END
$$;

-- Follow releases, the oldest first, at most max_edges edges: DependencyStore.advance.
-- One at a time in a namespace: whoever waited finds the work done, or does it for all who wait. So advances do not deadlock with
-- each other; with everything else they lock in the same order, that of ids. Each statement has a snapshot of its own, younger
-- than the locks before it: whoever adds a child to a parent that has ended holds the parent's releases, which are left out here,
-- and calls this function itself.
-- Its commit need not be waited for: the releases are durable since the parents' end, and a lost advance is repeated. Nothing
-- later can outlive it, because the commit of a claim of the child is behind it in the log.
-- Its batches are joined by hashing: by nested loops a thousand children are compared with each other, 100 ms. And what must use
-- the primary key of jobs says the rest inside CASE: else the index of all that wait could be scanned, whatever the statistics.
CREATE FUNCTION drumbeat.advance(max_edges integer, OUT is_more boolean, OUT earliest_due bigint, OUT due_ids text[])
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    SET enable_nestloop = off
    AS $$
DECLARE
    now_at     bigint;
    taken      bigint[];
    ended      uuid[];
    cursors    uuid[];
    lives      integer[];
    happened   text[];
    revives    boolean;
    follows    integer;
    seqs       bigint[];
    parents    uuid[];
    children   uuid[];
    events     text[];
    effects    text[];
    bound      uuid[];
    cancelled  uuid[];
    causes     uuid[];
    reasons    text[];
BEGIN
    is_more := false;
    PERFORM pg_advisory_xact_lock(hashtextextended('drumbeat' || '.advance', 0));
    now_at := drumbeat.now_us() + (date_part('epoch', clock_timestamp() - statement_timestamp()) * 1000000)::bigint;

    -- Up to the first of another sort: replays and ends of the same parent must not meet in one step.
    WITH found AS MATERIALIZED (
         SELECT release.*, release.event = 'replayed' AS is_replay
           FROM drumbeat.release
          ORDER BY release.seq
          LIMIT max_edges
            FOR UPDATE SKIP LOCKED),
         oldest AS MATERIALIZED (
         SELECT found.seq, found.is_replay FROM found ORDER BY found.seq LIMIT 1),
         other AS MATERIALIZED (
         SELECT min(found.seq) AS seq FROM found, oldest WHERE found.is_replay <> oldest.is_replay)
    SELECT array_agg(alike.seq), array_agg(alike.parent), array_agg(alike.after_child), array_agg(alike.life),
           array_agg(alike.event), bool_or(alike.is_replay)
      INTO taken, ended, cursors, lives, happened, revives
      FROM (SELECT found.*
              FROM found, other
             WHERE other.seq IS NULL OR found.seq < other.seq
             ORDER BY found.seq) AS alike;
    IF taken IS NULL THEN
        RETURN;
    END IF;

    -- No DISTINCT or ORDER BY in any of these: all would get the rows in its order, and the last would not be the last.
    SELECT array_agg(found.seq), array_agg(found.parent), array_agg(found.child), array_agg(found.event),
           array_agg(found.effect), array_agg(found.parent) FILTER (WHERE found.effect = 'met' AND found.binding <> '')
      INTO seqs, parents, children, events, effects, bound
      FROM (SELECT release.seq, edge.parent, edge.child, release.event, edge.binding,
                   drumbeat.edge_effect(edge.if_fails, edge.life, release.event, release.life) AS effect
              FROM unnest(taken, ended, cursors, lives, happened) AS release (seq, parent, after_child, life, event)
             CROSS JOIN LATERAL (
                   SELECT *
                     FROM drumbeat.edge
                    WHERE edge.parent = release.parent
                      AND edge.child > coalesce(release.after_child, '00000000-0000-0000-0000-000000000000')
                    ORDER BY edge.child
                    LIMIT max_edges) AS edge
             LIMIT max_edges) AS found;
    follows := coalesce(cardinality(seqs), 0);

    IF revives AND follows > 0 THEN
        SELECT revived.earliest_due, revived.due_ids
          INTO earliest_due, due_ids
          FROM drumbeat.revive(parents, children, effects, now_at) AS revived;
    ELSIF follows > 0 THEN
        IF bound IS NOT NULL THEN
            PERFORM drumbeat.keep_results(bound);
        END IF;
        PERFORM
           FROM drumbeat.job
          WHERE job.id = ANY (ARRAY(SELECT hit.child FROM unnest(children, effects) AS hit (child, effect)
                                     WHERE hit.effect <> 'nothing'))
            AND CASE WHEN job.state = 'pending' AND job.blocked_on = 'parents' THEN true ELSE false END
          ORDER BY job.id
            FOR UPDATE;

        -- Those that a failed parent cancels, by the first that does; and those of a cancelled workflow that would be due. Mostly
        -- there are neither. A workflow that is cancelled from here on waits for the end of this step before its caller is told
        -- (exclude_advances): after that no child of it becomes due.
        IF 'cancel' = ANY (effects) OR EXISTS (SELECT FROM drumbeat.workflow WHERE workflow.cancelled_at IS NOT NULL) THEN
            WITH hit AS MATERIALIZED (
                 SELECT * FROM unnest(parents, children, events, effects) WITH ORDINALITY
                               AS each (parent, child, event, effect, place)),
                 failed AS MATERIALIZED (
                 SELECT DISTINCT ON (hit.child) hit.child, hit.parent, hit.event
                   FROM hit
                  WHERE hit.effect = 'cancel'
                  ORDER BY hit.child, hit.place),
                 met AS MATERIALIZED (
                 SELECT hit.child, count(*) AS number FROM hit WHERE hit.effect = 'met' GROUP BY hit.child),
                 doomed AS (
                 SELECT failed.child, failed.parent,
                        format('{"type":"ParentFailed","message":%s,"traceback":""}',
                               to_json(format('its parent %s (task %s) %s', failed.parent,
                                              (SELECT found.task FROM drumbeat.find_parent(failed.parent) AS found),
                                              CASE failed.event WHEN 'died' THEN 'died' WHEN 'cancelled' THEN 'was cancelled'
                                                   ELSE 'was discarded' END))) AS reason
                   FROM failed
                  UNION ALL
                 SELECT met.child, NULL, '{"type":"WorkflowCancelled","message":"its workflow was cancelled","traceback":""}'
                   FROM met
                  WHERE met.child NOT IN (SELECT failed.child FROM failed)
                    AND EXISTS (SELECT
                                  FROM drumbeat.workflow
                                 WHERE workflow.id = (SELECT job.workflow
                                                        FROM drumbeat.job
                                                       WHERE job.id = met.child
                                                         AND job.open_parents <= met.number)
                                   AND workflow.cancelled_at IS NOT NULL))
            SELECT array_agg(doomed.child), array_agg(doomed.parent), array_agg(doomed.reason)
              INTO cancelled, causes, reasons
              FROM doomed;
        END IF;
        IF cancelled IS NOT NULL THEN
            PERFORM drumbeat.cancel_children(cancelled, causes, reasons, now_at);
        END IF;

        WITH met AS MATERIALIZED (
             SELECT hit.child, count(*)::integer AS number
               FROM unnest(children, effects) AS hit (child, effect)
              WHERE hit.effect = 'met'
              GROUP BY hit.child),
             changed AS (
             UPDATE drumbeat.job
                SET open_parents = greatest(job.open_parents - met.number, 0),
                    blocked_on = CASE WHEN job.open_parents > met.number THEN job.blocked_on END,
                    blocked_since = CASE WHEN job.open_parents > met.number THEN job.blocked_since END,
                    run_at = CASE WHEN job.open_parents > met.number THEN job.run_at ELSE greatest(job.run_at, now_at) END
               FROM met
              WHERE job.id = ANY (ARRAY(SELECT met.child FROM met))
                AND job.id = met.child
                AND CASE WHEN job.state = 'pending' AND job.blocked_on = 'parents' THEN true ELSE false END
             RETURNING job.id, job.run_at, job.blocked_on)
        SELECT min(changed.run_at), array_agg(changed.id::text)
          INTO earliest_due, due_ids
          FROM changed
         WHERE changed.blocked_on IS NULL;
    END IF;

    IF follows < max_edges THEN
        DELETE FROM drumbeat.release WHERE release.seq = ANY (taken);
    ELSE
        DELETE FROM drumbeat.release WHERE release.seq = ANY (taken) AND release.seq < seqs[follows];
        UPDATE drumbeat.release SET after_child = children[follows] WHERE release.seq = seqs[follows];
    END IF;
    PERFORM FROM drumbeat.release ORDER BY release.seq LIMIT 1 FOR UPDATE SKIP LOCKED;
    is_more := FOUND;
END
$$;

-- Of `advance`: move locked children to history, with a release each for those that are parents. causes: the parents that failed.
CREATE FUNCTION drumbeat.cancel_children(children uuid[], causes uuid[], reasons text[], now_at bigint) RETURNS void
    LANGUAGE sql VOLATILE
    AS $$
  WITH doomed AS MATERIALIZED (
       SELECT * FROM unnest(children, causes, reasons) AS each (child, cause, reason)),
       gone AS (
       DELETE FROM drumbeat.job
        WHERE job.id = ANY (children)
          AND CASE WHEN job.state = 'pending' AND job.blocked_on = 'parents' THEN true ELSE false END
       RETURNING job.*),
       left_over AS (
       INSERT INTO drumbeat.release (parent, life, event)
       SELECT gone.id, gone.replays, 'cancelled' FROM gone WHERE gone.is_parent ORDER BY gone.id),
       noted AS (
       INSERT INTO drumbeat.cancelled_child (child, parent)
       SELECT doomed.child, doomed.cause
         FROM doomed
         JOIN gone ON gone.id = doomed.child
        WHERE doomed.cause IS NOT NULL
           ON CONFLICT (child) DO UPDATE SET parent = excluded.parent)
INSERT INTO drumbeat.history (id, created_at, due_at, run_at, finished_at, token, timeout, expires_at, failures, crashes,
                              crash_limit, replays, retries, priority, cancel_requested, state, queue, task, key, signature,
                              "unique", "group", lane, on_dead, schedule, trace, parent, workflow, args, progress, error)
SELECT gone.id, gone.created_at, gone.due_at, gone.run_at, now_at, gone.token, gone.timeout, gone.expires_at, gone.failures,
       gone.crashes, gone.crash_limit, gone.replays, gone.retries, gone.priority, gone.cancel_requested, 'cancelled', gone.queue, gone.task,
       gone.key, gone.signature, gone."unique", gone."group", gone.lane, gone.on_dead, gone.schedule, gone.trace, gone.parent,
       gone.workflow, gone.args, gone.progress, doomed.reason
  FROM gone
  JOIN doomed ON doomed.child = gone.id
$$;

-- Of `advance`: children that were cancelled by the death of a parent that was replayed wait again, as a new life. Not those that
-- another parent cancels, which is noted, nor those whose unique key is held or whose workflow was cancelled.
CREATE FUNCTION drumbeat.revive(parents uuid[], children uuid[], effects text[], now_at bigint, OUT earliest_due bigint,
                                OUT due_ids text[])
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    SET enable_nestloop = off
    AS $$
DECLARE
    wanted  uuid[];
    opens   integer[];
    others  uuid[];
    revived uuid[];
BEGIN
    -- Locked: a person may cancel one of them for good meanwhile.
    wanted := ARRAY(SELECT gone.child
                      FROM unnest(parents, children, effects) AS hit (parent, child, effect)
                      JOIN drumbeat.cancelled_child AS gone ON gone.child = hit.child AND gone.parent = hit.parent
                     WHERE hit.effect = 'revive'
                       AND gone.child = ANY (children)
                     ORDER BY gone.child
                       FOR UPDATE OF gone);
    -- Whoever adds a child to one of these holds it until it is stored.
    PERFORM FROM drumbeat.history WHERE history.id = ANY (wanted) ORDER BY history.id FOR UPDATE;

    -- What of a parent is not followed yet is still to come for the child.
    SELECT coalesce(array_agg(judged.child), '{}'), array_agg(judged.open), array_agg(judged.other)
      INTO wanted, opens, others
      FROM (SELECT edge.child,
                   count(*) FILTER (WHERE facts.verdict = 'nothing'
                                       OR (facts.verdict = 'met'
                                           AND EXISTS (SELECT FROM drumbeat.release
                                                        WHERE release.parent = edge.parent
                                                          AND coalesce(release.after_child < edge.child, true)
                                                          AND drumbeat.edge_effect(edge.if_fails, edge.life, release.event,
                                                                                   release.life) = 'met')))::integer AS open,
                   (array_agg(edge.parent ORDER BY edge.place) FILTER (WHERE facts.verdict = 'cancel'))[1] AS other
              FROM unnest(wanted) AS each (child)
             CROSS JOIN LATERAL (SELECT * FROM drumbeat.edge AS of_child WHERE of_child.child = each.child) AS edge
              LEFT JOIN LATERAL drumbeat.find_parent(edge.parent) AS found ON true
             CROSS JOIN LATERAL (SELECT drumbeat.judge_edge(edge.if_fails, edge.life, found.state, found.life,
                                                            found.is_letter) AS verdict) AS facts
             GROUP BY edge.child) AS judged;

    UPDATE drumbeat.cancelled_child
       SET parent = judged.other
      FROM unnest(wanted, others) AS judged (child, other)
     WHERE cancelled_child.child = ANY (wanted)
       AND cancelled_child.child = judged.child
       AND judged.other IS NOT NULL;

    WITH made AS (
         INSERT INTO drumbeat.job (id, created_at, due_at, run_at, token, timeout, expires_at, crash_limit, replays, retries,
                                   priority, queue, task, key, signature, "unique", "group", lane, on_dead, schedule, trace, parent,
                                   workflow, args, place, open_parents, blocked_on, blocked_since, is_parent, binds)
         SELECT gone.id, gone.created_at, gone.due_at,
                CASE WHEN judged.open > 0 THEN gone.run_at ELSE greatest(gone.run_at, now_at) END, gone.token, gone.timeout,
                gone.expires_at, gone.crash_limit, least(gone.replays, 2147483646) + 1, gone.retries, gone.priority, gone.queue,
                gone.task, gone.key, gone.signature, gone."unique", gone."group", gone.lane, gone.on_dead, gone.schedule, gone.trace,
                gone.parent, gone.workflow, gone.args, CASE WHEN gone.lane <> '' THEN now_at END, judged.open,
                CASE WHEN judged.open > 0 THEN 'parents' END,
                CASE WHEN judged.open > 0 THEN now_at END,
                EXISTS (SELECT FROM drumbeat.edge WHERE edge.parent = gone.id),
                EXISTS (SELECT FROM drumbeat.edge WHERE edge.child = gone.id AND edge.binding <> '')
           FROM unnest(wanted, opens, others) AS judged (child, open, other)
          CROSS JOIN LATERAL (SELECT * FROM drumbeat.history WHERE history.id = judged.child LIMIT 1) AS gone
          WHERE judged.other IS NULL
            AND gone.state = 'cancelled'
            AND (SELECT workflow.cancelled_at FROM drumbeat.workflow WHERE workflow.id = gone.workflow FOR SHARE) IS NULL
            AND (gone."unique" = ''
                 OR (SELECT 1 FROM drumbeat.job AS holder
                      WHERE holder.task = gone.task
                        AND holder.key = gone.key
                        AND holder.key IS NOT NULL
                        AND holder."unique" <> ''
                        AND (gone."unique" = 'live' OR holder.state = 'pending')
                      LIMIT 1) IS NULL)
          ORDER BY gone.id
             ON CONFLICT DO NOTHING
         RETURNING job.id, job.run_at, job.replays, job.is_parent, job.open_parents),
         left_over AS (
         INSERT INTO drumbeat.release (parent, life, event)
         SELECT made.id, made.replays, 'replayed' FROM made WHERE made.is_parent ORDER BY made.id)
    SELECT array_agg(made.id), min(made.run_at) FILTER (WHERE made.open_parents = 0),
           array_agg(made.id::text) FILTER (WHERE made.open_parents = 0)
      INTO revived, earliest_due, due_ids
      FROM made;
    DELETE FROM drumbeat.history WHERE history.id = ANY (revived);
    DELETE FROM drumbeat.cancelled_child WHERE cancelled_child.child = ANY (revived);
END
$$;
