"""The SQLite engine: one file, no server. This module builds its parts and owns their lifetimes.

loop --requests--> writer thread         one transaction for all waiting requests, serialised with other processes
                   --> fsync thread      acknowledges them when they are on disk
     --requests--> worker reader thread  what workers and callers of `result` ask: short reads
     --requests--> admin reader thread   what the dashboard and the command line ask: may be slow
"""

import asyncio
from pathlib import Path
from typing import Self

from drumbeat.clock import SYSTEM, Clock
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Forward
from drumbeat.store.sqlfile import with_namespace
from drumbeat.store.sqlite import file_checks, schema
from drumbeat.store.sqlite.audit import SqliteAudit
from drumbeat.store.sqlite.completion import SqliteCompletionWriter
from drumbeat.store.sqlite.health import SqliteHealth
from drumbeat.store.sqlite.insert import SqliteInserter
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
    HEALTH,
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
from drumbeat.store.sqlite.transactional import SqliteTransactional
from drumbeat.store.sqlite.wake import SqliteNotifier, SqliteWake
from drumbeat.store.sqlite.writer import Writer


class SqliteStore(Store):
    """One SQLite file, as seen from one event loop."""

    def __init__(
        self, path: Path, *, url: str, namespace: str, clock: Clock, min_free_bytes: int = file_checks.MIN_FREE_BYTES
    ) -> None:
        """Nothing is opened yet: use `open`."""
        loop = asyncio.get_running_loop()
        jobs_sql, instances_sql = with_namespace(JOBS, namespace), with_namespace(INSTANCES, namespace)
        inspect_sql = with_namespace(INSPECT, namespace)
        self.url = url
        self._notifier = SqliteNotifier(instances_sql.wake_addresses, loop, clock)
        self._writer = Writer(path, loop, clock, lambda db: schema.upgrade(db, namespace), self._notifier)
        self._worker_reader = Reader("worker reader", path, loop, clock, lambda: self._writer.identity)
        self._admin_reader = Reader("admin reader", path, loop, clock, lambda: self._writer.identity)
        completion = SqliteCompletionWriter(jobs_sql, SqliteInserter(jobs_sql))
        disk_space = file_checks.DiskSpaceGuard(path, min_free_bytes=min_free_bytes)
        self.jobs = SqliteJobs(
            jobs_sql,
            inspect_sql,
            writer=self._writer,
            reader=self._worker_reader,
            completion=completion,
            clock=clock,
            disk_space=disk_space,
        )
        self.instances = SqliteInstances(
            instances_sql, jobs_sql, inspect_sql, writer=self._writer, completion=completion
        )
        self.schedules = SqliteSchedules(
            with_namespace(SCHEDULES, namespace),
            jobs_sql,
            writer=self._writer,
            reader=self._worker_reader,
            clock=clock,
            disk_space=disk_space,
        )
        self.locks = SqliteLocks(
            with_namespace(LOCKS, namespace),
            writer=self._writer,
            worker_reader=self._worker_reader,
            admin_reader=self._admin_reader,
            clock=clock,
        )
        self.rooms = SqliteRooms(
            with_namespace(ROOMS, namespace),
            writer=self._writer,
            worker_reader=self._worker_reader,
            disk_space=disk_space,
        )
        self.stats = SqliteStats(
            with_namespace(STATS, namespace),
            writer=self._writer,
            admin_reader=self._admin_reader,
            disk_space=disk_space,
        )
        search = SqliteSearch(with_namespace(SEARCH, namespace), inspect_sql, reader=self._admin_reader, clock=clock)
        health = SqliteHealth(
            with_namespace(HEALTH, namespace),
            with_namespace(SCHEMA, namespace),
            path=path,
            reader=self._admin_reader,
            min_free_bytes=min_free_bytes,
        )
        self.inspect = SqliteInspect(
            inspect_sql,
            with_namespace(MALFORMED, namespace),
            search,
            health=health,
            reader=self._admin_reader,
            clock=clock,
        )
        self.audit = SqliteAudit(with_namespace(AUDIT, namespace), writer=self._writer, reader=self._admin_reader)
        self.wake = SqliteWake(
            path, self._notifier, clock, notify=self._writer.notify, identity=lambda: self._writer.identity
        )
        self.transactional = SqliteTransactional(path, namespace=namespace, clock=clock, disk_space=disk_space)

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        url: str,
        namespace: str = "drumbeat",
        clock: Clock = SYSTEM,
        min_free_bytes: int = file_checks.MIN_FREE_BYTES,
        forward: Forward | None = None,
    ) -> Self:
        """Open the file; create it or upgrade its tables if needed.

        Raises:
            ConfigError: the file cannot be used, with the reason in one line.
            SchemaOutOfDate: it belongs to a newer Drumbeat.
            StoreUnavailable: another process kept it locked.
        """
        file_checks.check_path(path)
        store = cls(path, url=url, namespace=namespace, clock=clock, min_free_bytes=min_free_bytes)
        if forward is not None:
            store._notifier.listeners[""] = forward
        try:
            await store._writer.open()
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        for thread in (self._admin_reader, self._worker_reader, self._writer):
            await thread.close()
        self._notifier.close()
