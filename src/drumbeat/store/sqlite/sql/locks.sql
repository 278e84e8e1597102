-- Statements about locks. :now is boot time, :wall is UTC.

-- name: boot_of
SELECT boot
  FROM drumbeat_lock
 WHERE name = :lock;

-- name: upsert_lock
-- Returns the number of the next ticket.
INSERT INTO drumbeat_lock (name, "limit", per, last_number, boot, used_at)
VALUES (:lock, :limit, :per, :lowest_token, :boot, :hour)
    ON CONFLICT (name) DO UPDATE
   SET "limit" = excluded."limit",
       per = excluded.per,
       last_number = max(last_number + 1, excluded.last_number),
       used_at = excluded.used_at
RETURNING last_number;

-- name: set_boot
UPDATE drumbeat_lock
   SET boot = :boot
 WHERE name = :lock;

-- name: delete_tickets_of_locks
DELETE FROM drumbeat_ticket
 WHERE lock IN (SELECT value FROM json_each(:locks));

-- name: rebase_grants
-- Convert grants from before a reboot to boot time: they were before its beginning, also if the clock is behind.
UPDATE drumbeat_lock_grant
   SET at = min(granted_at - :wall + :now, 0)
 WHERE lock = :lock;

-- name: delete_expired
-- A text or a blob is greater than every number; such a lease counts as ended.
DELETE FROM drumbeat_ticket
 WHERE lock = :lock
   AND (expires_at <= :now OR expires_at > 9e18);

-- name: delete_malformed_tickets
-- Tickets with a column of the wrong type.
DELETE FROM drumbeat_ticket
 WHERE typeof(id) <> 'text'
    OR typeof(lock) <> 'text'
    OR typeof(number) <> 'integer'
    OR typeof(lease) <> 'integer'
    OR typeof(expires_at) <> 'integer'
    OR typeof(entered_at) <> 'integer'
    OR typeof(granted_at) NOT IN ('integer', 'null')
    OR typeof(lane) NOT IN ('integer', 'null')
    OR typeof(owner) <> 'text'
    OR typeof(what) <> 'text'
    OR typeof(wake) NOT IN ('text', 'null');

-- name: repair_locks
-- Columns of a lock that cannot be read get initial values.
UPDATE drumbeat_lock
   SET "limit" = CASE WHEN typeof("limit") = 'integer' THEN "limit" ELSE 1 END,
       per = CASE WHEN typeof(per) = 'integer' THEN per END,
       last_number = CASE WHEN typeof(last_number) = 'integer' AND last_number < 1e18 THEN last_number ELSE :lowest_token END,
       boot = CASE WHEN typeof(boot) = 'text' THEN boot ELSE '' END,
       used_at = CASE WHEN typeof(used_at) = 'integer' THEN used_at ELSE :wall END,
       released_tickets = CASE WHEN typeof(released_tickets) = 'text' THEN released_tickets ELSE '' END,
       released_at = CASE WHEN typeof(released_at) = 'integer' THEN released_at END,
       released_by = CASE WHEN typeof(released_by) = 'text' THEN released_by END,
       released_reason = CASE WHEN typeof(released_reason) = 'text' THEN released_reason END
 WHERE typeof("limit") <> 'integer'
    OR typeof(per) NOT IN ('integer', 'null')
    OR typeof(last_number) <> 'integer'
    OR last_number >= 1e18
    OR typeof(boot) <> 'text'
    OR typeof(used_at) <> 'integer'
    OR typeof(released_tickets) <> 'text'
    OR typeof(released_at) NOT IN ('integer', 'null')
    OR typeof(released_by) NOT IN ('text', 'null')
    OR typeof(released_reason) NOT IN ('text', 'null');

-- name: texts_of_tickets
SELECT id, owner, what, wake
  FROM drumbeat_ticket;

-- name: delete_malformed_ticket
-- By the bytes of its id, which may not be a valid text.
DELETE FROM drumbeat_ticket
 WHERE id = CAST(:id AS TEXT);

