-- oldest_code: 1
-- Locks: lines of tickets. Each operation is one call of a function that locks the lock's row first and looks in later
-- statements: each of those sees what others have committed meanwhile. Looking in the statement that locks gave two holders.
-- One plan for all calls, which can only be by index: to plan each statement each time took three quarters of a call.

CREATE TABLE drumbeat.lock (
    last         bigint NOT NULL,
    per          bigint,
    used_at      bigint NOT NULL, -- exact to the hour, so that its index is rarely changed
    released_at  bigint,
    "limit"      integer NOT NULL,
    name         text COLLATE "C" PRIMARY KEY,
    released     text NOT NULL DEFAULT '',
    released_by  text,
    released_why text
) WITH (fillfactor = 50);
CREATE INDEX lock_by_use
    ON drumbeat.lock (used_at);

CREATE TABLE drumbeat.ticket (
    number     bigint NOT NULL,
    lease      bigint NOT NULL,
    expires_at bigint NOT NULL,
    entered_at bigint NOT NULL,
    granted_at bigint,
    lane       integer,
    id         text COLLATE "C" PRIMARY KEY,
    lock       text COLLATE "C" NOT NULL,
    owner      text NOT NULL,
    what       text NOT NULL
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX ticket_line
    ON drumbeat.ticket (lock, number);

-- What a rate window counts.
CREATE TABLE drumbeat.lock_grant (
    at     bigint NOT NULL,
    number bigint NOT NULL,
    lock   text COLLATE "C" NOT NULL,
    PRIMARY KEY (lock, at, number)
);

-- The moment of this very call: that of the statement is older than its wait for a row.
CREATE FUNCTION drumbeat.clock_us() RETURNS bigint
    LANGUAGE sql VOLATILE
    AS 'SELECT (date_part(''epoch'', clock_timestamp()) * 1000000)::bigint';

-- How these tickets stand. place 0 holds; look_after: microseconds until a lease ahead ends or the window opens.
CREATE FUNCTION drumbeat.lock_seen(asked text[], moment bigint)
    RETURNS TABLE (ticket text, token bigint, lane integer, place bigint, look_after bigint, granted_at bigint)
    LANGUAGE sql STABLE
    AS $$
    SELECT line.id, line.number, line.lane, line.place,
           CASE WHEN line.granted_at IS NULL THEN greatest(0, least(line.ahead, opening.at) - moment) END, line.granted_at
      FROM (SELECT id, lock, number, lane, granted_at,
                   CASE WHEN granted_at IS NULL THEN count(*) FILTER (WHERE granted_at IS NULL) OVER queue ELSE 0 END AS place,
                   min(expires_at) OVER (PARTITION BY lock ORDER BY granted_at IS NULL, number
                                         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ahead
              FROM drumbeat.ticket
             WHERE lock IN (SELECT known.lock FROM drumbeat.ticket AS known WHERE known.id = ANY (asked))
            WINDOW queue AS (PARTITION BY lock ORDER BY granted_at IS NULL, number)) AS line
      LEFT JOIN LATERAL (SELECT past.at + lock.per AS at
                           FROM drumbeat.lock AS lock
                           JOIN drumbeat.lock_grant AS past
                             ON past.lock = lock.name
                            AND past.at > moment - lock.per
                          WHERE lock.name = line.lock
                            AND line.place = 1
                          ORDER BY past.at DESC, past.number DESC
                         OFFSET (SELECT known."limit" - 1 FROM drumbeat.lock AS known WHERE known.name = line.lock)
                          LIMIT 1) AS opening
        ON true
     WHERE line.id = ANY (asked)
$$;

-- Grant what is free to the first in line, and tell those who have not asked. The caller has locked the lock's row.
CREATE FUNCTION drumbeat.lock_serve(line text, moment bigint, asked text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE
    AS $$
#variable_conflict use_column
DECLARE
    most    integer;
    span    bigint;
    held    integer;
    free    integer;
    first   text;
    opens   bigint;
    granted text;
BEGIN
    SELECT known."limit", known.per INTO most, span FROM drumbeat.lock AS known WHERE known.name = line;
    SELECT count(*) INTO held FROM drumbeat.ticket WHERE ticket.lock = line AND ticket.granted_at IS NOT NULL;
    free := most - held;
    IF span IS NOT NULL THEN
        DELETE FROM drumbeat.lock_grant WHERE lock_grant.lock = line AND lock_grant.at <= moment - span;
        free := least(free, most - (SELECT count(*) FROM drumbeat.lock_grant WHERE lock_grant.lock = line));
    END IF;
    IF free > 0 THEN
        FOR granted IN
            WITH heads AS MATERIALIZED (
                 SELECT head.id, head.number, row_number() OVER (ORDER BY head.number) AS rank
                   FROM (SELECT ticket.id, ticket.number
                           FROM drumbeat.ticket
                          WHERE ticket.lock = line
                            AND ticket.granted_at IS NULL
                          ORDER BY ticket.number
                          LIMIT free) AS head),
                 unused AS (
                 SELECT number AS lane, row_number() OVER (ORDER BY number) AS rank
                   FROM generate_series(0, held + (SELECT count(*) FROM heads)::integer - 1) AS number
                  WHERE number NOT IN (SELECT ticket.lane
                                         FROM drumbeat.ticket
                                        WHERE ticket.lock = line
                                          AND ticket.granted_at IS NOT NULL)),
                 given AS (
                 UPDATE drumbeat.ticket
                    SET granted_at = moment,
                        lane = unused.lane
                   FROM heads
                   JOIN unused
                     ON unused.rank = heads.rank
                  WHERE ticket.id = heads.id
                 RETURNING ticket.id, ticket.number),
                 noted AS (
                 INSERT INTO drumbeat.lock_grant (lock, at, number)
                 SELECT line, moment, given.number
                   FROM given
                  WHERE span IS NOT NULL)
            SELECT given.id FROM given
        LOOP
            IF granted <> ALL (asked) THEN
                PERFORM pg_notify('drumbeat' || '.locks', granted || ' 0');
            END IF;
        END LOOP;
    END IF;
    IF span IS NULL THEN
        RETURN;
    END IF;
    -- Whoever is first in front of a closed window must know when it opens.
    SELECT ticket.id INTO first
      FROM drumbeat.ticket
     WHERE ticket.lock = line AND ticket.granted_at IS NULL
     ORDER BY ticket.number
     LIMIT 1;
    IF first <> ALL (asked) THEN
        SELECT lock_grant.at + span INTO opens
          FROM drumbeat.lock_grant
         WHERE lock_grant.lock = line
         ORDER BY lock_grant.at DESC, lock_grant.number DESC
        OFFSET most - 1
         LIMIT 1;
        IF opens IS NOT NULL THEN
            PERFORM pg_notify('drumbeat' || '.locks', first || ' ' || greatest(0, opens - moment));
        END IF;
    END IF;
END
$$;

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
BEGIN
    lines := ARRAY(SELECT known.name
                     FROM drumbeat.lock AS known
                    WHERE known.name IN (SELECT own.lock FROM drumbeat.ticket AS own WHERE own.id = ANY (asked))
                    ORDER BY known.name
                      FOR UPDATE);
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
CREATE FUNCTION drumbeat.lock_release(line text, wanted text, who text, why text) RETURNS bigint
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
           released_why = why
     WHERE known.name = line;
    DELETE FROM drumbeat.ticket AS held WHERE held.id = ANY (gone);
    PERFORM pg_notify('drumbeat' || '.locks', each || ' 0') FROM unnest(gone) AS each;
    PERFORM drumbeat.lock_serve(line, moment, '{}');
    RETURN cardinality(gone);
END
$$;
