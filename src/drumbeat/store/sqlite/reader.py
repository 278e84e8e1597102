"""A reader thread: its own connection, which cannot write and delays no writer."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from drumbeat.clock import Clock
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.database_thread import DatabaseThread, GroupHandler, RequestGroup, RequestResult, TakeQueued
from drumbeat.store.sqlite.file_checks import FileIdentity

R = TypeVar("R")


class Reader:
    """The loop's side: answers queries one by one, each from its own snapshot."""

    def __init__(
        self,
        name: str,
        path: Path,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        identity: Callable[[], FileIdentity | None],
    ) -> None:
        self._thread = DatabaseThread(name, path, loop, clock, _ReadHandler(path, identity))
        self.close = self._thread.close

    async def read(self, query: Callable[[SqliteConnection], R]) -> R:
        return await self._thread.submit(_run_in_snapshot, query)

    async def read_value(self, sql: str, parameters: Mapping[str, object]) -> Any:
        """The single value of one statement, which is a snapshot by itself."""
        return await self._thread.submit(lambda db, query: db.value(*query), (sql, parameters))


class _ReadHandler(GroupHandler[SqliteConnection]):
    """The thread's side."""

    def __init__(self, path: Path, identity: Callable[[], FileIdentity | None]) -> None:
        self._path = path
        self._identity = identity
        self._db: SqliteConnection | None = None

    def run_group(
        self, group: RequestGroup[SqliteConnection], take_queued: TakeQueued[SqliteConnection]
    ) -> Sequence[RequestResult]:
        identity = self._identity()
        if self._db is None:
            if identity is not None:
                identity.check()
            self._db = SqliteConnection(self._path, read_only=True)
        group += take_queued(group[0].weight)
        results: list[RequestResult] = []
        for request in group:
            if request.future.done():
                continue
            try:
                results.append((request.future, request.work(self._db, request.argument), None))
            except Exception as error:  # of any kind: the others must be answered
                results.append((request.future, None, error))
        if identity is not None:
            identity.check()  # neither what a deleted file answers nor its errors are true
        return results

    def interrupt(self) -> None:
        if self._db is not None:
            self._db.interrupt()

    def close(self) -> None:
        if self._db is None:
            return
        if (identity := self._identity()) is not None and identity.is_lost:
            self._db.leak()
        else:
            self._db.close()


def _run_in_snapshot(db: SqliteConnection, query: Callable[[SqliteConnection], R]) -> R:
    db.run("BEGIN")
    try:
        return query(db)
    finally:
        db.run("ROLLBACK")