-- name: texts_of_locks
SELECT name, boot, released_tickets, released_by, released_reason
  FROM drumbeat_lock;

-- name: clear_texts
UPDATE drumbeat_lock
   SET boot = '',
       released_tickets = '',
       released_by = NULL,
       released_reason = NULL
 WHERE name = CAST(:name AS TEXT);

-- name: delete_malformed_grants
DELETE FROM drumbeat_lock_grant
 WHERE typeof(at) <> 'integer'
    OR typeof(number) <> 'integer'
    OR typeof(granted_at) <> 'integer';

-- name: upsert_ticket
INSERT INTO drumbeat_ticket (id, lock, number, lease, expires_at, entered_at, owner, what, wake)
VALUES (:id, :lock, :number, :lease, :now + :lease, :wall, :owner, :what, :wake)
    ON CONFLICT (id) DO UPDATE
   SET expires_at = excluded.expires_at;

-- name: renew
UPDATE drumbeat_ticket
   SET expires_at = :now + lease
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: locks_of_tickets
-- The locks of these tickets: [[name, boot], ...]
SELECT json_group_array(json_array(name, boot))
  FROM drumbeat_lock
 WHERE name IN (SELECT lock FROM drumbeat_ticket WHERE id IN (SELECT value FROM json_each(:ids)));

-- name: lock_state
-- [limit, per, lanes in use]
SELECT json_array("limit", per, json((SELECT json_group_array(lane) FROM drumbeat_ticket
                                       WHERE lock = name AND granted_at IS NOT NULL)))
  FROM drumbeat_lock
 WHERE name = :lock;

-- name: prune_window
DELETE FROM drumbeat_lock_grant
 WHERE lock = :lock
   AND at <= :now - :per;

-- name: granted_in_window
SELECT count(*)
  FROM drumbeat_lock_grant
 WHERE lock = :lock;

-- name: first_waiting
SELECT json_group_array(json_array(id, number, wake))
  FROM (SELECT id, number, wake
          FROM drumbeat_ticket
         WHERE lock = :lock
           AND granted_at IS NULL
         ORDER BY number
         LIMIT :free);

-- name: grant
UPDATE drumbeat_ticket
   SET granted_at = :wall,
       lane = :lane
 WHERE id = :id;

-- name: insert_grant
INSERT INTO drumbeat_lock_grant (lock, at, number, granted_at)
VALUES (:lock, :now, :number, :wall);

-- name: opens_at
-- When a full rate window has room again.
SELECT at + :per
  FROM drumbeat_lock_grant
 WHERE lock = :lock
 ORDER BY at DESC, number DESC
 LIMIT 1 OFFSET :limit - 1;

