"""Programs around a job: connections of their own, with a table of their own, in the database that holds the jobs."""

import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

import asyncpg
from django.db.utils import ConnectionHandler
from django.utils.connection import ConnectionProxy

from tests.apps.django_site import set_up_django


class Caller(Protocol):
    """A connection of the program's own. `conn` is what it gives to Drumbeat."""

    conn: Any

    async def begin(self) -> None: ...

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...

    async def write(self, number: int, conn: Any = None) -> None:
        """Into the program's own table; on `conn` if given."""
        ...

    async def numbers(self) -> list[int]:
        """What is in that table, as committed: seen by a connection of its own."""
        ...

    async def column(self, query: str) -> list[int]:
        """The first column of a query, seen by a connection of its own."""
        ...


@contextlib.asynccontextmanager
async def caller(url: str) -> AsyncIterator[Caller]:
    """A connection to the database behind a store's URL, and an empty table."""
    if url.startswith("sqlite"):
        with contextlib.closing(SqliteCaller(Path(url.removeprefix("sqlite:///")))) as made:
            yield made
    else:
        postgres = PostgresCaller(url)
        await postgres.open()
        try:
            yield postgres
        finally:
            await postgres.close()


class SqliteCaller:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.conn = sqlite3.connect(path)
        self.conn.execute("CREATE TABLE IF NOT EXISTS note (number INTEGER)")

    async def begin(self) -> None:
        self.conn.execute("BEGIN IMMEDIATE")

    async def commit(self) -> None:
        self.conn.commit()

    async def rollback(self) -> None:
        self.conn.rollback()

    async def write(self, number: int, conn: Any = None) -> None:
        (conn or self.conn).execute("INSERT INTO note VALUES (?)", (number,))

    async def numbers(self) -> list[int]:
        return await self.column("SELECT number FROM note ORDER BY number")

    async def column(self, query: str) -> list[int]:
        with contextlib.closing(sqlite3.connect(self._path)) as other:
            return [row[0] for row in other.execute(query)]

    def close(self) -> None:
        self.conn.close()


class PostgresCaller:
    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        self.conn = await asyncpg.connect(self._url)
        await self.conn.execute("CREATE TABLE IF NOT EXISTS note (number integer)")

    async def begin(self) -> None:
        self._transaction = self.conn.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    async def write(self, number: int, conn: Any = None) -> None:
        await (conn or self.conn).execute("INSERT INTO note VALUES ($1)", number)

    async def numbers(self) -> list[int]:
        return await self.column("SELECT number FROM note ORDER BY number")

    async def column(self, query: str) -> list[int]:
        other = await asyncpg.connect(self._url)
        try:
            return [row[0] for row in await other.fetch(query)]
        finally:
            await other.close()

    async def close(self) -> None:
        await self.conn.close()


class Program:
    """A connection of some library, told what to do in one voice; what it answers may have to be awaited: see `done`."""

    def __init__(
        self, conn: Any, run: Callable[[str], Any], commit: Callable[[], Any], rollback: Callable[[], Any]
    ) -> None:
        self.conn = conn
        self.run, self.commit, self.rollback = run, commit, rollback
        self.begin: Callable[[], Any] = lambda: None


async def done(answer: Any) -> None:
    if hasattr(answer, "__await__"):
        await answer


def django_program(database: dict[str, Any], stack: contextlib.AsyncExitStack) -> Program:
    """A connection as `django.db.connection` is one, in a transaction that is ended by hand."""
    # Django looks whether a loop runs here, and refuses: tests that talk to it from one know what they do.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    set_up_django()
    handler = ConnectionHandler({"default": database})
    conn = ConnectionProxy(handler, "default")
    stack.callback(handler.close_all)
    conn.set_autocommit(False)

    def run(sql: str) -> None:
        with conn.cursor() as cursor:
            cursor.execute(sql)

    return Program(conn, run, conn.commit, conn.rollback)
