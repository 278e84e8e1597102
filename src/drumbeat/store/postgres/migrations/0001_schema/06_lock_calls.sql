-- The operations of locks: acquire, ticket status, release, forced release.

-- Acquire tickets in one step: grants and places of a lock are computed once for all of its tickets. One by one, a thousand
-- tickets of one lock held each other up for longer than a call may take.
CREATE FUNCTION drumbeat.lock_acquire(
        tickets text[], lock_names text[], max_holders integer[], window_us bigint[], lease_us bigint[], owner_name text[],
        purpose text[])
    RETURNS SETOF drumbeat.ticket_status
    LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
DECLARE
    now_at    bigint := drumbeat.clock_us();
    lock_name text;
    many      bigint;
    newest    bigint;
    turn      bigint;
    is_new    boolean;
    has_new   boolean := false;
    idle      text[];
BEGIN
    -- In the order of names, as in lock_ticket_status, so that two callers of the same locks cannot deadlock.
    FOR lock_name, many, newest IN
        SELECT wanted.name, count(*), max(wanted.position)
          FROM unnest(lock_names) WITH ORDINALITY AS wanted (name, position)
         GROUP BY wanted.name
         ORDER BY wanted.name COLLATE "C"
    LOOP
        INSERT INTO drumbeat.lock AS known (name, "limit", per, last_number, used_at)
        VALUES (lock_name, max_holders[newest], window_us[newest], now_at + many - 1, now_at / 3600000000 * 3600000000)
            ON CONFLICT (name) DO UPDATE
           SET "limit" = excluded."limit",
               per = excluded.per,
               last_number = greatest(known.last_number + 1, drumbeat.clock_us()) + many - 1,
               used_at = excluded.used_at
        RETURNING known.last_number - many + 1, known.xmax = 0 INTO turn, is_new;
        now_at := drumbeat.clock_us();
        has_new := has_new OR is_new;
        DELETE FROM drumbeat.ticket AS other WHERE other.lock = lock_name AND other.expires_at <= now_at;
        INSERT INTO drumbeat.ticket (id, lock, number, lease, expires_at, entered_at, owner, what)
        SELECT wanted.id, lock_name, turn + row_number() OVER (ORDER BY wanted.position) - 1, wanted.lease,
               now_at + wanted.lease, now_at, wanted.owner, wanted.what
          FROM unnest(tickets, lock_names, lease_us, owner_name, purpose)
               WITH ORDINALITY AS wanted (id, name, lease, owner, what, position)
         WHERE wanted.name = lock_name
            ON CONFLICT (id) DO UPDATE
           SET expires_at = excluded.expires_at;
        PERFORM drumbeat.lock_grant_free(lock_name, now_at, tickets);
    END LOOP;
    IF has_new THEN
        -- A new lock removes some that were not used for a day plus the length of their window. After the loop: nothing waits
        -- for a lock while it holds these.
        idle := ARRAY(SELECT known.name
                        FROM drumbeat.lock AS known
                       WHERE known.used_at < now_at - 86400000000
                         AND known.used_at < now_at - 86400000000 - coalesce(known.per, 0)
                         AND NOT EXISTS (SELECT FROM drumbeat.ticket AS other
                                          WHERE other.lock = known.name AND other.expires_at > now_at)
                       LIMIT 20
                         FOR UPDATE SKIP LOCKED);
        IF cardinality(idle) > 0 THEN
            DELETE FROM drumbeat.ticket AS other WHERE other.lock = ANY (idle);
            DELETE FROM drumbeat.lock_grant AS past WHERE past.lock = ANY (idle);
            DELETE FROM drumbeat.lock AS known WHERE known.name = ANY (idle);
        END IF;
    END IF;
    RETURN QUERY SELECT * FROM drumbeat.lock_status_rows(tickets, now_at);
END
$$;

CREATE FUNCTION drumbeat.lock_ticket_status(tickets text[], renews boolean) RETURNS SETOF drumbeat.ticket_status
    LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
DECLARE
    lock_names text[];
    lock_name  text;
    now_at     bigint := drumbeat.clock_us();
