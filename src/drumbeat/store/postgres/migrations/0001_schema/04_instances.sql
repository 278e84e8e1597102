-- Instances, the leader, and messages to rooms.

CREATE TABLE drumbeat.instance (
    id           text COLLATE "C" PRIMARY KEY,
    state        text COLLATE "C" NOT NULL DEFAULT 'alive',
    app          text NOT NULL,
    version      text NOT NULL,
    host         text NOT NULL,
    pid          integer NOT NULL,
    roles        text NOT NULL,
    queues       text NOT NULL,
    tasks        text NOT NULL,
    concurrency  integer NOT NULL,
    running      integer NOT NULL DEFAULT 0,
    refused      bigint NOT NULL DEFAULT 0,
    beat         bigint NOT NULL DEFAULT 0,
    started_at   bigint NOT NULL,
    beat_at      bigint NOT NULL,
    ended_at     bigint,
    ended_reason text,
    wake         text,
    rooms        text NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

-- The leader: one row. `until`: end of the lease, `since`: begin of the term.
CREATE TABLE drumbeat.leader (
    one      integer PRIMARY KEY CHECK (one = 1),
    term     bigint NOT NULL,
    until    bigint NOT NULL,
    since    bigint NOT NULL DEFAULT 0,
    instance text COLLATE "C"
) WITH (fillfactor = 10);
INSERT INTO drumbeat.leader (one, term, until)
VALUES (1, 0, 0);

-- Messages to each instance. Unlogged: they are short-lived, and a crash of the server may lose them.
CREATE UNLOGGED TABLE drumbeat.room_message (
    sent_at   bigint NOT NULL,
    "to"      text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    room      text NOT NULL,
    signature text NOT NULL,
    args      text NOT NULL,
    PRIMARY KEY ("to", id)
);
