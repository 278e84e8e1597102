"""The reading thread: its own connection, which cannot write, beside the writer and in nobody's way."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from drumbeat.store.sqlite.connection import SqliteConnection, translate_errors
from drumbeat.store.sqlite.database_thread import DatabaseThread, RequestResult, WriteRequest, run_request
from drumbeat.store.sqlite.file_checks import FileIdentity

R = TypeVar("R")


class Reader(DatabaseThread):
    """Answers questions one by one, each from a snapshot of its own."""

    def __init__(
        self, name: str, path: Path, loop: asyncio.AbstractEventLoop, identity: Callable[[], FileIdentity | None]
    ) -> None:
        super().__init__(name, path, loop)
        self._identity = identity
        self._db: SqliteConnection | None = None

    async def read(self, query: Callable[[SqliteConnection], R]) -> R:
        answer: R = await self.submit(_run_in_snapshot, query)
        return answer

    async def read_value(self, sql: str, parameters: Mapping[str, object]) -> str:
        """The single value of a single statement, which is a snapshot by itself."""
        answer: str = await self.submit(_read_value, (sql, parameters))
        return answer

    def _process_group(self, group: list[WriteRequest]) -> list[RequestResult]:
        identity = self._identity()
        if self._db is None:
            if identity is not None:
                identity.check()
            with translate_errors(self._path):
                self._db = SqliteConnection(self._path, read_only=True)
        self._fill_group(group)
        db = self._db
        answers = [
            run_request(request, lambda request=request: request.work(db, request.argument), self._path)  # type: ignore[misc]
            for request in group
            if not request.future.done()
        ]
        if identity is not None:
            identity.check()  # what a deleted file says is not so, nor are its errors
        return answers

    def _interrupt(self) -> None:
        if self._db is not None:
            self._db.interrupt()

    def _close_resources(self) -> None:
        if self._db is None:
            return
        if (identity := self._identity()) is not None and identity.is_lost:
            self._db.leak()
        else:
            self._db.close()


def _read_value(db: SqliteConnection, query: tuple[str, Mapping[str, object]]) -> object:
    return db.value(*query)


def _run_in_snapshot(db: SqliteConnection, query: Callable[[SqliteConnection], R]) -> R:
    db.run("BEGIN")
    try:
        return query(db)
    finally:
        db.run("ROLLBACK")
