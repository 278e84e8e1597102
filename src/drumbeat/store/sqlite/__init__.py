"""The SQLite engine: one file, no server. This module builds its parts and owns their lifetimes.

loop --requests--> writer thread         one transaction for all waiting requests, serialised with other processes
                   --> fsync thread      acknowledges them when they are on disk
     --requests--> worker reader thread  what workers and callers of `result` ask: short reads
     --requests--> admin reader thread   what the dashboard and the command line ask: may be slow
"""

from pathlib import Path
from typing import Self

from drumbeat.clock import SYSTEM, Clock
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Forward
from drumbeat.store.sqlite import file_checks
from drumbeat.store.sqlite.audit import SqliteAudit
from drumbeat.store.sqlite.dependencies import SqliteDependencies
from drumbeat.store.sqlite.inspect import SqliteInspect
from drumbeat.store.sqlite.instances import SqliteInstances
from drumbeat.store.sqlite.jobs import SqliteJobs
from drumbeat.store.sqlite.limits import SqliteLimits
from drumbeat.store.sqlite.locks import SqliteLocks
from drumbeat.store.sqlite.parts import SqliteParts
from drumbeat.store.sqlite.rooms import SqliteRooms
from drumbeat.store.sqlite.schedules import SqliteSchedules
from drumbeat.store.sqlite.stats import SqliteStats
from drumbeat.store.sqlite.steps import SqliteSteps
from drumbeat.store.sqlite.transactional import SqliteTransactional
from drumbeat.store.sqlite.wake import SqliteWake
from drumbeat.store.sqlite.workflows import SqliteWorkflows


class SqliteStore(Store):
    """One SQLite file, as seen from one event loop."""

    def __init__(
        self, path: Path, *, url: str, namespace: str, clock: Clock, min_free_bytes: int = file_checks.MIN_FREE_BYTES
    ) -> None:
        """Nothing is opened yet: use `open`."""
        parts = SqliteParts.build(path, namespace=namespace, clock=clock, min_free_bytes=min_free_bytes)
        self.url = url
        self._parts = parts
        self.jobs = SqliteJobs(parts, parts.sql.jobs)
        self.steps = SqliteSteps(parts, parts.sql.steps)
        self.dependencies = SqliteDependencies(parts, parts.sql.dependencies)
        self.workflows = SqliteWorkflows(parts, parts.sql.workflows)
        self.instances = SqliteInstances(parts, parts.sql.instances)
        self.schedules = SqliteSchedules(parts, parts.sql.schedules)
        self.limits = SqliteLimits(parts, parts.sql.limits)
        self.locks = SqliteLocks(parts, parts.sql.locks)
        self.rooms = SqliteRooms(parts, parts.sql.rooms)
        self.stats = SqliteStats(parts, parts.sql.stats)
        self.inspect = SqliteInspect(parts, parts.sql.inspect)
        self.audit = SqliteAudit(parts, parts.sql.audit)
        self.wake = SqliteWake(
            path, parts.notifier, clock, notify=parts.writer.notify, identity=lambda: parts.writer.identity
        )
        self.transactional = SqliteTransactional(path, namespace=namespace, clock=clock, disk_space=parts.disk_space)

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
            store._parts.notifier.listeners[""] = forward
        return await store._open_by(store._parts.writer.open())

    async def close(self) -> None:
        await self._parts.close()
