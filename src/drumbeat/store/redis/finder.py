"""Finds unreadable records for the doctor, examining a bounded number of each kind."""

from collections.abc import Iterable
from typing import Any

from drumbeat.core.job_query import JobFilter
from drumbeat.ids import unpack_id
from drumbeat.store.malformed import Fault, explain_fault, quote
from drumbeat.store.redis import instance_rows, rows
from drumbeat.store.redis.audit import decode_act
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.schedules import decode_schedule
from drumbeat.store.redis.search import RedisSearch

_PAGE_SIZE = 250
_MAX_BUCKETS = 1_000


class MalformedFinder:
    def __init__(self, pool: RedisPool, search: RedisSearch) -> None:
        self._pool = pool
        self._search = search

    async def find(self, limit: int) -> list[Fault]:
        found = [
            *await self._find_jobs(JobFilter(limit=limit)),
            *await self._find_jobs(JobFilter(dead_letters=True, limit=limit)),
        ]
        flat = await self._pool.run("list_instances", 1)
        for id, row in list(zip(flat[::2], flat[1::2], strict=True))[:limit]:
            found += _to_faults("instance", id, instance_rows.decode_instance(id, row)[1])
        for name, fields in await self._pool.run("list_schedules", "", limit, 1):
            found += _to_faults("schedule", name, decode_schedule(name, fields)[1])
        for id, row in (await self._pool.run("list_acts", "", limit, limit, "", "", ""))[1:]:
            found += _to_faults("act", id, decode_act(id, row)[1])
        found += await self._find_buckets()
        return list(dict.fromkeys(found))

    async def _find_jobs(self, filter: JobFilter) -> list[Fault]:
        found: list[Fault] = []
        ids = await self._search.find_ids(filter)
        for first in range(0, len(ids), _PAGE_SIZE):
            page = ids[first : first + _PAGE_SIZE]
            _, *answers = await self._pool.run("get_jobs", *page)
            for id, answer in zip(page, answers, strict=True):
                if answer is not None:
                    kind = {b"dead": "dead letter", b"pending": "job", b"running": "job"}.get(answer[1], "ended job")
                    found += _to_faults(kind, unpack_id(id).encode(), rows.find_faults(unpack_id(id), answer))
        return found

    async def _find_buckets(self) -> list[Fault]:
        """Return keys of many jobs that have the wrong type."""
        keys = self._pool.keys
        names: list[bytes] = await self._pool.command("ZREVRANGE", keys.buckets, 0, _MAX_BUCKETS - 1)
        job_keys = [keys.jobs(name.decode("utf-8", "replace")) for name in names]
        types = await self._pool.pipeline([("TYPE", place) for place in job_keys]) if job_keys else []
        return [
            Fault("key", place, "type", explain_fault("type", type, ValueError("a hash is expected")))
            for place, type in zip(job_keys, types, strict=True)
            if type not in (b"hash", b"none", "hash", "none")
        ]


def _to_faults(kind: str, id: bytes, faults: Iterable[tuple[str, str]]) -> list[Fault]:
    name: Any = id.decode("utf-8", "surrogateescape")
    return [Fault(kind, name if name.isprintable() else quote(id), field, reason) for field, reason in faults]
