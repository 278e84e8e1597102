"""Damage to stored records: for each engine, the changes by hand that the engine does not prevent.

A test creates a record for each damage of a kind, and applies it. It need not know the engine.
"""

import random
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, NamedTuple, Protocol
from urllib.parse import urlsplit

import asyncpg
import msgspec
import redis.asyncio

from drumbeat.core.claim import ClaimedJob
from drumbeat.core.job import NewJob
from drumbeat.core.job_fields import GIVEN_FIELDS
from drumbeat.ids import pack_id
from drumbeat.store.redis.keys import bucket
from drumbeat.store.redis.record_format import JobHeader

BLOB = b"\x00\xff\xfe blob"
PREFIX = "{drumbeat}:"


class Damage(NamedTuple):
    name: str
    do: Callable[[str], Awaitable[None]]
    """Of the record with this id or name."""
    field: str | None = None
    """What a dead letter must name; None: the job may also run, or go, as long as nobody else is harmed."""


class Vandal(Protocol):
    def damages(self, kind: str) -> list[Damage]:
        """kind: pending, running, letter, history, schedule, instance, lock, ticket, act, rollup or message."""
        ...

    async def flip(self, id: str, random: random.Random) -> None:
        """Change something at random in the record of a pending job."""
        ...


def each(columns: tuple[str, ...], values: list[str]) -> dict[str, list[str]]:
    return dict.fromkeys(columns, values)


_CLAIMED = tuple(
    name for name in ClaimedJob.__struct_fields__ if name not in ("id", "token", "queue", "priority", "run_at")
)
_GIVEN = {field.name: field for field in msgspec.structs.fields(NewJob) if field.name in GIVEN_FIELDS}
_GIVEN_TEXTS = tuple(
    name for name, field in _GIVEN.items() if field.type in (str, str | None) and name not in ("id", "queue")
)
_GIVEN_NUMBERS = tuple(name for name, field in _GIVEN.items() if field.type in (int, int | None) and name != "priority")
_NEVER_NULL = tuple(name for name in (*_GIVEN_TEXTS, *_GIVEN_NUMBERS) if _GIVEN[name].default is not None)


class Sql:
    """What both SQL engines have in common: a damage is an UPDATE of one column."""

    tables: ClassVar[dict[str, tuple[str, str]]]
    columns: ClassVar[dict[str, dict[str, list[str]]]]
    replacing = ""
    dies: ClassVar[tuple[str, ...]] = _CLAIMED

    async def run(self, statement: str, *values: Any) -> None:
        raise NotImplementedError

    def damages(self, kind: str) -> list[Damage]:
        table, id = self.tables[kind]
        dies = self.dies if kind == "pending" else ()
        return [
            Damage(f"{column} = {value}", self._update(table, id, column, value), column if column in dies else None)
            for column, values in self.columns[kind].items()
            for value in values
        ]

    def _update(self, table: str, id: str, column: str, value: str) -> Callable[[str], Awaitable[None]]:
        async def do(name: str) -> None:
            await self.run(f'UPDATE {self.replacing}{table} SET "{column}" = {value} WHERE {id} = ', name)

        return do


_TEXT = ["X'00fffe'", "CAST(X'ff41' AS TEXT)"]
_NUMBER = ["'soon'", "X'00ff'", "1.5"]