-- name: ticket_statuses
-- The status of these tickets, and when the next lease ahead of them ends: [[id, number, lane, granted_at, place, ahead], ...]
SELECT json_group_array(json_array(id, number, lane, granted_at, place, ahead))
  FROM (SELECT id, number, lane, granted_at,
               count(*) FILTER (WHERE granted_at IS NULL) OVER queue AS place,
               min(expires_at) OVER (PARTITION BY lock ORDER BY granted_at IS NULL, number
                                     ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ahead
          FROM drumbeat_ticket
         WHERE lock IN (SELECT lock FROM drumbeat_ticket WHERE id IN (SELECT value FROM json_each(:ids)))
        WINDOW queue AS (PARTITION BY lock ORDER BY granted_at IS NULL, number))
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: ticket_status
-- The same for one ticket: a tenth of the time if many wait.
SELECT json_array(json_array(own.id, own.number, own.lane, own.granted_at,
           (SELECT count(*)
              FROM drumbeat_ticket AS other
             WHERE other.lock = own.lock AND other.number <= own.number AND other.granted_at IS NULL),
           (SELECT min(other.expires_at)
              FROM drumbeat_ticket AS other
             WHERE other.lock = own.lock
               AND other.id <> own.id
               AND (other.number < own.number OR other.granted_at IS NOT NULL))))
  FROM drumbeat_ticket AS own
 WHERE own.id = :id;

-- name: granted_tickets
-- Those of these tickets that hold their lock, in the form of `ticket_statuses`.
SELECT json_group_array(json_array(id, number, lane, granted_at, 0, NULL))
  FROM drumbeat_ticket
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND granted_at IS NOT NULL
   AND expires_at > :now
   AND lock IN (SELECT name FROM drumbeat_lock WHERE boot = :boot);

-- name: release_reasons
-- Why these were released by force: [[tickets, by, reason], ...]
SELECT json_group_array(json_array(released_tickets, released_by, released_reason))
  FROM drumbeat_lock
 WHERE released_tickets <> ''
   AND EXISTS (SELECT 1 FROM json_each(:ids) WHERE instr(released_tickets, value));

-- name: delete_tickets
DELETE FROM drumbeat_ticket
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: tickets_to_release
-- Tickets to be released: [[id, wake], ...]
SELECT json_group_array(json_array(id, wake))
  FROM drumbeat_ticket
 WHERE lock = :lock
   AND CASE WHEN :ticket IS NULL THEN granted_at IS NOT NULL ELSE id = :ticket END;

-- name: record_release
UPDATE drumbeat_lock
   SET released_tickets = :released,
       released_at = :wall,
       released_by = :by,
       released_reason = :reason
 WHERE name = :lock;

-- name: idle_locks
-- Some locks that were not used for a day plus the length of their window.
SELECT json_group_array(name)
  FROM (SELECT name
          FROM drumbeat_lock AS lock
         WHERE used_at < :wall - 86400000000
           AND used_at < :wall - 86400000000 - coalesce(per, 0)
           AND NOT EXISTS (SELECT 1
                             FROM drumbeat_ticket AS ticket
                            WHERE ticket.lock = lock.name
                              AND lock.boot = :boot
                              AND ticket.expires_at > :now)
         LIMIT 20);

-- name: delete_idle_grants
DELETE FROM drumbeat_lock_grant
 WHERE lock IN (SELECT value FROM json_each(:locks));

-- name: delete_idle_locks
DELETE FROM drumbeat_lock
 WHERE name IN (SELECT value FROM json_each(:locks));

-- name: page
-- opens_at: when a full window has room again, in UTC.
SELECT json_group_array(json_array(name, "limit", per, holding, waiting, released_at, released_by, released_reason, opens_at))
  FROM (SELECT lock.name, lock."limit", lock.per, lock.released_at, lock.released_by, lock.released_reason,
               count(ticket.granted_at) AS holding, count(ticket.id) - count(ticket.granted_at) AS waiting,
               (SELECT past.at + lock.per - :now + :wall
                  FROM (SELECT at, row_number() OVER (ORDER BY at DESC, number DESC) AS place
                          FROM drumbeat_lock_grant
                         WHERE drumbeat_lock_grant.lock = lock.name
                           AND at > :now - lock.per) AS past
                 WHERE past.place = lock."limit"
                   AND lock.boot = :boot) AS opens_at
          FROM drumbeat_lock AS lock
          LEFT JOIN drumbeat_ticket AS ticket
            ON ticket.lock = lock.name
           AND lock.boot = :boot
           AND ticket.expires_at > :now
         WHERE lock.name > :after
           AND (:lock IS NULL OR lock.name = :lock)
         GROUP BY lock.name
        HAVING :all OR count(ticket.id) > 0
         ORDER BY lock.name
         LIMIT :limit);

-- name: tickets
-- Columns as in overview.TicketRow.
SELECT json_group_array(json_array(lock, id, number, lane, owner, what, entered_at, granted_at, expires_at - :now))
  FROM (SELECT lock, id, number, lane, owner, what, entered_at, granted_at, expires_at
          FROM drumbeat_ticket
         WHERE lock IN (SELECT value FROM json_each(:locks))
           AND expires_at > :now
           AND (:all OR granted_at IS NOT NULL)
         ORDER BY lock, granted_at IS NULL, number
         LIMIT 1000);
