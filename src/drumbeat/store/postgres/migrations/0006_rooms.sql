-- oldest_code: 1
-- Rooms: who is in which, and an inbox of messages for each instance. They live for moments: a crash of the server may take them.

ALTER TABLE drumbeat.instance ADD COLUMN rooms text NOT NULL DEFAULT '{}';

CREATE UNLOGGED TABLE drumbeat.room_message (
    sent_at   bigint NOT NULL,
    "to"      text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    room      text NOT NULL,
    signature text NOT NULL,
    args      text NOT NULL,
    PRIMARY KEY ("to", id)
);
