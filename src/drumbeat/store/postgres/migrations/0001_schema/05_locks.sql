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
    released_reason text
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
