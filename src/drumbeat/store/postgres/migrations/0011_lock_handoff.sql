-- oldest_code: 1
-- Leaving a lock does not wait for the disk: three quarters of a handoff were the fsync of the leave, before which NOTIFY says
-- nothing. What a crash of the server may take is a last stretch of commits, and nothing is promised that depends on these:
--   Numbers, which are the tokens, are given by lock_enter alone. That waits for the disk, and with it for all before it.
--   If a leave is lost, its ticket holds the lock again, at most to the end of its lease, as if its owner had died. Whoever
--   was granted the lock by it is the first in line again. It believes in its grant until its next look, which says that it
--   waits: lost. Nobody behind it can be granted the lock before, as it goes by the line; so there are not two.
--   A renewal waits for the disk: its owner believes in the lease that it gives. So does a grant of lock_enter or lock_look.
--   Where there is a rate window (per) a leave waits as well: the start of the next one must count.

CREATE OR REPLACE FUNCTION drumbeat.lock_leave(asked text[]) RETURNS void
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
