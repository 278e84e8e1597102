"""The writer thread: group commit, serialised with the writers of all other processes.

request, request, request          each: work(write, argument)
          |
take the write lock (flock)        requests that arrive while this waits join the group
BEGIN IMMEDIATE; now = clock       the time is taken inside both locks: waiting makes no job early and no token old
each unit in a savepoint           one that fails undoes nothing of the others; requests of a kind are one unit
COMMIT                             visible to all, and safe from the death of any process
checkpoint if the log is long      inside the lock: nobody writes during a checkpoint
release the write lock
notify workers
acknowledge once it is on disk     `fsync_thread` waits for that while the next group runs; if the file is still there
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from drumbeat.clock import Clock
from drumbeat.errors import StoreError
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.database_thread import (
    DatabaseRequest,
    DatabaseThread,
    GroupHandler,
    RequestGroup,
    RequestResult,
    TakeQueued,
    deliver,
)
from drumbeat.store.sqlite.file_checks import FileIdentity
from drumbeat.store.sqlite.fsync_thread import FsyncThread
from drumbeat.store.sqlite.token_clock import TokenClock
from drumbeat.store.sqlite.wake import SqliteNotifier, WakeHint
from drumbeat.store.sqlite.write_lock import WriteLock

# A log of this size is checkpointed by the writer that holds the lock.
CHECKPOINT_BYTES = 16 * 1024 * 1024


class WriteContext(msgspec.Struct):
    """What the work of a request may use: the connection inside the transaction, the time, and hints to workers."""

    db: SqliteConnection
    now: int
    lowest_token: int = 0
    """Of a claim or a lock that is given now: see token_clock.py."""
    earliest_run_at: int | None = None
    """Workers are told of this due time after the commit."""
    has_releases: bool = False
    """Parents may have ended, or been replayed, in this transaction."""
    hints: list[WakeHint] = []
    """The owners of these tickets are told after the commit."""

    def notify(self, run_at: int) -> None:
        """After the commit, tell workers that a job may be due at this time."""
        if self.earliest_run_at is None or run_at < self.earliest_run_at:
            self.earliest_run_at = run_at


class Writer:
    """The loop's side: `write(work, argument)` runs the work in a transaction on the writer thread."""

    def __init__(
        self,
        path: Path,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        upgrade: Callable[[SqliteConnection], None],
        notifier: SqliteNotifier,
        tokens: TokenClock,
    ) -> None:
        self._handler = WriteHandler(path, loop, clock, upgrade, notifier, tokens)
        thread = DatabaseThread("writer", path, loop, clock, self._handler)
        self.write = thread.submit
        self.close = thread.close

    @property
    def identity(self) -> FileIdentity | None:
        """None: the file is not open yet."""
        return self._handler.identity

    async def open(self) -> None:
        """Create or upgrade the database, as every first write does; nothing is done if it is open."""
        await self.write(lambda *_: None, None)

    async def notify(self, run_at: int) -> None:
        """Tell workers that a job may be due at this time."""
        await self.write(WriteContext.notify, run_at, durable=False)


