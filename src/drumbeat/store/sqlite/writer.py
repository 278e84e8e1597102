"""The writing thread: group commit, in turn with all other processes, checkpoints included.

request, request, request          each: work(write, argument)
          |
take the turn (flock)              the normal way to wait; more requests may arrive meanwhile and join the group
BEGIN IMMEDIATE; now = clock       the moment is taken inside the turn: waiting makes no job early and no token old
each in a savepoint                one that fails spoils nothing for the others; those of a kind run as one
COMMIT                             visible to all, and safe from the death of any process
checkpoint if the log is long      while we have the turn: nobody writes beside a checkpoint
give back the turn
wake workers
answer all, once it is on disk     `syncer` waits for that, while the next group is under way; if the file is still there
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from drumbeat.clock import Clock
from drumbeat.errors import StoreError
from drumbeat.store.sqlite.connection import SqliteConnection, translate_errors
from drumbeat.store.sqlite.database_thread import DatabaseThread, RequestResult, WriteRequest, run_request
from drumbeat.store.sqlite.file_checks import FileIdentity
from drumbeat.store.sqlite.fsync_thread import FsyncThread
from drumbeat.store.sqlite.wake import SqliteNotifier, WakeHint
from drumbeat.store.sqlite.write_lock import WriteLock

A = TypeVar("A")
R = TypeVar("R")

# At this size of the log whoever has the turn brings it into the database.
CHECKPOINT_BYTES = 16 * 1024 * 1024


class WriteContext:
    """What a request may use: the connection inside the transaction, the moment, and a bell for workers."""

    __slots__ = ("db", "earliest_run_at", "hints", "now")

    def __init__(self, db: SqliteConnection, now: int) -> None:
        self.db = db
        self.now = now
        self.earliest_run_at: int | None = None
        self.hints: list[WakeHint] = []
        """Once this is committed, the owners of these tickets hear that they should look."""

    def notify(self, run_at: int) -> None:
        """Once this is committed, workers hear that a job with this due moment may have come."""
        if self.earliest_run_at is None or run_at < self.earliest_run_at:
            self.earliest_run_at = run_at


class Writer(DatabaseThread):
    def __init__(
        self,
        path: Path,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        upgrade: Callable[[SqliteConnection], None],
        notifier: SqliteNotifier,
    ) -> None:
        super().__init__("writer", path, loop)
        self._clock = clock
        self._upgrade = upgrade
        self._notifier = notifier
        self._db: SqliteConnection | None = None
        self._write_lock: WriteLock | None = None
        self.identity: FileIdentity | None = None
        """That the file is still the one that was opened; None: it is not open yet."""
        self._wal_path = Path(f"{path}-wal")
        self._fsync_thread = FsyncThread(self._wal_path)
        self._checkpoint_backoff_bytes = 0

    async def open(self) -> None:
        """Create or upgrade the database; nothing is done if it was done before."""
        await self.submit(lambda _write, _argument: None)

    async def write(
        self,
        work: Callable[[WriteContext, A], R],
        argument: A,
        batch_work: Callable[[WriteContext, Sequence[A]], Sequence[R]] | None = None,
        *,
        durable: bool = True,
        weight: int = 1,
    ) -> R:
        """Do this in a transaction; on disk when it returns, unless it need not be `durable`.

        What is not durable survives every process, but not a power cut. Claims and heartbeats are such: a power cut ends
        those who made them as well, and it is the disk for which a due job would wait longest.

        `together` does the same for several requests at once. It must do all or raise; then each is done alone. `weight` is
        about how many rows it writes: heavy ones do not share a transaction, so that others have their turn between them.
        """
        answer: R = await self.submit(work, argument, batch_work, durable, weight)
        return answer

    async def notify(self, run_at: int) -> None:
        """Have workers hear that a job with this due moment may have come."""
        await self.submit(lambda write, due: write.notify(due), run_at, None, False)

    def _process_group(self, group: list[WriteRequest]) -> list[RequestResult]:
        db, turn, identity = self._ensure_open()
        with turn:
            self._fill_group(group)
            wanted = [request for request in group if not request.future.done()]
            is_durable = any(request.durable for request in wanted)
            # What is durable is looked at when it is on disk, just before it is acknowledged.
            identity.check(refresh=not is_durable)
            try:
                with translate_errors(self._path):
                    answers, due, calls = self._run_transaction(db, wanted)
            except Exception:
                identity.check()  # then this is the reason, whatever SQLite makes of it
                raise
            self._checkpoint(db)
        if calls:
            self._notifier.send_hints(calls)
        if due is not None:
            self._notifier.notify(due, db)
            self._post_to_loop(lambda: self._notifier.notify_local(due))
        if not is_durable:
            return answers
        self._fsync_thread.after_fsync(lambda error: self._acknowledge(answers, error))
        return []

    def _acknowledge(self, answers: list[RequestResult], error: OSError | None) -> None:
        """On the syncer's thread. What was refused is refused, whatever the disk says."""
        assert self.identity is not None
        try:
            self.identity.check()
        except StoreError as lost:
            answers = [(future, None, lost) for future, _, _ in answers]
        else:
            if error is not None:
                told = self._translate(error)
                answers = [(future, value, refusal or told) for future, value, refusal in answers]
        self._post_to_loop(lambda: self._deliver(answers))

    def _ensure_open(self) -> tuple[SqliteConnection, WriteLock, FileIdentity]:
        if self._write_lock is None:
            self._write_lock = WriteLock(self._path)
        if self._db is None or self.identity is None:
            # In turn as well: two processes may create the same file at the same moment.
            with self._write_lock, translate_errors(self._path):
                db = SqliteConnection(self._path, read_only=False)
                try:
                    self._upgrade(db)
                except BaseException:
                    db.close()
                    raise
                self._db, self.identity = db, FileIdentity(self._path)
        return self._db, self._write_lock, self.identity

    def _run_transaction(
        self, db: SqliteConnection, group: list[WriteRequest]
    ) -> tuple[list[RequestResult], int | None, list[WakeHint]]:
        units = _group_by_kind(group)
        db.run("BEGIN IMMEDIATE")
        try:
            write = WriteContext(db, self._clock.now_us())
            if len(units) == 1:
                answers = self._run_alone(write, units[0])
            else:
                answers = [answer for unit in units for answer in self._run_in_savepoint(write, unit)]
            if db.in_transaction:
                db.run("COMMIT")
        finally:
            if db.in_transaction:
                db.run("ROLLBACK")
        return answers, write.earliest_run_at, write.hints

    def _run_alone(self, write: WriteContext, unit: list[WriteRequest]) -> list[RequestResult]:
        """The only unit of its transaction needs no savepoint: its failure is the transaction's."""
        answers = self._run_unit(write, unit)
        if any(error is not None for _, _, error in answers):
            if write.db.in_transaction:
                write.db.run("ROLLBACK")
            if len(unit) > 1:
                write.db.run("BEGIN IMMEDIATE")
                return [answer for request in unit for answer in self._run_in_savepoint(write, [request])]
        return answers

    def _run_in_savepoint(self, write: WriteContext, unit: list[WriteRequest]) -> list[RequestResult]:
        """A unit among others: whatever it did is undone if it fails."""
        write.db.run("SAVEPOINT request")
        answers = self._run_unit(write, unit)
        if all(error is None for _, _, error in answers):
            write.db.run("RELEASE request")
            return answers
        # SQLite itself undoes the whole transaction for some errors (a full disk): then there is nothing to go back to,
        # and the others must not be told that they were done.
        if not write.db.in_transaction:
            raise next(error for _, _, error in answers if error is not None)
        write.db.run("ROLLBACK TO request")
        write.db.run("RELEASE request")
        if len(unit) > 1:
            return [answer for request in unit for answer in self._run_in_savepoint(write, [request])]
        return answers

    def _run_unit(self, write: WriteContext, unit: list[WriteRequest]) -> list[RequestResult]:
        first = unit[0]
        if len(unit) == 1:
            return [run_request(first, lambda: first.work(write, first.argument), self._path)]
        together = first.batch_work
        assert together is not None
        _, values, error = run_request(first, lambda: together(write, [each.argument for each in unit]), self._path)
        if error is not None:
            return [(each.future, None, error) for each in unit]
        return [(each.future, value, None) for each, value in zip(unit, values, strict=True)]

    def _checkpoint(self, db: SqliteConnection) -> None:
        """Bring the log into the database when it is long. We have the turn, so nobody writes meanwhile.

        TRUNCATE waits for readers that still use the log: not here, where everybody would wait for them. It then has done
        most of its work anyway, and is tried again when the log has grown by another quarter. Nor must its failure (a full
        disk) be told to those whose work is committed already.
        """
        try:
            size = os.stat(self._wal_path).st_size
        except FileNotFoundError:
            return
        if size < CHECKPOINT_BYTES + self._checkpoint_backoff_bytes:
            return
        if self.identity is not None and self.identity.is_lost:
            return  # into a database that is no longer ours, or not with this log
        try:
            busy = db.checkpoint()
        except sqlite3.Error:
            busy = True
        self._checkpoint_backoff_bytes = size - CHECKPOINT_BYTES + CHECKPOINT_BYTES // 4 if busy else 0

    def _idle_timeout(self) -> float | None:
        return self._notifier.flush_delay()

    def _on_idle(self) -> None:
        self._notifier.flush()

    def _close_resources(self) -> None:
        self._notifier.flush()
        self._fsync_thread.close()
        if self._db is not None and self._write_lock is not None:
            # The last connection to a file makes a checkpoint when it is closed: that is done in turn, like any other.
            with self._write_lock:
                if self.identity is not None and self.identity.is_lost:
                    self._db.leak()
                else:
                    self._db.close()
        if self._write_lock is not None:
            self._write_lock.close()


def _group_by_kind(group: list[WriteRequest]) -> list[list[WriteRequest]]:
    """Requests that can be done together become one unit; the others stand alone."""
    units: list[list[WriteRequest]] = []
    together: dict[Any, list[WriteRequest]] = {}
    for request in group:
        if request.batch_work is None:
            units.append([request])
        elif (unit := together.get(request.batch_work)) is not None:
            unit.append(request)
        else:
            together[request.batch_work] = unit = [request]
            units.append(unit)
    return units
