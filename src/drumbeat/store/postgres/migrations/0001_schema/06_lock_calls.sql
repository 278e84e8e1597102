-- What is called of locks: enter, look, leave, release.

CREATE FUNCTION drumbeat.lock_enter(
        asked text, line text, most integer, span bigint, lasting bigint, who text, what_for text)
    RETURNS TABLE (ticket text, token bigint, lane integer, place bigint, look_after bigint, granted_at bigint)
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
#variable_conflict use_column
DECLARE
    moment bigint := drumbeat.clock_us();
    turn   bigint;
    is_new boolean;
    idle   text[];
BEGIN
    INSERT INTO drumbeat.lock AS known (name, "limit", per, last, used_at)
    VALUES (line, most, span, moment, moment / 3600000000 * 3600000000)
        ON CONFLICT (name) DO UPDATE
       SET "limit" = excluded."limit",
           per = excluded.per,
           last = greatest(known.last + 1, drumbeat.clock_us()),
           used_at = excluded.used_at
    RETURNING known.last, known.xmax = 0 INTO turn, is_new;
    moment := drumbeat.clock_us();
    IF is_new THEN
        -- Each new name makes room for some that nobody has used for a day and the length of their window.
        idle := ARRAY(SELECT known.name
                        FROM drumbeat.lock AS known
                       WHERE known.used_at < moment - 86400000000
                         AND known.used_at < moment - 86400000000 - coalesce(known.per, 0)
                         AND NOT EXISTS (SELECT FROM drumbeat.ticket AS other
                                          WHERE other.lock = known.name AND other.expires_at > moment)
                       LIMIT 20
                         FOR UPDATE SKIP LOCKED);
        IF cardinality(idle) > 0 THEN
            DELETE FROM drumbeat.ticket AS other WHERE other.lock = ANY (idle);
            DELETE FROM drumbeat.lock_grant AS past WHERE past.lock = ANY (idle);
            DELETE FROM drumbeat.lock AS known WHERE known.name = ANY (idle);
        END IF;
    END IF;
    DELETE FROM drumbeat.ticket AS other WHERE other.lock = line AND other.expires_at <= moment;
    INSERT INTO drumbeat.ticket (id, lock, number, lease, expires_at, entered_at, owner, what)
    VALUES (asked, line, turn, lasting, moment + lasting, moment, who, what_for)
        ON CONFLICT (id) DO UPDATE
       SET expires_at = excluded.expires_at;
    PERFORM drumbeat.lock_serve(line, moment, ARRAY[asked]);
    RETURN QUERY SELECT * FROM drumbeat.lock_seen(ARRAY[asked], moment);
END
$$;

-- Many tickets enter at once, in one step: a line is served, and the places in it are looked at, once for all of them and not for
-- each. One by one, a thousand in one line held each other up for longer than a call may take.
CREATE FUNCTION drumbeat.lock_enter_all(
        asked text[], lines text[], most integer[], span bigint[], lasting bigint[], who text[], what_for text[])
    RETURNS TABLE (ticket text, token bigint, lane integer, place bigint, look_after bigint, granted_at bigint)
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
#variable_conflict use_column
DECLARE
    moment bigint := drumbeat.clock_us();
    line   text;
    many   bigint;
    newest bigint;
    turn   bigint;
BEGIN
    -- By name, as whoever looks: so that two who want the same locks do not wait for each other.
    FOR line, many, newest IN
        SELECT wanted.name, count(*), max(wanted.position)
          FROM unnest(lines) WITH ORDINALITY AS wanted (name, position)
         GROUP BY wanted.name
         ORDER BY wanted.name COLLATE "C"
    LOOP
        INSERT INTO drumbeat.lock AS known (name, "limit", per, last, used_at)
        VALUES (line, most[newest], span[newest], moment + many - 1, moment / 3600000000 * 3600000000)
            ON CONFLICT (name) DO UPDATE
           SET "limit" = excluded."limit",
               per = excluded.per,
               last = greatest(known.last + 1, drumbeat.clock_us()) + many - 1,
               used_at = excluded.used_at
        RETURNING known.last - many + 1 INTO turn;
        moment := drumbeat.clock_us();
        DELETE FROM drumbeat.ticket AS other WHERE other.lock = line AND other.expires_at <= moment;
        INSERT INTO drumbeat.ticket (id, lock, number, lease, expires_at, entered_at, owner, what)
        SELECT wanted.id, line, turn + row_number() OVER (ORDER BY wanted.position) - 1, wanted.lease,
               moment + wanted.lease, moment, wanted.owner, wanted.what
          FROM unnest(asked, lines, lasting, who, what_for)
               WITH ORDINALITY AS wanted (id, name, lease, owner, what, position)
         WHERE wanted.name = line
            ON CONFLICT (id) DO UPDATE
           SET expires_at = excluded.expires_at;
        PERFORM drumbeat.lock_serve(line, moment, asked);
    END LOOP;
    RETURN QUERY SELECT * FROM drumbeat.lock_seen(asked, moment);
END
$$;

