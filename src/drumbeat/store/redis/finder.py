"""Which records of a database cannot be read, for the doctor. A bounded look at each kind."""

from collections.abc import Iterable
from typing import Any

from drumbeat.ids import unpacked
from drumbeat.model.job import JobFilter
from drumbeat.store.malformed import Fault, explain, quoted
from drumbeat.store.redis import instance_rows, rows
from drumbeat.store.redis.audit import act_of
from drumbeat.store.redis.connections import Link
from drumbeat.store.redis.schedules import schedule
from drumbeat.store.redis.search import RedisSearch

_PAGE = 250
_BUCKETS = 1_000


class Finder:
    def __init__(self, link: Link, search: RedisSearch) -> None:
        self._link = link
        self._search = search

    async def find(self, limit: int) -> list[Fault]:
        found = [*await self._jobs(JobFilter(limit=limit)), *await self._jobs(JobFilter(letters=True, limit=limit))]
        flat = await self._link.run("inspect_instances", 1)
        for id, row in list(zip(flat[::2], flat[1::2], strict=True))[:limit]:
            found += _faults("instance", id, instance_rows.instance(id, row)[1])
        for name, fields in await self._link.run("schedules_page", "", limit, 1):
            found += _faults("schedule", name, schedule(name, fields)[1])
        for id, row in (await self._link.run("audit_page", "", limit, limit, "", "", ""))[1:]:
            found += _faults("act", id, act_of(id, row)[1])
        found += await self._buckets()
        return list(dict.fromkeys(found))

    async def _jobs(self, filter: JobFilter) -> list[Fault]:
        found: list[Fault] = []
        ids = await self._search.ids(filter)
        for first in range(0, len(ids), _PAGE):
            page = ids[first : first + _PAGE]
            _, *answers = await self._link.run("inspect_records", *page)
            for id, answer in zip(page, answers, strict=True):
                if answer is not None:
                    kind = {b"dead": "dead letter", b"pending": "job", b"running": "job"}.get(answer[1], "ended job")
                    found += _faults(kind, unpacked(id).encode(), rows.faults_of(unpacked(id), answer))
        return found

    async def _buckets(self) -> list[Fault]:
        """Keys that hold many jobs, and are not what they should be."""
        keys = self._link.keys
        names: list[bytes] = await self._link.command("ZREVRANGE", keys.buckets, 0, _BUCKETS - 1)
        places = [keys.jobs(name.decode("utf-8", "replace")) for name in names]
        types = await self._link.pipeline([("TYPE", place) for place in places]) if places else []
        return [
            Fault("key", place, "type", explain("type", type, ValueError("a hash is expected")))
            for place, type in zip(places, types, strict=True)
            if type not in (b"hash", b"none", "hash", "none")
        ]


def _faults(kind: str, id: bytes, faults: Iterable[tuple[str, str]]) -> list[Fault]:
    name: Any = id.decode("utf-8", "surrogateescape")
    return [Fault(kind, name if name.isprintable() else quoted(id), field, reason) for field, reason in faults]
