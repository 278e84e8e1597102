"""Jobs in a transaction of the caller's own, on SQLite. The contract is in `store.protocol.Transactional`.

The engine's statements run on the caller's connection, on the thread that it belongs to. Neither the write lock nor hints are
used: the caller's connection waits for the lock as SQLite does, and workers see the commit by `data_version`. Errors of the
caller's connection are not translated.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from drumbeat.clock import Clock
from drumbeat.core.claim import CompletedJob, Outcome, WriteStatus
from drumbeat.core.job import AddResult, NewJob, OutcomeKind
from drumbeat.core.signals import NewSignal, SignalAnswer
from drumbeat.core.step import NewStep
from drumbeat.errors import ClaimLost, InvalidArguments, StoreLost
from drumbeat.ids import InstanceId
from drumbeat.store.driver_kinds import DriverKind, detect_kind, session_connection, unwrap_cursor
from drumbeat.store.sqlite import schema
from drumbeat.store.sqlite.completion import SqliteCompletionWriter
from drumbeat.store.sqlite.connection import Parameters, SqliteConnection
from drumbeat.store.sqlite.file_checks import DiskSpaceGuard, inode_of
from drumbeat.store.sqlite.insert import SqliteInsertBatch, SqliteInserter
from drumbeat.store.sqlite.job_transaction import SqliteTransaction
from drumbeat.store.sqlite.statements import statements
from drumbeat.store.sqlite.steps import record_steps, send_signal
from drumbeat.store.sqlite.writer import WriteContext

R = TypeVar("R")

SUPPORTED_KINDS = frozenset(
    {DriverKind.SQLITE3, DriverKind.AIOSQLITE, DriverKind.DJANGO, DriverKind.SQLALCHEMY, DriverKind.SQLALCHEMY_ASYNC}
)


class SqliteTransactional:
    """Needs no open store, only its path."""

    def __init__(self, path: Path, *, namespace: str, clock: Clock, disk_space: DiskSpaceGuard) -> None:
        self._path = path
        self._namespace = namespace
        self._clock = clock
        self._disk_space = disk_space
        self._inode: tuple[int, int] | None = None
        sql = statements(namespace)
        self._job_sql, self._step_sql = sql.jobs, sql.steps
        self._inserter = SqliteInserter(sql.jobs, sql.limits)
        self._completion = SqliteCompletionWriter(sql.jobs, sql.limits, self._inserter)

    def check_connection(self, conn: Any, *, sync: bool) -> None:
        detect_kind(conn, SUPPORTED_KINDS, sync=sync)

    async def add(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[AddResult]:
        return await self._run_on(conn, partial(self._add, jobs)) if jobs else []

    def add_sync(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[AddResult]:
        return self._run_on_sync(conn, partial(self._add, jobs)) if jobs else []

    async def complete(self, conn: Any, completed: CompletedJob) -> bool:
        return await self._run_on(conn, partial(self._complete, completed))

    def complete_sync(self, conn: Any, completed: CompletedJob) -> bool:
        return self._run_on_sync(conn, partial(self._complete, completed))

    async def record_step(self, conn: Any, instance: InstanceId, step: NewStep) -> None:
        await self._run_on(conn, partial(self._record_step, instance, step))

    def record_step_sync(self, conn: Any, instance: InstanceId, step: NewStep) -> None:
        self._run_on_sync(conn, partial(self._record_step, instance, step))

    async def send_signal(self, conn: Any, signal: NewSignal) -> SignalAnswer:
        return await self._run_on(conn, partial(self._send_signal, signal))

    def send_signal_sync(self, conn: Any, signal: NewSignal) -> SignalAnswer:
        return self._run_on_sync(conn, partial(self._send_signal, signal))

    def transaction(self) -> SqliteTransaction:
        return SqliteTransaction(self._path)

    async def _run_on(self, conn: Any, work: Callable[[sqlite3.Connection], R]) -> R:
        """Run this with the sqlite3 connection behind `conn`, on the thread that it belongs to."""
        kind = detect_kind(conn, SUPPORTED_KINDS, sync=False)
        if kind is DriverKind.SQLALCHEMY_ASYNC:
            session = session_connection(conn)
            conn = (await (await session if session is not None else conn).get_raw_connection()).driver_connection
            kind = detect_kind(conn, SUPPORTED_KINDS, sync=False)
        if kind is DriverKind.AIOSQLITE:
            # There is no public way to run a function on its thread; this one has not changed since the first release.
            answer: R = await conn._execute(work, conn._conn)
            return answer
        return self._run_on_sync(conn, work)

    def _run_on_sync(self, conn: Any, work: Callable[[sqlite3.Connection], R]) -> R:
        kind = detect_kind(conn, SUPPORTED_KINDS, sync=True)
        if kind is DriverKind.SQLALCHEMY:
            conn = (session_connection(conn) or conn).connection.driver_connection
            detect_kind(conn, frozenset({DriverKind.SQLITE3}), sync=True)
        elif kind is DriverKind.DJANGO:
            conn.ensure_connection()
            conn = conn.connection
            detect_kind(conn, frozenset({DriverKind.SQLITE3}), sync=True)
        return work(unwrap_cursor(conn))

    # On the thread of the caller's connection.

    def _add(self, jobs: Sequence[NewJob], conn: sqlite3.Connection) -> list[AddResult]:
        self._disk_space.check()
        db = BorrowedConnection(conn)
        with _ensure_transaction(db, conn):
            self._check_same_file(db)
            # All or none, however the caller handles an error.
            db.run("SAVEPOINT drumbeat_add")
            try:
                schema.upgrade_in_transaction(db, self._namespace)
                answers = self._inserter.add(WriteContext(db, self._clock.now_us()), SqliteInsertBatch(jobs))
            except BaseException:
                if db.in_transaction:
                    db.run("ROLLBACK TO drumbeat_add")
                raise
            finally:
                if db.in_transaction:
                    db.run("RELEASE drumbeat_add")
            return answers

    def _complete(self, completed: CompletedJob, conn: sqlite3.Connection) -> bool:
        db = BorrowedConnection(conn)
        with _ensure_transaction(db, conn):
            self._check_same_file(db)
            now = self._clock.now_us()
            outcome = Outcome(
                id=completed.claim.id,
                token=completed.claim.token,
                kind=OutcomeKind.SUCCEEDED,
                started_at=completed.started_at,
                finished_at=now,
                result=completed.result,
                result_error=completed.result_error,
                follow_up=completed.follow_up,
            )
            [verdict] = self._completion.record_outcomes(WriteContext(db, now), completed.instance, [outcome])
            if verdict is not WriteStatus.APPLIED:
                # Not left to the caller: what was written without a claim must never be committed.
                with contextlib.suppress(sqlite3.Error):
                    conn.rollback()
                raise ClaimLost(completed.claim.id, completed.claim.token, completed=verdict is WriteStatus.DUPLICATE)
            return bool(db.value(self._job_sql.has_releases))

    def _record_step(self, instance: InstanceId, step: NewStep, conn: sqlite3.Connection) -> None:
        db = BorrowedConnection(conn)
        with _ensure_transaction(db, conn):
            self._check_same_file(db)
            [status] = record_steps(self._step_sql, WriteContext(db, self._clock.now_us()), instance, [step])
            if status is not WriteStatus.APPLIED:
                with contextlib.suppress(sqlite3.Error):  # as in `_complete`
                    conn.rollback()
                raise ClaimLost(step.claim.id, step.claim.token)

    def _send_signal(self, signal: NewSignal, conn: sqlite3.Connection) -> SignalAnswer:
        self._disk_space.check()
        db = BorrowedConnection(conn)
        with _ensure_transaction(db, conn):
            self._check_same_file(db)
            schema.upgrade_in_transaction(db, self._namespace)
            return send_signal(self._step_sql, WriteContext(db, self._clock.now_us()), signal)

    def _check_same_file(self, db: "BorrowedConnection") -> None:
        """Refuse a connection to another file, and every connection once the file was replaced.

        Which file a connection has open cannot be queried: one that was opened before the file was replaced has the old one.
        So this program may add nothing any more.
        """
        file, found = db.file, inode_of(str(self._path))
        if self._inode is not None and found != self._inode:
            raise StoreLost(
                f"{self._path} was deleted or replaced since this program first used it, and conn may still have the old"
                " file open: start it anew"
            )
        if not file or not self._path.exists() or not os.path.samefile(file, self._path):
            where = file or "a database in memory"
            raise InvalidArguments(f"conn is connected to {where}, but the jobs are in {self._path}", "conn")
        self._inode = found


class BorrowedConnection(SqliteConnection):
    """A caller's connection in the shape that the engine uses. The caller's own row settings are not changed."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._db = conn
        self._execute = self._execute_for_tuples
        self.last_rowid = 0

    @property
    def file(self) -> str:
        """The file of the main database; empty for one in memory."""
        file: str | bytes | None = self.row("PRAGMA database_list")[2]
        return os.fsdecode(file or "")

    def _execute_for_tuples(self, sql: str, parameters: Parameters = ()) -> sqlite3.Cursor:
        cursor = self._db.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, parameters)


@contextlib.contextmanager
def _ensure_transaction(db: BorrowedConnection, conn: sqlite3.Connection) -> Any:
    """Run the block in the caller's transaction. If there is none, begin one for the caller to commit; on a connection in
    autocommit mode commit it here."""
    if db.in_transaction:
        yield
        return
    autocommit = conn.isolation_level is None if getattr(conn, "autocommit", -1) == -1 else bool(conn.autocommit)  # type: ignore[attr-defined]
    db.run("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if db.in_transaction:
            db.run("ROLLBACK")
        raise
    if autocommit:
        db.run("COMMIT")
