-- Statements about locks: calls of the schema's functions (migrations).

-- name: acquire
SELECT ticket, token, lane, place, look_after, granted_at
  FROM drumbeat.lock_acquire($1, $2, $3, $4, $5, $6, $7);

-- name: ticket_status
SELECT ticket, token, lane, place, look_after, granted_at
  FROM drumbeat.lock_ticket_status($1, $2);

-- name: release
SELECT drumbeat.lock_release($1);

-- name: force_release
SELECT drumbeat.lock_force_release($1, $2, $3, $4);

-- name: release_reasons
-- Why these were released by force.
SELECT released_tickets, released_by, released_reason
  FROM drumbeat.lock
 WHERE released_tickets <> ''
   AND string_to_array(released_tickets, ' ') && $1::text[];

-- name: repair_limits
-- Limits below 1 are invalid.
UPDATE drumbeat.lock
   SET "limit" = 1
 WHERE "limit" < 1;

-- name: page
-- $1 after, $2 limit, $3 idle ones as well, $4 only this one. opens_at: when a full window has room again.
SELECT lock.name, lock."limit", lock.per, count(ticket.granted_at) AS holding,
       count(ticket.id) - count(ticket.granted_at) AS waiting, lock.released_at, lock.released_by, lock.released_reason,
       (SELECT past.at + lock.per
          FROM drumbeat.lock_grant AS past
         WHERE past.lock = lock.name
           AND past.at > drumbeat.now_us() - lock.per
         ORDER BY past.at DESC, past.number DESC
        OFFSET greatest(lock."limit" - 1, 0)
         LIMIT 1) AS opens_at
  FROM drumbeat.lock AS lock
  LEFT JOIN drumbeat.ticket AS ticket
    ON ticket.lock = lock.name
   AND ticket.expires_at > drumbeat.now_us()
 WHERE lock.name > $1
   AND ($4::text IS NULL OR lock.name = $4)
 GROUP BY lock.name
HAVING $3 OR count(ticket.id) > 0
 ORDER BY lock.name
 LIMIT $2;

-- name: tickets
-- $1 locks, $2 waiting ones as well.
SELECT lock, id, number, lane, owner, what, entered_at, granted_at, expires_at - drumbeat.now_us() AS remains
  FROM drumbeat.ticket
 WHERE lock = ANY ($1::text[])
   AND expires_at > drumbeat.now_us()
   AND ($2 OR granted_at IS NOT NULL)
 ORDER BY lock, granted_at IS NULL, number
 LIMIT 1000;
