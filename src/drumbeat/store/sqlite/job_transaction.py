"""A handler's own transaction on SQLite: on its own connection, serialised with all other writers, and limited in time.

    thread: take the write lock, BEGIN IMMEDIATE --> the handler works --> thread: COMMIT, release the write lock
                                                           \\--5 s--> timer: ROLLBACK, release the write lock

While it is open nothing else can write, heartbeats included; so it ends by itself after 5 s. Statements on its connection are
refused then, and the end of the handler's block raises TransactionTooLong.
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from pathlib import Path
from typing import TypeVar

from drumbeat.errors import StoreUnavailable, TransactionTooLong
from drumbeat.store.sqlite.connection import BUSY_TIMEOUT, connect, leak_connection, translate_errors
from drumbeat.store.sqlite.database_thread import CALL_TIMEOUT
from drumbeat.store.sqlite.file_checks import FileIdentity
from drumbeat.store.sqlite.write_lock import WriteLock

T = TypeVar("T")

MAX_TRANSACTION_S = 5.0
"""How long a handler may block all other writers."""


class SqliteTransaction:
    """The contract is in `store.protocol.EngineTransaction`."""

    def __init__(self, path: Path, limit: float = MAX_TRANSACTION_S) -> None:
        self._path = path
        self.timeout: float | None = limit
        self._max_seconds = limit
        self._end_lock = threading.Lock()  # the handler and the timer may end it at the same time
        self._db: sqlite3.Connection | None = None
        self._write_lock: WriteLock | None = None
        self._identity: FileIdentity | None = None
        self._timer: threading.Timer | None = None
        self._authorizer = StatementAuthorizer()
        self._expired = False

    async def begin(self) -> sqlite3.Connection:
        opening = _run_in_thread(self._begin, undo=lambda _: self._end())
        try:
            # If this is cancelled, `undo` releases what the thread has opened.
            async with asyncio.timeout(CALL_TIMEOUT):
                return await asyncio.wrap_future(opening)
        except TimeoutError:
            raise self._lock_timeout_error() from None

    def begin_sync(self) -> sqlite3.Connection:
        opening = _run_in_thread(self._begin, undo=lambda _: self._end())
        try:
            return opening.result(CALL_TIMEOUT)
        except TimeoutError:
            if opening.cancel():
                raise self._lock_timeout_error() from None
            return opening.result()

    async def commit(self) -> None:
        committing = _run_in_thread(self._commit)
        try:
            await asyncio.shield(asyncio.wrap_future(committing))
        except asyncio.CancelledError:
            # It takes some milliseconds, and the next read must see its outcome.
            with contextlib.suppress(Exception):
                committing.result(self._max_seconds)
            raise

    def commit_sync(self) -> None:
        self._commit()

    async def rollback(self) -> None:
        self.rollback_sync()  # fast: it writes nothing

    def rollback_sync(self) -> None:
        with self._end_lock:
            self._end()
        if self._expired:
            raise TransactionTooLong(self._max_seconds)

    def _lock_timeout_error(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self._path}: no write lock within {CALL_TIMEOUT:g} s; another process holds it")

    def _begin(self) -> sqlite3.Connection:
        try:
            with translate_errors(self._path):
                # Opened before the write lock is taken, and the schema read: other writers need not wait for that.
                # Not created: a missing file was deleted, and the job with it.
                self._db = connect(self._path, "rw", timeout=BUSY_TIMEOUT, factory=JobConnection)
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.execute("PRAGMA fullfsync = ON")
                self._db.execute("PRAGMA wal_autocheckpoint = 0")
                self._db.execute("PRAGMA table_list").fetchall()
                self._write_lock = WriteLock(self._path)
                self._write_lock.__enter__()
                self._db.execute("BEGIN IMMEDIATE")
                self._identity = FileIdentity(self._path)
                self._db.set_authorizer(self._authorizer)
            self._timer = threading.Timer(self._max_seconds, self._expire)
            self._timer.daemon = True
            self._timer.start()
        except BaseException:
            self._end()
            raise
        return self._db

    def _commit(self) -> None:
        with self._end_lock:
            if self._expired or self._db is None:
                self._end()
                raise TransactionTooLong(self._max_seconds)
            try:
                self._authorizer.can_end = True
                with translate_errors(self._path):
                    self._db.execute("COMMIT")
                self._release_write_lock()
                if self._identity is not None:
                    self._identity.check()
            finally:
                self._end()

    def _expire(self) -> None:
        with self._end_lock:
            db = self._db
            if db is None:
                return
            self._expired = True
            db.interrupt()
            self._authorizer.is_over = self._authorizer.can_end = True
            # Set again, so that prepared statements are checked again: only our rollback is allowed now.
            db.set_authorizer(self._authorizer)
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            self._authorizer.can_end = False
            db.set_authorizer(self._authorizer)
            self._release_write_lock()

    def _end(self) -> None:
        """Release everything; closing rolls back what is not committed."""
        if self._timer is not None:
            self._timer.cancel()
        db, self._db = self._db, None
        if db is not None and self._identity is not None and self._identity.is_lost:
            with contextlib.suppress(sqlite3.Error):
                self._authorizer.can_end = True
                if db.in_transaction:
                    db.execute("ROLLBACK")
            leak_connection(db)
        elif db is not None:
            db.close()
        self._release_write_lock()

    def _release_write_lock(self) -> None:
        lock, self._write_lock = self._write_lock, None
        if lock is not None:
            lock.close()  # closing the file releases its lock


class JobConnection(sqlite3.Connection):
    """What a handler gets. Leaving the block ends its transaction, together with the job."""

    def commit(self) -> None:
        raise sqlite3.ProgrammingError("this transaction is committed by leaving the block of transaction()")

    def rollback(self) -> None:
        raise sqlite3.ProgrammingError(
            "this transaction is rolled back by an exception out of the block of transaction()"
        )


class StatementAuthorizer:
    """Decides which statements may be prepared: none that ends the transaction, and none at all when it is over."""

    def __init__(self) -> None:
        self.can_end = False
        self.is_over = False

    def __call__(self, action: int, first: str | None, *_rest: str | None) -> int:
        if action == sqlite3.SQLITE_TRANSACTION:
            return sqlite3.SQLITE_OK if self.can_end else sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_DENY if self.is_over else sqlite3.SQLITE_OK


def _run_in_thread(work: Callable[[], T], undo: Callable[[T], None] = lambda _: None) -> "Future[T]":
    """Run this in a daemon thread of its own, because it may wait for a stopped process. `undo` gets the result if the
    caller has given up."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            value = work()
        except BaseException as error:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)
            return
        try:
            future.set_result(value)
        except InvalidStateError:
            undo(value)

    threading.Thread(target=run, name="drumbeat transaction", daemon=True).start()
    return future