class SqliteVandal(Sql):
    replacing = "OR REPLACE "
    dies: ClassVar[tuple[str, ...]] = (*_CLAIMED, "run_at")
    tables: ClassVar = {
        "pending": ("drumbeat_job", "id"),
        "running": ("drumbeat_job", "id"),
        "letter": ("drumbeat_dead", "id"),
        "history": ("drumbeat_history", "id"),
        "schedule": ("drumbeat_schedule", "name"),
        "instance": ("drumbeat_instance", "id"),
        "lock": ("drumbeat_lock", "name"),
        "ticket": ("drumbeat_ticket", "lock"),
        "act": ("drumbeat_audit", "id"),
        "rollup": ("drumbeat_rollup", "task"),
        "message": ("drumbeat_room_message", "room"),
    }
    _job: ClassVar = {
        **each(_GIVEN_TEXTS, _TEXT),
        **each(("error", "progress"), [*_TEXT, "'{broken'"]),
        **each(("created_at", "due_at", "failures", "crashes", "replays", "cancel_requested"), _NUMBER),
        **each(_GIVEN_NUMBERS, _NUMBER),
        "token": [*_NUMBER, "9e999", "9223372036854775807"],
        "unique": ["'odd'", "X'00'"],
    }
    _ended: ClassVar = {**_job, "state": ["'odd'", "X'00'"], "finished_at": _NUMBER, "outcome": ["'odd'", "X'00'"]}
    columns: ClassVar = {
        "pending": {**_job, "blocked_since": _NUMBER, "run_at": _NUMBER, "state": ["'odd'"]},
        "running": {**_job, "claimed_at": _NUMBER, "run_at": _NUMBER, "queue": _TEXT},
        "letter": _ended,
        "history": {**_ended, "result": _TEXT, "created_at": [*_NUMBER, "NULL"], "args": [*_TEXT, "NULL"]},
        "schedule": {
            **each(("task", "queue", "args", "signature", "tz", "changed_by", "reason", "app"), _TEXT),
            **each(("kind", "overlap", "catch_up", "origin", "state"), ["'odd'", "X'00'"]),
            **each(("priority", "retries", "timeout", "crash_limit", "jitter", "next_at", "cursor"), _NUMBER),
            **each(("revision", "created_at", "catch_up_limit", "every"), _NUMBER),
            "rule": ["'garbage'", *_TEXT],
        },
        "instance": {
            **each(("app", "version", "host", "ended_reason", "wake"), _TEXT),
            **each(("roles", "queues", "tasks", "rooms"), ["'garbage'", "'[1]'", *_TEXT]),
            **each(("pid", "concurrency", "running", "refused", "beat", "started_at"), _NUMBER),
            "beat_at": _NUMBER,
        },
        "lock": {
            **each(("limit", "per", "last_number", "used_at", "released_at"), _NUMBER),
            **each(("boot", "released_tickets", "released_by", "released_reason"), _TEXT),
        },
        "ticket": {
            **each(("number", "lease", "expires_at", "entered_at", "granted_at", "lane"), _NUMBER),
            **each(("owner", "what", "wake"), _TEXT),
        },
        "act": {
            **each(("who", "role", "via", "verb", "target", "reason", "outcome", "answer"), _TEXT),
            **each(("at", "done_at", "touched"), _NUMBER),
        },
        "rollup": {"counts": ["'garbage'", "'[1]'", "'[\"a\"]'", *_TEXT], "at": ["1.5"], "queue": _TEXT},
        "message": {**each(("args", "signature"), _TEXT), "sent_at": _NUMBER},
    }

    def __init__(self, url: str) -> None:
        self._db = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=10)
        # What a table does not allow, an older schema or another program may have.
        self._db.execute("PRAGMA ignore_check_constraints = ON")

    async def run(self, statement: str, *values: Any) -> None:
        self._db.execute(f"{statement} ?", values)

    async def flip(self, id: str, random: random.Random) -> None:
        column = random.choice(sorted({*self._job, "id", "queue", "priority", "run_at", "blocked_on", "instance"}))
        value = random.choice([f"X'{random.randbytes(6).hex()}'", "'x'", "-1", "1e300", "CAST(X'c3' AS TEXT)"])
        await self.run(f'UPDATE OR IGNORE drumbeat_job SET "{column}" = {value} WHERE id =', id)

    async def close(self) -> None:
        self._db.close()


_NUMBERS = ["NULL"]
_OF_JSON = ["'garbage'", "'[1]'", "''"]


