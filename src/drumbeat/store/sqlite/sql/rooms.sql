-- Statements about messages to rooms.

-- name: send
INSERT INTO drumbeat_room_message ("to", id, sent_at, room, signature, args)
VALUES (:to, :id, :now, :room, :signature, :args)
    ON CONFLICT ("to", id) DO NOTHING;

-- name: wake_addresses
-- Wake addresses of these instances.
SELECT json_group_array(wake)
  FROM drumbeat_instance
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND state = 'alive'
   AND typeof(wake) = 'text';

-- name: has_any
SELECT EXISTS (SELECT 1 FROM drumbeat_room_message WHERE "to" = :to);

-- name: take
-- Columns as in core.room.RoomMessage.
DELETE FROM drumbeat_room_message
 WHERE rowid IN (SELECT rowid
                   FROM drumbeat_room_message
                  WHERE "to" = :to
                  ORDER BY id
                  LIMIT :limit)
RETURNING id, room, "to", args, signature;

-- name: list_untaken
-- Those of these messages that were not taken yet.
SELECT json_group_array(id)
  FROM drumbeat_room_message
 WHERE "to" IN (SELECT value FROM json_each(:to))
   AND id IN (SELECT value FROM json_each(:ids));

-- name: withdraw
-- The same messages.
DELETE FROM drumbeat_room_message
 WHERE "to" IN (SELECT value FROM json_each(:to))
   AND id IN (SELECT value FROM json_each(:ids))
RETURNING id;

-- name: prune
DELETE FROM drumbeat_room_message
 WHERE rowid IN (SELECT rowid
                   FROM drumbeat_room_message
                  WHERE (sent_at <= :until OR typeof(sent_at) <> 'integer')
                    AND "to" NOT IN (SELECT value FROM json_each(:but))
                  LIMIT :limit);