BEGIN
    IF NOT renews THEN
        -- If all tickets hold their locks, as after a notification of a grant, no row has to be locked.
        RETURN QUERY
        SELECT own.id, own.number, own.lane, 0::bigint, NULL::bigint, own.granted_at
          FROM drumbeat.ticket AS own
         WHERE own.id = ANY (tickets)
           AND (SELECT count(*)
                  FROM drumbeat.ticket AS all_of
                 WHERE all_of.id = ANY (tickets)
                   AND all_of.granted_at IS NOT NULL
                   AND all_of.expires_at > now_at) = cardinality(tickets);
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    -- In the order of names, so that two callers of the same locks cannot deadlock.
    lock_names := ARRAY(SELECT known.name
                     FROM drumbeat.lock AS known
                    WHERE known.name IN (SELECT own.lock FROM drumbeat.ticket AS own WHERE own.id = ANY (tickets))
                    ORDER BY known.name
                      FOR UPDATE);
    now_at := drumbeat.clock_us();
    DELETE FROM drumbeat.ticket AS other WHERE other.lock = ANY (lock_names) AND other.expires_at <= now_at;
    IF renews THEN
        UPDATE drumbeat.ticket AS own SET expires_at = now_at + own.lease WHERE own.id = ANY (tickets);
    END IF;
    FOREACH lock_name IN ARRAY lock_names LOOP
        PERFORM drumbeat.lock_grant_free(lock_name, now_at, tickets);
    END LOOP;
    RETURN QUERY SELECT * FROM drumbeat.lock_status_rows(tickets, now_at);
END
$$;

-- A release commits asynchronously: three quarters of a handoff were the fsync of the release, before which NOTIFY sends
-- nothing. A crash of the server may lose the last commits, and no promise depends on these:
--   Numbers, which are the tokens, are given by lock_acquire alone. Its commit is synchronous, and flushes all before it.
--   If a release is lost, its ticket holds the lock again, at most until its lease ends, as if its owner had died. The ticket
--   that was granted the lock by it is the first to wait again. Its owner relies on the grant until its next call, which says
--   that it waits: the lock is lost. No later ticket can be granted the lock before, because grants go in the order of numbers;
--   so there are never two holders.
--   A renewal commits synchronously: its owner relies on the lease. So does a grant of lock_acquire or lock_ticket_status.
--   With a rate window (per) a release commits synchronously as well: the start of the next run must count.
CREATE FUNCTION drumbeat.lock_release(tickets text[]) RETURNS void
    LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
DECLARE
    lock_names text[];
    lock_name  text;
    rated      boolean;
    now_at     bigint;
BEGIN
    SELECT array_agg(known.name), bool_or(known.per IS NOT NULL)
      INTO lock_names, rated
      FROM (SELECT name, per
              FROM drumbeat.lock
             WHERE name IN (SELECT own.lock FROM drumbeat.ticket AS own WHERE own.id = ANY (tickets))
             ORDER BY name
               FOR UPDATE) AS known;
    IF lock_names IS NULL THEN
        RETURN;
    END IF;
    IF NOT rated THEN
        -- For this transaction only.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    now_at := drumbeat.clock_us();
    DELETE FROM drumbeat.ticket AS gone
     WHERE gone.lock = ANY (lock_names)
       AND (gone.id = ANY (tickets) OR gone.expires_at <= now_at);
    FOREACH lock_name IN ARRAY lock_names LOOP
        PERFORM drumbeat.lock_grant_free(lock_name, now_at, tickets);
    END LOOP;
END
$$;

-- Release by force. wanted NULL: all holders. Their owners are notified, so that they ask for the status and learn of it.
CREATE FUNCTION drumbeat.lock_force_release(lock_name text, wanted text, operator_name text, reason text) RETURNS bigint
    LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    AS $$
DECLARE
    now_at bigint;
    gone   text[];
BEGIN
    PERFORM FROM drumbeat.lock AS known WHERE known.name = lock_name FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    now_at := drumbeat.clock_us();
    DELETE FROM drumbeat.ticket AS other WHERE other.lock = lock_name AND other.expires_at <= now_at;
    gone := ARRAY(SELECT held.id
                    FROM drumbeat.ticket AS held
                   WHERE held.lock = lock_name
                     AND CASE WHEN wanted IS NULL THEN held.granted_at IS NOT NULL ELSE held.id = wanted END);
    IF cardinality(gone) = 0 THEN
        RETURN 0;
    END IF;
    UPDATE drumbeat.lock AS known
       SET released_tickets = array_to_string(gone, ' '),
           released_at = now_at,
           released_by = operator_name,
           released_reason = reason
     WHERE known.name = lock_name;
    DELETE FROM drumbeat.ticket AS held WHERE held.id = ANY (gone);
    PERFORM pg_notify('drumbeat' || '.locks', each || ' 0') FROM unnest(gone) AS each;
    PERFORM drumbeat.lock_grant_free(lock_name, now_at, '{}');
    RETURN cardinality(gone);
END
$$;
