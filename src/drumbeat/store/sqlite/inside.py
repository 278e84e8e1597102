"""Jobs inside a transaction of the caller's own, on SQLite. The contract is in `store.protocol.Inside`.

The engine's own statements run on the caller's connection, on whichever thread that belongs to. Nobody takes a turn here and
nobody rings a bell: the caller's connection waits for the lock as SQLite does, and workers see the commit by its version.
Errors of the caller's own connection are the caller's, and stay what its driver makes of them.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from drumbeat.clock import Clock
from drumbeat.errors import ClaimLost, InvalidArguments, StoreLost
from drumbeat.ids import InstanceId
from drumbeat.model.job import Added, Hold, NewJob, Outcome, OutcomeKind, Verdict
from drumbeat.store.kinds import Kind, known, of_session, unwrapped
from drumbeat.store.sqlfile import prefixed
from drumbeat.store.sqlite import schema
from drumbeat.store.sqlite.adding import Adding, Batch
from drumbeat.store.sqlite.connection import Connection, Parameters
from drumbeat.store.sqlite.ending import Ending
from drumbeat.store.sqlite.own import SqliteTransaction
from drumbeat.store.sqlite.place import Room, node
from drumbeat.store.sqlite.statements import JOBS
from drumbeat.store.sqlite.writer import Write

R = TypeVar("R")

KINDS = frozenset({Kind.SQLITE3, Kind.AIOSQLITE, Kind.DJANGO, Kind.SQLALCHEMY, Kind.SQLALCHEMY_ASYNC})


class SqliteInside:
    """Needs no open store: a path will do."""

    def __init__(self, path: Path, *, namespace: str, clock: Clock, room: Room) -> None:
        self._path = path
        self._namespace = namespace
        self._clock = clock
        self._room = room
        self._node: tuple[int, int] | None = None
        sql = prefixed(JOBS, namespace)
        self._adding = Adding(sql)
        self._ending = Ending(sql, self._adding)

    def check(self) -> None:
        pass  # every SQLite file has transactions

    async def add(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[Added]:
        return await self._on(conn, partial(self._add, jobs)) if jobs else []

    def add_sync(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[Added]:
        return self._on_sync(conn, partial(self._add, jobs)) if jobs else []

    async def complete(
        self,
        conn: Any,
        instance: InstanceId,
        hold: Hold,
        *,
        started_at: int,
        result: str | None,
        result_error: str | None,
    ) -> None:
        await self._on(conn, partial(self._complete, instance, hold, started_at, result, result_error))

    def complete_sync(
        self,
        conn: Any,
        instance: InstanceId,
        hold: Hold,
        *,
        started_at: int,
        result: str | None,
        result_error: str | None,
    ) -> None:
        self._on_sync(conn, partial(self._complete, instance, hold, started_at, result, result_error))

    def transaction(self) -> SqliteTransaction:
        return SqliteTransaction(self._path)

    async def _on(self, conn: Any, work: Callable[[sqlite3.Connection], R]) -> R:
        """Do this with the sqlite3 connection behind `conn`, on the thread that it lives on."""
        kind = known(conn, KINDS, sync=False)
        if kind is Kind.SQLALCHEMY_ASYNC:
            session = of_session(conn)
            conn = (await (await session if session is not None else conn).get_raw_connection()).driver_connection
            kind = known(conn, KINDS, sync=False)
        if kind is Kind.AIOSQLITE:
            # It has no public way to run a function on its thread; this one has not changed since its first release.
            answer: R = await conn._execute(work, conn._conn)
            return answer
        return self._on_sync(conn, work)

    def _on_sync(self, conn: Any, work: Callable[[sqlite3.Connection], R]) -> R:
        kind = known(conn, KINDS, sync=True)
        if kind is Kind.SQLALCHEMY:
            conn = (of_session(conn) or conn).connection.driver_connection
            known(conn, frozenset({Kind.SQLITE3}), sync=True)
        elif kind is Kind.DJANGO:
            conn.ensure_connection()
            conn = conn.connection
            known(conn, frozenset({Kind.SQLITE3}), sync=True)
        return work(unwrapped(conn))

    # On the thread of the caller's connection.

    def _add(self, jobs: Sequence[NewJob], conn: sqlite3.Connection) -> list[Added]:
        self._room.check()
        db = Borrowed(conn)
        with _begun(db, conn):
            self._check_place(db)
            # All or none, whatever the caller makes of an error.
            db.run("SAVEPOINT drumbeat_add")
            try:
                schema.upgrade_within(db, self._namespace)
                answers = self._adding.add(Write(db, self._clock.now_us()), Batch(jobs))
            except BaseException:
                if db.in_transaction:
                    db.run("ROLLBACK TO drumbeat_add")
                raise
            finally:
                if db.in_transaction:
                    db.run("RELEASE drumbeat_add")
            return answers

    def _complete(
        self,
        instance: InstanceId,
        hold: Hold,
        started_at: int,
        result: str | None,
        result_error: str | None,
        conn: sqlite3.Connection,
    ) -> None:
        db = Borrowed(conn)
        with _begun(db, conn):
            self._check_place(db)
            now = self._clock.now_us()
            outcome = Outcome(
                id=hold.id,
                token=hold.token,
                kind=OutcomeKind.SUCCEEDED,
                started_at=started_at,
                finished_at=now,
                result=result,
                result_error=result_error,
            )
            [verdict] = self._ending.end(Write(db, now), instance, [outcome])
            if verdict is not Verdict.DONE:
                # Here and not left to the caller: what a zombie has written must not be committed, even by mistake.
                with contextlib.suppress(sqlite3.Error):
                    conn.rollback()
                raise ClaimLost(hold.id, hold.token, completed=verdict is Verdict.ALREADY)

    def _check_place(self, db: "Borrowed") -> None:
        """That the caller's connection is one to our file, and that this is the file that it was at the first call.

        Which file a connection has open cannot be asked: one that was made before the file was replaced has the old one. So
        nothing is taken any more from this program.
        """
        file, found = db.file, node(str(self._path))
        if self._node is not None and found != self._node:
            raise StoreLost(
                f"{self._path} was deleted or replaced since this program first used it, and conn may still have the old"
                " file open: start it anew"
            )
        if not file or not self._path.exists() or not os.path.samefile(file, self._path):
            where = file or "a database in memory"
            raise InvalidArguments(f"conn is connected to {where}, but the jobs are in {self._path}", "conn")
        self._node = found


class Borrowed(Connection):
    """A caller's connection, as the engine's parts know it. Whatever the caller has set for its own rows is left alone."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._db = _Plain(conn)  # type: ignore[assignment]
        self.last_inserted = 0

    @property
    def file(self) -> str:
        """The main database's; empty for one in memory."""
        file: str | bytes | None = self.row("PRAGMA database_list")[2]
        return os.fsdecode(file or "")


class _Plain:
    """As much of sqlite3.Connection as `Connection` uses, with rows that are tuples."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn

    def execute(self, sql: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        cursor = self._conn.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, parameters)

    @property
    def in_transaction(self) -> bool:
        return self._conn.in_transaction

    @property
    def total_changes(self) -> int:
        return self._conn.total_changes


@contextlib.contextmanager
def _begun(db: Borrowed, conn: sqlite3.Connection) -> Any:
    """Inside the caller's transaction. If there is none, one is begun for the caller to commit; but a connection that
    commits each statement by itself commits this at once."""
    if db.in_transaction:
        yield
        return
    alone = conn.isolation_level is None if getattr(conn, "autocommit", -1) == -1 else bool(conn.autocommit)  # type: ignore[attr-defined]
    db.run("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if db.in_transaction:
            db.run("ROLLBACK")
        raise
    if alone:
        db.run("COMMIT")
