-- Statements about messages to rooms.

-- name: send
-- $1 id, $2 room, $3 to, $4 args, $5 signature, each an array; $6 the notification. NOTIFY carries at most
-- 8,000 bytes: it names the receivers, not the messages.
  WITH sent AS (
       INSERT INTO drumbeat.room_message (sent_at, id, room, "to", args, signature)
       SELECT drumbeat.now_us(), *
         FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
           ON CONFLICT ("to", id) DO NOTHING)
SELECT pg_notify('drumbeat' || '.rooms', $6);

-- name: take
-- ARRAY, here and below: as `IN (SELECT ... LIMIT ...)` a plan may run the subquery for each row, and more than the limit goes.
DELETE FROM drumbeat.room_message
 WHERE "to" = $1
   AND id = ANY (ARRAY(SELECT id
                         FROM drumbeat.room_message
                        WHERE "to" = $1
                        ORDER BY id
                        LIMIT $2
                          FOR UPDATE SKIP LOCKED))
RETURNING id, room, "to", args, signature;

-- name: list_untaken
-- $1 to, $2 id, each an array: those of these messages that were not taken yet.
SELECT id
  FROM drumbeat.room_message
 WHERE ("to", id) IN (SELECT * FROM unnest($1::text[], $2::text[]));

-- name: withdraw
-- Arguments as of list_untaken.
DELETE FROM drumbeat.room_message
 WHERE ("to", id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
RETURNING id;

-- name: prune
-- $1 age, $2 limit, $3 instances whose messages are kept.
DELETE FROM drumbeat.room_message
 WHERE ctid = ANY (ARRAY(SELECT ctid
                           FROM drumbeat.room_message
                          WHERE sent_at <= drumbeat.now_us() - $1
                            AND "to" <> ALL ($3::text[])
                          LIMIT $2
                            FOR UPDATE SKIP LOCKED))
RETURNING id;
