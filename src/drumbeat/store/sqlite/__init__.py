"""The SQLite engine: one file, no server. This module puts its parts together and owns their lifetimes.

loop --requests--> writer thread   one transaction for all that wait, in turn with other processes
     --requests--> looking thread  a worker's looks and waits: short reads
     --requests--> listing thread  what people look at: may be slow
"""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Self

from drumbeat.clock import SYSTEM, Clock
from drumbeat.store.protocol import Audit, Inside, Inspect, Instances, Jobs, Locks, Rooms, Schedules, Stats, Wake
from drumbeat.store.sqlfile import prefixed
from drumbeat.store.sqlite import place, schema
from drumbeat.store.sqlite.adding import Adding
from drumbeat.store.sqlite.audit import SqliteAudit
from drumbeat.store.sqlite.ending import Ending
from drumbeat.store.sqlite.facts import SqliteFacts
from drumbeat.store.sqlite.inside import SqliteInside
from drumbeat.store.sqlite.inspect import SqliteInspect
from drumbeat.store.sqlite.instances import SqliteInstances
from drumbeat.store.sqlite.jobs import SqliteJobs
from drumbeat.store.sqlite.locks import SqliteLocks
from drumbeat.store.sqlite.reader import Reader
from drumbeat.store.sqlite.rooms import SqliteRooms
from drumbeat.store.sqlite.schedules import SqliteSchedules
from drumbeat.store.sqlite.search import SqliteSearch
from drumbeat.store.sqlite.statements import (
    AUDIT,
    FACTS,
    INSPECT,
    INSTANCES,
    JOBS,
    LOCKS,
    MALFORMED,
    ROOMS,
    SCHEDULES,
    SCHEMA,
    SEARCH,
    STATS,
)
from drumbeat.store.sqlite.stats import SqliteStats
from drumbeat.store.sqlite.wake import Announcer, SqliteWake
from drumbeat.store.sqlite.writer import Writer


class SqliteStore:
    """One SQLite file, as seen from one event loop."""

    def __init__(self, path: Path, *, url: str, namespace: str, clock: Clock, room: int = place.ROOM) -> None:
        """Nothing is opened yet: use `open`."""
        loop = asyncio.get_running_loop()
        jobs_sql, instances_sql = prefixed(JOBS, namespace), prefixed(INSTANCES, namespace)
        inspect_sql = prefixed(INSPECT, namespace)
        self.url = url
        self._announcer = Announcer(instances_sql.addresses)
        self._writer = Writer(path, loop, clock, lambda db: schema.upgrade(db, namespace), self._announcer)
        self._looks = Reader("looks", path, loop, lambda: self._writer.identity)
        self._lists = Reader("lists", path, loop, lambda: self._writer.identity)
        ending = Ending(jobs_sql, Adding(jobs_sql))
        space = place.Room(path, least=room)
        self.jobs: Jobs = SqliteJobs(
            jobs_sql,
            inspect_sql,
            writer=self._writer,
            reader=self._looks,
            ending=ending,
            clock=clock,
            room=space,
        )
        self.instances: Instances = SqliteInstances(
            instances_sql, jobs_sql, inspect_sql, writer=self._writer, ending=ending
        )
        self.schedules: Schedules = SqliteSchedules(
            prefixed(SCHEDULES, namespace),
            jobs_sql,
            writer=self._writer,
            reader=self._looks,
            clock=clock,
            room=space,
        )
        self.locks: Locks = SqliteLocks(
            prefixed(LOCKS, namespace), writer=self._writer, looks=self._looks, lists=self._lists, clock=clock
        )
        self.rooms: Rooms = SqliteRooms(prefixed(ROOMS, namespace), writer=self._writer, looks=self._looks, room=space)
        self.stats: Stats = SqliteStats(prefixed(STATS, namespace), writer=self._writer, lists=self._lists, room=space)
        search = SqliteSearch(prefixed(SEARCH, namespace), inspect_sql, reader=self._lists, clock=clock)
        facts = SqliteFacts(
            prefixed(FACTS, namespace), prefixed(SCHEMA, namespace), path=path, reader=self._lists, room=room
        )
        self.inspect: Inspect = SqliteInspect(
            inspect_sql,
            jobs_sql,
            prefixed(MALFORMED, namespace),
            search,
            facts=facts,
            reader=self._lists,
            clock=clock,
        )
        self.audit: Audit = SqliteAudit(prefixed(AUDIT, namespace), writer=self._writer, reader=self._lists)
        self.wake: Wake = SqliteWake(path, self._announcer, self._writer)
        self.inside: Inside = SqliteInside(path, namespace=namespace, clock=clock, room=space)

    @classmethod
    async def open(
        cls, path: Path, *, url: str, namespace: str = "drumbeat", clock: Clock = SYSTEM, room: int = place.ROOM
    ) -> Self:
        """Open the file, create it or upgrade its tables.

        Raises:
            ConfigError: it cannot be used, with the reason in one line.
            SchemaOutOfDate: it belongs to a newer Drumbeat.
            StoreUnavailable: somebody kept it locked.
        """
        place.check(path)
        store = cls(path, url=url, namespace=namespace, clock=clock, room=room)
        try:
            await store._writer.open()
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        for desk in (self._lists, self._looks, self._writer):
            await desk.close()
        self._announcer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
