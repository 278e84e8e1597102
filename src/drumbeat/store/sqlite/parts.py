"""The parts that the operations of one SQLite store share: statements, threads, and what writes jobs."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from drumbeat.clock import Clock
from drumbeat.store.sqlfile import EngineStatements, Statements
from drumbeat.store.sqlite import schema
from drumbeat.store.sqlite.advancer import SqliteAdvancer
from drumbeat.store.sqlite.completion import SqliteCompletionWriter
from drumbeat.store.sqlite.file_checks import DiskSpaceGuard
from drumbeat.store.sqlite.insert import SqliteInserter
from drumbeat.store.sqlite.reader import Reader
from drumbeat.store.sqlite.statements import statements
from drumbeat.store.sqlite.token_clock import TokenClock
from drumbeat.store.sqlite.wake import SqliteNotifier
from drumbeat.store.sqlite.writer import WriteContext, Writer

T = TypeVar("T")


class SqliteParts(NamedTuple):
    sql: EngineStatements
    path: Path
    clock: Clock
    disk_space: DiskSpaceGuard
    notifier: SqliteNotifier
    writer: Writer
    worker_reader: Reader
    """What workers and callers of `result` ask: short reads."""
    admin_reader: Reader
    """What the dashboard and the command line ask: may be slow."""
    completion: SqliteCompletionWriter
    advancer: SqliteAdvancer

    @classmethod
    def build(cls, path: Path, *, namespace: str, clock: Clock, min_free_bytes: int) -> Self:
        loop = asyncio.get_running_loop()
        sql = statements(namespace)
        notifier = SqliteNotifier(sql.instances.wake_addresses, loop, clock)
        writer = Writer(path, loop, clock, lambda db: schema.upgrade(db, namespace), notifier, TokenClock(sql.schema))
        completion = SqliteCompletionWriter(sql.jobs, sql.limits, SqliteInserter(sql.jobs, sql.limits))
        return cls(
            sql=sql,
            path=path,
            clock=clock,
            disk_space=DiskSpaceGuard(path, min_free_bytes=min_free_bytes),
            notifier=notifier,
            writer=writer,
            worker_reader=Reader("worker reader", path, loop, clock, lambda: writer.identity),
            admin_reader=Reader("admin reader", path, loop, clock, lambda: writer.identity),
            completion=completion,
            advancer=SqliteAdvancer(sql, completion),
        )

    async def close(self) -> None:
        for thread in (self.admin_reader, self.worker_reader, self.writer):
            await thread.close()
        self.notifier.close()


class SqliteOperations:
    """What the operations of every topic use; `sql`: the statements of theirs."""

    def __init__(self, parts: SqliteParts, sql: Statements) -> None:
        self._parts = parts
        self._sql = sql
        self._writer = parts.writer
        self._worker_reader = parts.worker_reader
        self._admin_reader = parts.admin_reader
        self._clock = parts.clock
        self._disk_space = parts.disk_space
        self._advancer = parts.advancer

    async def _write_and_advance(self, work: Callable[[WriteContext, Any], T], argument: Any) -> T:
        """Do what may end parents, or replay them, and follow their releases: the first edges in the same transaction."""

        def work_and_advance(write: WriteContext, argument: Any) -> tuple[T, bool]:
            value = work(write, argument)
            return value, write.has_releases and self._advancer.advance(write)

        value, is_more = await self._writer.write(work_and_advance, argument)
        while is_more:
            is_more = await self._writer.write(lambda write, _: self._advancer.advance(write), None)
        return value
