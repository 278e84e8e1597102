-- oldest_code: 1
-- Rooms: who is in which, and an inbox of messages for each instance. They live for moments, and nobody waits for the disk.

ALTER TABLE drumbeat_instance ADD COLUMN rooms TEXT NOT NULL DEFAULT '{}';

CREATE TABLE drumbeat_room_message (
    "to"      TEXT NOT NULL,
    id        TEXT NOT NULL,
    sent_at   INTEGER NOT NULL,
    room      TEXT NOT NULL,
    signature TEXT NOT NULL,
    args      TEXT NOT NULL,
    PRIMARY KEY ("to", id)
);