class WriteHandler(GroupHandler[WriteContext]):
    """The thread's side: runs groups of requests, each in one transaction, which is never aborted."""

    def __init__(
        self,
        path: Path,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        upgrade: Callable[[SqliteConnection], None],
        notifier: SqliteNotifier,
        tokens: TokenClock,
    ) -> None:
        self._path = path
        self._wal_path = Path(f"{path}-wal")
        self._clock = clock
        self._upgrade = upgrade
        self._notifier = notifier
        self._tokens = tokens
        self._fsync_thread = FsyncThread(self._wal_path, self._acknowledge, inline_on=loop if clock.inline else None)
        self._lock: WriteLock | None = None
        self._checkpoint_margin_bytes = 0
        self.db: SqliteConnection | None = None
        self.identity: FileIdentity | None = None

    def run_group(
        self, group: RequestGroup[WriteContext], take_queued: TakeQueued[WriteContext]
    ) -> Sequence[RequestResult]:
        if self.db is None or self._lock is None or self.identity is None:
            self._open()
        db, lock, identity = self.db, self._lock, self.identity
        assert db is not None and lock is not None and identity is not None
        with lock:
            group += take_queued(group[0].weight)
            wanted = [request for request in group if not request.future.done()]
            durable = any(request.durable for request in wanted)
            # A durable group is checked when it is on disk, just before it is acknowledged.
            identity.check(refresh=not durable)
            try:
                results, write = self._run_transaction(db, wanted)
            except Exception:
                identity.check()  # a lost file is the reason, whatever SQLite reports
                raise
            self._checkpoint(db)
        if write.hints:
            self._notifier.send_hints(write.hints)
        if write.earliest_run_at is not None:
            self._notifier.notify(write.earliest_run_at, db)
        if not durable:
            return results
        self._fsync_thread.after_fsync(results)
        return []

    def idle_timeout(self) -> float | None:
        return self._notifier.flush_delay()

    def on_idle(self) -> None:
        self._notifier.flush()

    def close(self) -> None:
        self._notifier.flush()
        self._fsync_thread.close()
        if self._lock is None:
            return
        if self.db is not None:
            # Closing the last connection to a file makes a checkpoint: inside the lock, as any other.
            with self._lock:
                if self.identity is not None and self.identity.is_lost:
                    self.db.leak()
                else:
                    self.db.close()
        self._lock.close()

    def _open(self) -> None:
        if self._lock is None:
            self._lock = WriteLock(self._path)
        # Inside the lock: two processes may create the same file at the same time.
        with self._lock:
            db = SqliteConnection(self._path, read_only=False)
            try:
                self._upgrade(db)
                self.identity = FileIdentity(self._path)
            except BaseException:
                db.close()
                raise
            self.db = db

    def _begin(self, db: SqliteConnection) -> int:
        """Begin a transaction. Returns its time, for which tokens are reserved: that of after any wait for a lock of SQLite's
        own, which another program may hold."""
        db.run("BEGIN IMMEDIATE")
        while not self._tokens.is_reserved(now := self._clock.now_us()):
            db.run("ROLLBACK")
            self._reserve_tokens(db)
            db.run("BEGIN IMMEDIATE")
        return now

    def _reserve_tokens(self, db: SqliteConnection) -> None:
        """Every few minutes. Waits for the disk, with the write lock held."""
        db.run("BEGIN IMMEDIATE")
        try:
            reservation = self._tokens.reserve(db, self._clock.now_us())
            db.run("COMMIT")
        finally:
            if db.in_transaction:
                db.run("ROLLBACK")
        self._fsync_thread.fsync_now()
        self._tokens.accept(reservation)

    def _run_transaction(
        self, db: SqliteConnection, group: RequestGroup[WriteContext]
    ) -> tuple[list[RequestResult], WriteContext]:
        units = [group] if len(group) == 1 else _group_by_kind(group)
        try:
            now = self._begin(db)
            write = WriteContext(db, now, self._tokens.lowest(now))
            results: list[RequestResult] = []
            for unit in units:
                results += self._run_unit(write, unit, savepoint=len(units) > 1)
            if db.in_transaction:
                db.run("COMMIT")
        finally:
            if db.in_transaction:
                db.run("ROLLBACK")
        return results, write

    def _run_unit(
        self, write: WriteContext, unit: RequestGroup[WriteContext], *, savepoint: bool
    ) -> list[RequestResult]:
        """Run requests of a kind. The only unit of a transaction needs no savepoint: its failure is the transaction's."""
        if savepoint:
            write.db.run("SAVEPOINT request")
        first = unit[0]
        try:
            if len(unit) == 1:
                results: list[RequestResult] = [(first.future, first.work(write, first.argument), None)]
            else:
                assert first.batch_work is not None
                values = first.batch_work(write, [request.argument for request in unit])
                results = [(request.future, value, None) for request, value in zip(unit, values, strict=True)]
        except Exception as error:  # of any kind: the other units must run, and the caller must get an answer
            return self._undo_unit(write, unit, error, savepoint=savepoint)
        if savepoint:
            write.db.run("RELEASE request")
        return results

    def _undo_unit(
        self, write: WriteContext, unit: RequestGroup[WriteContext], error: Exception, *, savepoint: bool
    ) -> list[RequestResult]:
        """Undo what a failed unit did. If it is of several requests, run each by itself: only the bad ones fail."""
        if savepoint:
            # SQLite rolls back the whole transaction for some errors (a full disk): no request of the group is done then.
            if not write.db.in_transaction:
                raise error
            write.db.run("ROLLBACK TO request")
            write.db.run("RELEASE request")
        elif write.db.in_transaction:
            write.db.run("ROLLBACK")
        if len(unit) == 1:
            return [(unit[0].future, None, error)]
        if not savepoint:
            write.now = self._begin(write.db)
            write.lowest_token = self._tokens.lowest(write.now)
        return [result for request in unit for result in self._run_unit(write, [request], savepoint=True)]

    def _acknowledge(self, results: list[RequestResult], error: OSError | None) -> None:
        """On the fsync thread. A request that was refused stays refused, whatever the disk reports."""
        assert self.identity is not None
        try:
            self.identity.check()
        except StoreError as lost:
            results = [(future, None, lost) for future, _, _ in results]
        else:
            if error is not None:
                results = [(future, value, refusal or error) for future, value, refusal in results]
        deliver(self._path, results)

    def _checkpoint(self, db: SqliteConnection) -> None:
        """Copy the log into the database when it is long.

        TRUNCATE would wait for readers that still use the log. Here it does not: every writer would wait with it. It has
        done most of its work then, and is tried again when the log has grown by another quarter. A failure (a full disk) is
        not reported: the work of the group is committed already.
        """
        try:
            size = os.stat(self._wal_path).st_size
        except FileNotFoundError:
            return
        if size < CHECKPOINT_BYTES + self._checkpoint_margin_bytes:
            return
        if self.identity is not None and self.identity.is_lost:
            return  # the database is another by now, or belongs to another log
        try:
            busy = db.checkpoint()
        except sqlite3.Error:
            busy = True
        self._checkpoint_margin_bytes = size - CHECKPOINT_BYTES + CHECKPOINT_BYTES // 4 if busy else 0


def _group_by_kind(group: RequestGroup[WriteContext]) -> list[RequestGroup[WriteContext]]:
    """Requests with the same `batch_work` are one unit; each of the others is one by itself."""
    units: list[list[DatabaseRequest[WriteContext]]] = []
    by_kind: dict[Any, list[DatabaseRequest[WriteContext]]] = {}
    for request in group:
        if request.batch_work is None:
            units.append([request])
        elif (unit := by_kind.get(request.batch_work)) is not None:
            unit.append(request)
        else:
            by_kind[request.batch_work] = unit = [request]
            units.append(unit)
    return units
