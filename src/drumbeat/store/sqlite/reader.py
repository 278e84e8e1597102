"""The reading thread: its own connection, which cannot write, beside the writer and in nobody's way."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from drumbeat.store.sqlite.connection import Connection, translated
from drumbeat.store.sqlite.desk import Answer, Desk, Request, answered
from drumbeat.store.sqlite.place import Identity

R = TypeVar("R")


class Reader(Desk):
    """Answers questions one by one, each from a snapshot of its own."""

    def __init__(
        self, name: str, path: Path, loop: asyncio.AbstractEventLoop, identity: Callable[[], Identity | None]
    ) -> None:
        super().__init__(name, path, loop)
        self._identity = identity
        self._db: Connection | None = None

    async def read(self, question: Callable[[Connection], R]) -> R:
        answer: R = await self.ask(_in_snapshot, question)
        return answer

    async def text(self, sql: str, parameters: Mapping[str, object]) -> str:
        """The single value of a single statement, which is a snapshot by itself."""
        answer: str = await self.ask(_value, (sql, parameters))
        return answer

    def _perform(self, group: list[Request]) -> list[Answer]:
        identity = self._identity()
        if self._db is None:
            if identity is not None:
                identity.check()
            with translated(self._path):
                self._db = Connection(self._path, read_only=True)
        self._drain(group)
        db = self._db
        answers = [
            answered(request, lambda request=request: request.work(db, request.argument), self._path)  # type: ignore[misc]
            for request in group
            if not request.future.done()
        ]
        if identity is not None:
            identity.check()  # what a deleted file says is not so, nor are its errors
        return answers

    def _interrupt(self) -> None:
        if self._db is not None:
            self._db.interrupt()

    def _shut(self) -> None:
        if self._db is None:
            return
        if (identity := self._identity()) is not None and identity.is_lost:
            self._db.abandon()
        else:
            self._db.close()


def _value(db: Connection, question: tuple[str, Mapping[str, object]]) -> object:
    return db.value(*question)


def _in_snapshot(db: Connection, question: Callable[[Connection], R]) -> R:
    db.run("BEGIN")
    try:
        return question(db)
    finally:
        db.run("ROLLBACK")
