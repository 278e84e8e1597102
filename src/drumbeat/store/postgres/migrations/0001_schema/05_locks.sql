-- Locks and the tickets of those who hold or wait for them. Each operation is one call of a function. It locks the lock's row
-- first and reads tickets in later statements, which see what others have committed meanwhile: reading in the statement that
-- locks gave two holders.
-- The functions use generic plans without sequential scans: planning each statement each time took three quarters of a call.

CREATE TABLE drumbeat.lock (
    last_number      bigint NOT NULL,
    per              bigint,
    used_at          bigint NOT NULL, -- rounded to the hour, so that its index rarely changes
    released_at      bigint,
    "limit"          integer NOT NULL,
    name             text COLLATE "C" PRIMARY KEY,
    released_tickets text NOT NULL DEFAULT '',
    released_by      text,
    released_reason  text
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
CREATE UNIQUE INDEX ticket_by_number
    ON drumbeat.ticket (lock, number);

-- The grants that a rate window counts.
CREATE TABLE drumbeat.lock_grant (
    at     bigint NOT NULL,
    number bigint NOT NULL,
    lock   text COLLATE "C" NOT NULL,
    PRIMARY KEY (lock, at, number)
);

-- The time of this call; the time of the statement is older than its wait for a row.
CREATE FUNCTION drumbeat.clock_us() RETURNS bigint
    LANGUAGE sql VOLATILE
    AS 'SELECT (date_part(''epoch'', clock_timestamp()) * 1000000)::bigint';

-- place 0: holds the lock. look_after: microseconds until a lease ahead ends or the window opens.
CREATE TYPE drumbeat.ticket_status AS (
    ticket     text,
    token      bigint,
    lane       integer,
    place      bigint,
    look_after bigint,
    granted_at bigint
);

CREATE FUNCTION drumbeat.lock_status_rows(tickets text[], now_at bigint) RETURNS SETOF drumbeat.ticket_status
    LANGUAGE sql STABLE
    AS $$
    SELECT standing.id, standing.number, standing.lane, standing.place,
           CASE WHEN standing.granted_at IS NULL THEN greatest(0, least(standing.ahead, opening.at) - now_at) END, standing.granted_at
      FROM (SELECT id, lock, number, lane, granted_at,
                   CASE WHEN granted_at IS NULL THEN count(*) FILTER (WHERE granted_at IS NULL) OVER queue ELSE 0 END AS place,
                   min(expires_at) OVER (PARTITION BY lock ORDER BY granted_at IS NULL, number
                                         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ahead
              FROM drumbeat.ticket
             WHERE lock IN (SELECT known.lock FROM drumbeat.ticket AS known WHERE known.id = ANY (tickets))
            WINDOW queue AS (PARTITION BY lock ORDER BY granted_at IS NULL, number)) AS standing
      LEFT JOIN LATERAL (SELECT past.at + lock.per AS at
                           FROM drumbeat.lock AS lock
                           JOIN drumbeat.lock_grant AS past
                             ON past.lock = lock.name
                            AND past.at > now_at - lock.per
                          WHERE lock.name = standing.lock
                            AND standing.place = 1
                          ORDER BY past.at DESC, past.number DESC
                         OFFSET (SELECT known."limit" - 1 FROM drumbeat.lock AS known WHERE known.name = standing.lock)
                          LIMIT 1) AS opening
        ON true
     WHERE standing.id = ANY (tickets)
$$;

-- Grant free places in the order of tickets; notify the owners of all but `tickets`, whose owners get the result of this call.
-- The caller has locked the lock's row.
CREATE FUNCTION drumbeat.lock_grant_free(lock_name text, now_at bigint, tickets text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    max_holders integer;
    window_us   bigint;
    held        integer;
    free        integer;
    first       text;
    opens       bigint;
    granted     text;
BEGIN
    SELECT known."limit", known.per INTO max_holders, window_us FROM drumbeat.lock AS known WHERE known.name = lock_name;
    SELECT count(*) INTO held FROM drumbeat.ticket WHERE ticket.lock = lock_name AND ticket.granted_at IS NOT NULL;
    free := max_holders - held;
    IF window_us IS NOT NULL THEN
        DELETE FROM drumbeat.lock_grant WHERE lock_grant.lock = lock_name AND lock_grant.at <= now_at - window_us;
        free := least(free, max_holders - (SELECT count(*) FROM drumbeat.lock_grant WHERE lock_grant.lock = lock_name));
    END IF;
    IF free > 0 THEN
        FOR granted IN
            WITH heads AS MATERIALIZED (
                 SELECT head.id, head.number, row_number() OVER (ORDER BY head.number) AS rank
                   FROM (SELECT ticket.id, ticket.number
                           FROM drumbeat.ticket
                          WHERE ticket.lock = lock_name
                            AND ticket.granted_at IS NULL
                          ORDER BY ticket.number
                          LIMIT free) AS head),
                 unused AS (
                 SELECT number AS lane, row_number() OVER (ORDER BY number) AS rank
                   FROM generate_series(0, held + (SELECT count(*) FROM heads)::integer - 1) AS number
                  WHERE number NOT IN (SELECT ticket.lane
                                         FROM drumbeat.ticket
                                        WHERE ticket.lock = lock_name
                                          AND ticket.granted_at IS NOT NULL)),
                 given AS (
                 UPDATE drumbeat.ticket
                    SET granted_at = now_at,
                        lane = unused.lane
                   FROM heads
                   JOIN unused
                     ON unused.rank = heads.rank
                  WHERE ticket.id = heads.id
                 RETURNING ticket.id, ticket.number),
                 noted AS (
                 INSERT INTO drumbeat.lock_grant (lock, at, number)
                 SELECT lock_name, now_at, given.number
                   FROM given
                  WHERE window_us IS NOT NULL)
            SELECT given.id FROM given
        LOOP
            IF granted <> ALL (tickets) THEN
                PERFORM pg_notify('drumbeat' || '.locks', granted || ' 0');
            END IF;
        END LOOP;
    END IF;
    IF window_us IS NULL THEN
        RETURN;
    END IF;
    -- The first to wait for a closed window must know when it opens.
    SELECT ticket.id INTO first
      FROM drumbeat.ticket
     WHERE ticket.lock = lock_name AND ticket.granted_at IS NULL
     ORDER BY ticket.number
     LIMIT 1;
    IF first <> ALL (tickets) THEN
        SELECT lock_grant.at + window_us INTO opens
          FROM drumbeat.lock_grant
         WHERE lock_grant.lock = lock_name
         ORDER BY lock_grant.at DESC, lock_grant.number DESC
        OFFSET max_holders - 1
         LIMIT 1;
        IF opens IS NOT NULL THEN
            PERFORM pg_notify('drumbeat' || '.locks', first || ' ' || greatest(0, opens - now_at));
        END IF;
    END IF;
END
$$;