class PostgresVandal(Sql):
    tables: ClassVar = {
        "pending": ("drumbeat.job", "id"),
        "running": ("drumbeat.job", "id"),
        "letter": ("drumbeat.dead", "id"),
        "history": ("drumbeat.history", "id"),
        "schedule": ("drumbeat.schedule", "name"),
        "instance": ("drumbeat.instance", "id"),
        "lock": ("drumbeat.lock", "name"),
        "ticket": ("drumbeat.ticket", "lock"),
        "act": ("drumbeat.audit", "id"),
        "rollup": ("drumbeat.rollup", "task"),
        "message": ("drumbeat.room_message", "room"),
    }
    _job: ClassVar = {
        **each((*_NEVER_NULL, "unique", "created_at", "due_at", "failures", "crashes", "replays"), ["NULL"]),
        "error": _OF_JSON,
        "cancel_requested": ["NULL"],
    }
    _ended: ClassVar = {
        **_job,
        "state": ["'odd'"],
        "outcome": ["'odd'"],
        "unique": ["'odd'"],
        "created_at": ["9223372036854775807", "-9223372036854775808"],
        "priority": ["42"],
    }
    columns: ClassVar = {
        "pending": {
            **_job,
            "token": ["9223372036854775807"],
            "state": ["'odd'"],
            "run_at": ["-9223372036854775808"],
        },
        "running": {**_job, "claimed_at": ["NULL"], "run_at": ["NULL"]},
        "letter": _ended,
        "history": _ended,
        "schedule": {
            **each(("kind", "overlap", "catch_up", "origin", "state"), ["'odd'"]),
            **each(("task", "queue", "args", "signature", "priority", "jitter"), ["NULL"]),
            "rule": ["'garbage'"],
            "next_at": ["-9223372036854775808"],
            "cursor": ["9223372036854775807"],
        },
        "instance": {
            **each(("roles", "queues", "tasks", "rooms"), _OF_JSON),
            **each(("app", "pid", "beat", "concurrency", "started_at", "beat_at"), ["NULL"]),
        },
        "lock": {"limit": ["0"], "released_at": ["9223372036854775807"]},
        "ticket": {"what": ["''"], "entered_at": ["-9223372036854775808"]},
        "act": {"at": ["9223372036854775807"], **each(("who", "verb", "target"), ["NULL"])},
        "rollup": {"counts": [*_OF_JSON, "'[\"a\"]'"]},
        "message": {"args": ["NULL", "'garbage'"], "signature": ["NULL"]},
    }

    def __init__(self, db: asyncpg.Connection) -> None:
        self._db = db

    async def prepare(self) -> None:
        """As if somebody had dropped the constraints."""
        for table in ("job", "history", "dead", "schedule", "instance", "audit", "room_message"):
            rows = await self._db.fetch(
                "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND attnotnull"
                " AND NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = attrelid AND contype = 'p'"
                " AND attnum = ANY (conkey)) AND attname <> 'finished_at'",
                f"drumbeat.{table}",
            )
            for row in rows:
                await self._db.execute(f'ALTER TABLE drumbeat.{table} ALTER COLUMN "{row[0]}" DROP NOT NULL')

    async def run(self, statement: str, *values: Any) -> None:
        await self._db.execute(statement.replace(" id = ", " id::text = ") + " $1", *values)

    async def flip(self, id: str, random: random.Random) -> None:
        column = random.choice(sorted({*self._job, "token", "state", "queue", "blocked_on", "progress", "trace"}))
        text = "".join(chr(random.randrange(1, 0xD800)) for _ in range(6)).replace("'", "")
        values = {"token": "7", "cancel_requested": "true", "failures": "2147483647", "crashes": "2147483647"}
        value = values.get(column, random.choice(["NULL", f"'{text}'"]))
        if column in ("created_at", "due_at", "replays", "crash_limit"):
            value = random.choice(["NULL", "-1", "2147483647"])
        await self.run(f'UPDATE drumbeat.job SET "{column}" = {value} WHERE id = ', id)

    async def close(self) -> None:
        await self._db.close()