CREATE FUNCTION drumbeat.lock_look(asked text[], renews boolean)
    RETURNS TABLE (ticket text, token bigint, lane integer, place bigint, look_after bigint, granted_at bigint)
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
#variable_conflict use_column
DECLARE
    moment bigint := drumbeat.clock_us();
    lines  text[];
    line   text;
BEGIN
    IF NOT renews THEN
        -- Whoever was told that it holds the lock only wants to see it: no row is locked for that.
        RETURN QUERY
        SELECT own.id, own.number, own.lane, 0::bigint, NULL::bigint, own.granted_at
          FROM drumbeat.ticket AS own
         WHERE own.id = ANY (asked)
           AND (SELECT count(*)
                  FROM drumbeat.ticket AS all_of
                 WHERE all_of.id = ANY (asked)
                   AND all_of.granted_at IS NOT NULL
                   AND all_of.expires_at > moment) = cardinality(asked);
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    -- By name, so that two who look at the same locks do not wait for each other.
    lines := ARRAY(SELECT known.name
                     FROM drumbeat.lock AS known
                    WHERE known.name IN (SELECT own.lock FROM drumbeat.ticket AS own WHERE own.id = ANY (asked))
                    ORDER BY known.name
                      FOR UPDATE);
    moment := drumbeat.clock_us();
    DELETE FROM drumbeat.ticket AS other WHERE other.lock = ANY (lines) AND other.expires_at <= moment;
    IF renews THEN
        UPDATE drumbeat.ticket AS own SET expires_at = moment + own.lease WHERE own.id = ANY (asked);
    END IF;
    FOREACH line IN ARRAY lines LOOP
        PERFORM drumbeat.lock_serve(line, moment, asked);
    END LOOP;
    RETURN QUERY SELECT * FROM drumbeat.lock_seen(asked, moment);
END
$$;

-- Leaving a lock does not wait for the disk: three quarters of a handoff were the fsync of the leave, before which NOTIFY says
-- nothing. What a crash of the server may take is a last stretch of commits, and nothing is promised that depends on these:
--   Numbers, which are the tokens, are given by lock_enter alone. That waits for the disk, and with it for all before it.
--   If a leave is lost, its ticket holds the lock again, at most to the end of its lease, as if its owner had died. Whoever
--   was granted the lock by it is the first in line again. It believes in its grant until its next look, which says that it
--   waits: lost. Nobody behind it can be granted the lock before, as it goes by the line; so there are not two.
--   A renewal waits for the disk: its owner believes in the lease that it gives. So does a grant of lock_enter or lock_look.
--   Where there is a rate window (per) a leave waits as well: the start of the next one must count.
CREATE FUNCTION drumbeat.lock_leave(asked text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
#variable_conflict use_column
DECLARE
    moment bigint;
    lines  text[];
    line   text;
    rated  boolean;
BEGIN
    SELECT array_agg(known.name), bool_or(known.per IS NOT NULL)
      INTO lines, rated
      FROM (SELECT name, per
              FROM drumbeat.lock
             WHERE name IN (SELECT own.lock FROM drumbeat.ticket AS own WHERE own.id = ANY (asked))
             ORDER BY name
               FOR UPDATE) AS known;
    IF lines IS NULL THEN
        RETURN;
    END IF;
    IF NOT rated THEN
        -- For this transaction alone.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    moment := drumbeat.clock_us();
    DELETE FROM drumbeat.ticket AS gone
     WHERE gone.lock = ANY (lines)
       AND (gone.id = ANY (asked) OR gone.expires_at <= moment);
    FOREACH line IN ARRAY lines LOOP
        PERFORM drumbeat.lock_serve(line, moment, asked);
    END LOOP;
END
$$;

-- By force. wanted NULL: all that hold it. Their owners are told, so that they look and find out.
CREATE FUNCTION drumbeat.lock_release(line text, wanted text, who text, reason text) RETURNS bigint
    LANGUAGE plpgsql VOLATILE
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
#variable_conflict use_column
DECLARE
    moment bigint;
    gone   text[];
BEGIN
    PERFORM FROM drumbeat.lock AS known WHERE known.name = line FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    moment := drumbeat.clock_us();
    DELETE FROM drumbeat.ticket AS other WHERE other.lock = line AND other.expires_at <= moment;
    gone := ARRAY(SELECT held.id
                    FROM drumbeat.ticket AS held
                   WHERE held.lock = line
                     AND CASE WHEN wanted IS NULL THEN held.granted_at IS NOT NULL ELSE held.id = wanted END);
    IF cardinality(gone) = 0 THEN
        RETURN 0;
    END IF;
    UPDATE drumbeat.lock AS known
       SET released = array_to_string(gone, ' '),
           released_at = moment,
           released_by = who,
           released_reason = reason
     WHERE known.name = line;
    DELETE FROM drumbeat.ticket AS held WHERE held.id = ANY (gone);
    PERFORM pg_notify('drumbeat' || '.locks', each || ' 0') FROM unnest(gone) AS each;
    PERFORM drumbeat.lock_serve(line, moment, '{}');
    RETURN cardinality(gone);
END
$$;
