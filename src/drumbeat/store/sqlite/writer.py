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
from drumbeat.store.sqlite.connection import Connection, translated
from drumbeat.store.sqlite.desk import Answer, Desk, Request, answered
from drumbeat.store.sqlite.place import Identity
from drumbeat.store.sqlite.syncer import Syncer
from drumbeat.store.sqlite.turn import Turn
from drumbeat.store.sqlite.wake import Announcer, Call

A = TypeVar("A")
R = TypeVar("R")

# At this size of the log whoever has the turn brings it into the database.
LONG_LOG = 16 * 1024 * 1024


class Write:
    """What a request may use: the connection inside the transaction, the moment, and a bell for workers."""

    __slots__ = ("calls", "db", "due", "now")

    def __init__(self, db: Connection, now: int) -> None:
        self.db = db
        self.now = now
        self.due: int | None = None
        self.calls: list[Call] = []
        """Once this is committed, the owners of these tickets hear that they should look."""

    def ring(self, run_at: int) -> None:
        """Once this is committed, workers hear that a job with this due moment may have come."""
        if self.due is None or run_at < self.due:
            self.due = run_at


class Writer(Desk):
    def __init__(
        self,
        path: Path,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        prepare: Callable[[Connection], None],
        announcer: Announcer,
    ) -> None:
        super().__init__("writer", path, loop)
        self._clock = clock
        self._prepare = prepare
        self._announcer = announcer
        self._db: Connection | None = None
        self._turn: Turn | None = None
        self.identity: Identity | None = None
        """That the file is still the one that was opened; None: it is not open yet."""
        self._log = Path(f"{path}-wal")
        self._syncer = Syncer(self._log)
        self._kept_log = 0

    async def open(self) -> None:
        """Create or upgrade the database; nothing is done if it was done before."""
        await self.ask(lambda _write, _argument: None)

    async def write(
        self,
        work: Callable[[Write, A], R],
        argument: A,
        together: Callable[[Write, Sequence[A]], Sequence[R]] | None = None,
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
        answer: R = await self.ask(work, argument, together, durable, weight)
        return answer

    async def ring(self, run_at: int) -> None:
        """Have workers hear that a job with this due moment may have come."""
        await self.ask(lambda write, due: write.ring(due), run_at, None, False)

    def _perform(self, group: list[Request]) -> list[Answer]:
        db, turn, identity = self._opened()
        with turn:
            self._drain(group)
            wanted = [request for request in group if not request.future.done()]
            is_durable = any(request.durable for request in wanted)
            # What is durable is looked at when it is on disk, just before it is acknowledged.
            identity.check(anew=not is_durable)
            try:
                with translated(self._path):
                    answers, due, calls = self._transaction(db, wanted)
            except Exception:
                identity.check()  # then this is the reason, whatever SQLite makes of it
                raise
            self._checkpoint(db)
        if calls:
            self._announcer.call(calls)
        if due is not None:
            self._announcer.tell(due, db)
            self._tell_loop(lambda: self._announcer.tell_here(due))
        if not is_durable:
            return answers
        self._syncer.on_disk(lambda error: self._synced(answers, error))
        return []

    def _synced(self, answers: list[Answer], error: OSError | None) -> None:
        """On the syncer's thread. What was refused is refused, whatever the disk says."""
        assert self.identity is not None
        try:
            self.identity.check()
        except StoreError as lost:
            answers = [(future, None, lost) for future, _, _ in answers]
        else:
            if error is not None:
                told = self._told(error)
                answers = [(future, value, refusal or told) for future, value, refusal in answers]
        self._tell_loop(lambda: self._deliver(answers))

    def _opened(self) -> tuple[Connection, Turn, Identity]:
        if self._turn is None:
            self._turn = Turn(self._path)
        if self._db is None or self.identity is None:
            # In turn as well: two processes may create the same file at the same moment.
            with self._turn, translated(self._path):
                db = Connection(self._path, read_only=False)
                try:
                    self._prepare(db)
                except BaseException:
                    db.close()
                    raise
                self._db, self.identity = db, Identity(self._path)
        return self._db, self._turn, self.identity

    def _transaction(self, db: Connection, group: list[Request]) -> tuple[list[Answer], int | None, list[Call]]:
        units = _units(group)
        db.run("BEGIN IMMEDIATE")
        try:
            write = Write(db, self._clock.now_us())
            if len(units) == 1:
                answers = self._alone(write, units[0])
            else:
                answers = [answer for unit in units for answer in self._guarded(write, unit)]
            if db.in_transaction:
                db.run("COMMIT")
        finally:
            if db.in_transaction:
                db.run("ROLLBACK")
        return answers, write.due, write.calls

    def _alone(self, write: Write, unit: list[Request]) -> list[Answer]:
        """The only unit of its transaction needs no savepoint: its failure is the transaction's."""
        answers = self._run(write, unit)
        if any(error is not None for _, _, error in answers):
            if write.db.in_transaction:
                write.db.run("ROLLBACK")
            if len(unit) > 1:
                write.db.run("BEGIN IMMEDIATE")
                return [answer for request in unit for answer in self._guarded(write, [request])]
        return answers

    def _guarded(self, write: Write, unit: list[Request]) -> list[Answer]:
        """A unit among others: whatever it did is undone if it fails."""
        write.db.run("SAVEPOINT request")
        answers = self._run(write, unit)
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
            return [answer for request in unit for answer in self._guarded(write, [request])]
        return answers

    def _run(self, write: Write, unit: list[Request]) -> list[Answer]:
        first = unit[0]
        if len(unit) == 1:
            return [answered(first, lambda: first.work(write, first.argument), self._path)]
        together = first.together
        assert together is not None
        _, values, error = answered(first, lambda: together(write, [each.argument for each in unit]), self._path)
        if error is not None:
            return [(each.future, None, error) for each in unit]
        return [(each.future, value, None) for each, value in zip(unit, values, strict=True)]

    def _checkpoint(self, db: Connection) -> None:
        """Bring the log into the database when it is long. We have the turn, so nobody writes meanwhile.

        TRUNCATE waits for readers that still use the log: not here, where everybody would wait for them. It then has done
        most of its work anyway, and is tried again when the log has grown by another quarter. Nor must its failure (a full
        disk) be told to those whose work is committed already.
        """
        try:
            size = os.stat(self._log).st_size
        except FileNotFoundError:
            return
        if size < LONG_LOG + self._kept_log:
            return
        if self.identity is not None and self.identity.is_lost:
            return  # into a database that is no longer ours, or not with this log
        try:
            busy = db.checkpoint()
        except sqlite3.Error:
            busy = True
        self._kept_log = size - LONG_LOG + LONG_LOG // 4 if busy else 0

    def _pause(self) -> float | None:
        return self._announcer.pause()

    def _idle(self) -> None:
        self._announcer.flush()

    def _shut(self) -> None:
        self._announcer.flush()
        self._syncer.close()
        if self._db is not None and self._turn is not None:
            # The last connection to a file makes a checkpoint when it is closed: that is done in turn, like any other.
            with self._turn:
                if self.identity is not None and self.identity.is_lost:
                    self._db.abandon()
                else:
                    self._db.close()
        if self._turn is not None:
            self._turn.close()


def _units(group: list[Request]) -> list[list[Request]]:
    """Requests that can be done together become one unit; the others stand alone."""
    units: list[list[Request]] = []
    together: dict[Any, list[Request]] = {}
    for request in group:
        if request.together is None:
            units.append([request])
        elif (unit := together.get(request.together)) is not None:
            unit.append(request)
        else:
            together[request.together] = unit = [request]
            units.append(unit)
    return units