class RedisVandal:
    def __init__(self, client: Any) -> None:
        self._client = client

    def damages(self, kind: str) -> list[Damage]:
        found: list[Damage] = []
        for name, field, do in getattr(self, f"_{kind}")():
            found.append(Damage(name, do, field))
        return found

    async def flip(self, id: str, random: random.Random) -> None:
        body = bytearray(await self._body(id))
        for _ in range(random.randrange(1, 4)):
            body[random.randrange(len(body))] = random.randrange(256)
        if random.random() < 0.2:
            del body[random.randrange(len(body)) :]
        await self._put_body(id, bytes(body))

    async def close(self) -> None:
        await self._client.aclose()

    async def _body(self, id: str) -> bytes:
        raw = pack_id(id)  # type: ignore[arg-type]
        body: bytes = await self._client.hget(f"{PREFIX}job:{bucket(raw)}", raw)
        return body

    async def _put_body(self, id: str, body: bytes) -> None:
        raw = pack_id(id)  # type: ignore[arg-type]
        await self._client.hset(f"{PREFIX}job:{bucket(raw)}", raw, body)

    def _bodies(self) -> Iterator[tuple[str, str | None, Callable[[str], Awaitable[None]]]]:
        def body(change: Callable[[bytes], bytes]) -> Callable[[str], Awaitable[None]]:
            async def do(id: str) -> None:
                await self._put_body(id, change(await self._body(id)))

            return do

        def head(at: int, value: Any) -> Callable[[bytes], bytes]:
            def change(body: bytes) -> bytes:
                first, _, args = body[1:].partition(b"\n")
                fields = msgspec.json.decode(first)
                fields[at] = value
                return body[:1] + msgspec.json.encode(fields) + b"\n" + args

            return change

        yield "body: bytes", "body", body(lambda _: b"\xff\xfe\x00 garbage")
        yield "body: empty", "body", body(lambda _: b"")
        yield "body: no newline", "body", body(lambda text: text.replace(b"\n", b""))
        yield "body: cut", "body", body(lambda text: text[:20])
        yield "body: a number", "", body(lambda _: b"-7\n{}")
        yield "args: no UTF-8", "args", body(lambda text: text + b"\xff")
        yield "flag", None, body(lambda text: b"z" + text[1:])
        # Fields with a default (schedule, trace) are in the header only where they are set.
        for at, field in enumerate(each for each in msgspec.structs.fields(JobHeader) if each.required):
            is_number = field.type in (int, int | None)
            yield f"{field.name}: an object", field.name, body(head(at, {"a": 1}))
            yield f"{field.name}: five", field.name if is_number else None, body(head(at, "five"))

    def _hash(self, key: str, field: str, value: bytes) -> Callable[[str], Awaitable[None]]:
        async def do(name: str) -> None:
            if key.endswith(":"):
                await self._client.hset(f"{PREFIX}{key}{name}", field, value)
            else:
                await self._client.hset(PREFIX + key, pack_id(name), value)  # type: ignore[arg-type]

        return do

    def _retype(self, key: str) -> Callable[[str], Awaitable[None]]:
        async def do(name: str) -> None:
            await self._client.delete(f"{PREFIX}{key}{name}")
            await self._client.set(f"{PREFIX}{key}{name}", "a string")

        return do

    def _pending(self) -> Iterator[tuple[str, str | None, Callable[[str], Awaitable[None]]]]:
        yield from self._bodies()
        yield "live state: garbage", "live_state", self._hash("live_state", "", b"garbage")
        yield "live state: soon", "live_state", self._hash("live_state", "", b"soon,1,2,3,4,\n\n")
        yield "live state: bytes", "live_state", self._hash("live_state", "", b"\xff\x00")
        yield "live state: error is no JSON", None, self._hash("live_state", "", b"5,0,0,0,0,\n{broken\n")

        async def lose(id: str) -> None:
            raw = pack_id(id)  # type: ignore[arg-type]
            await self._client.hdel(f"{PREFIX}job:{bucket(raw)}", raw)

        async def stray(id: str) -> None:
            await self._client.zadd(f"{PREFIX}due:default:5", {b"no id": 1, b"\xff" * 40: 2})

        async def never(id: str) -> None:
            await self._client.zadd(f"{PREFIX}due:default:5", {b"\x01" * 16: "+inf"})

        async def attempts(id: str) -> None:
            await self._client.set(f"{PREFIX}attempts:".encode() + pack_id(id), "a string")  # type: ignore[arg-type]

        yield "no body", None, lose
        yield "line: strays", None, stray
        yield "line: never", None, never
        yield "attempts: a string", None, attempts

        async def line(id: str) -> None:
            await self._client.set(f"{PREFIX}due:default:9", "a string")

        yield "line: a string", None, line

    def _running(self) -> Iterator[tuple[str, str | None, Callable[[str], Awaitable[None]]]]:
        for name, _, do in self._bodies():
            yield name, None, do
        yield "live state: garbage", None, self._hash("live_state", "", b"garbage")
        yield "progress: garbage", None, self._hash("progress", "", b"\xff{")

    def _letter(self) -> Iterator[tuple[str, str | None, Callable[[str], Awaitable[None]]]]:
        for name, field, do in self._bodies():
            if field is not None:
                yield name, None, do

        def done(value: bytes) -> Callable[[str], Awaitable[None]]:
            async def do(id: str) -> None:
                raw = pack_id(id)  # type: ignore[arg-type]
                await self._client.hset(f"{PREFIX}ended:{bucket(raw)}", raw, value)

            return do

        for value in (b"garbage", b"\xff", b"[1]", b'["soon","odd",7,8,9]', b'[1,"dead","odd",null,null,"x"]\nsoon\n'):
            yield f"end: {value!r}", None, done(value)

    _history = _letter

    def _schedule(self) -> Iterator[tuple[str, str | None, Callable[[str], Awaitable[None]]]]:
        for value in (b"garbage", b"\xff", b"{}", b'{"name":1,"rule":[]}'):
            yield f"definition: {value!r}", None, self._hash("schedule:", "definition", value)
        for field in (
            "state",
            "revision",
            "cursor",
            "next_at",
            "current",
            "created_at",
            "head",
            "rest",
            "every",
            "end",
        ):
            yield f"{field}: soon", None, self._hash("schedule:", field, b"so\xffon")
        yield "a string", None, self._retype("schedule:")

        async def gone(name: str) -> None:
            await self._client.delete(f"{PREFIX}schedule:{name}")

        async def never(name: str) -> None:
            await self._client.zadd(f"{PREFIX}next_fires", {name: "-inf"})

        yield "gone", None, gone
        yield "moment: -inf", None, never
        yield "fires: a string", None, self._retype("fires:")

    def _instance(self) -> Iterator[tuple[str, str | None, Callable[[str], Awaitable[None]]]]:
        for value in (b"garbage", b"\xff", b"{}", b"[]"):
            yield f"record: {value!r}", None, self._hash("inst:", "record", value)
        for field in ("state", "beat", "beat_at", "running", "refused", "started_at"):
            yield f"{field}: soon", None, self._hash("inst:", field, b"so\xffon")
        yield "a string", None, self._retype("inst:")
        yield "held: a string", None, self._retype("held:")

    def _lock(self) -> Iterator[tuple[str, str | None, Callable[[str], Awaitable[None]]]]:
        for field in ("limit", "per", "last", "used_at", "lanes", "released_at"):
            yield f"{field}: soon", None, self._hash("lock:", field, b"so\xffon")
        for key in ("lock:", "waiters:", "holders:", "leases:", "lanes:", "grants:"):
            yield f"{key} a string", None, self._retype(key)

    def _ticket(self) -> Iterator[tuple[str, str | None, Callable[[str], Awaitable[None]]]]:
        def ticket(field: str) -> Callable[[str], Awaitable[None]]:
            async def do(lock: str) -> None:
                for id in await self._client.zrange(f"{PREFIX}leases:{lock}", 0, -1):
                    await self._client.hset(f"{PREFIX}ticket:".encode() + id, field, b"so\xffon")

            return do

        for field in ("number", "lease", "lane", "granted_at", "entered_at", "owner", "what"):
            yield f"{field}: soon", None, ticket(field)

    def _act(self) -> Iterator[tuple[str, str | None, Callable[[str], Awaitable[None]]]]:
        for value in (b"garbage", b"\xff", b"{}"):
            yield f"act: {value!r}", None, self._hash("act:", "act", value)
        yield "at: soon", None, self._hash("act:", "at", b"soon")
        yield "a string", None, self._retype("act:")

    def _rollup(self) -> Iterator[tuple[str, str | None, Callable[[str], Awaitable[None]]]]:
        def stretch(value: bytes) -> Callable[[str], Awaitable[None]]:
            async def do(task: str) -> None:
                for key in await self._client.keys(f"{PREFIX}interval:*"):
                    for field in await self._client.hkeys(key):
                        if task.encode() in field.split(b"\0"):
                            await self._client.hset(key, field, value)

            return do

        for value in (b"garbage", b"1,2", b"\xff"):
            yield f"counts: {value!r}", None, stretch(value)

    def _message(self) -> Iterator[tuple[str, str | None, Callable[[str], Awaitable[None]]]]:
        def message(value: bytes) -> Callable[[str], Awaitable[None]]:
            async def do(room: str) -> None:
                for key in await self._client.keys(f"{PREFIX}inbox:*"):
                    for at, text in enumerate(await self._client.lrange(key, 0, -1)):
                        if room.encode() in text.split(b"\n"):
                            await self._client.lset(key, at, value)

            return do

        yield "garbage", None, message(b"garbage")
        yield "bytes", None, message(b"\xff\n\xff\n\xff\n\xff\n\xff")


@asynccontextmanager
async def vandal_of(url: str) -> Any:
    """The vandal of a store's engine."""
    vandal: Any
    match urlsplit(url).scheme:
        case "sqlite":
            vandal = SqliteVandal(url)
        case "postgresql":
            vandal = PostgresVandal(await asyncpg.connect(url))
            await vandal.prepare()
        case _:
            vandal = RedisVandal(redis.asyncio.from_url(url))
    try:
        yield vandal
    finally:
        await vandal.close()
