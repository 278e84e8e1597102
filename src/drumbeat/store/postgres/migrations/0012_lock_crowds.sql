-- oldest_code: 1
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
