"""A job's life on SQLite: the asynchronous face of `adding`, `claiming` and `ending`, and the smaller operations.

The contract is in `store.protocol.Jobs`. Rows are made ready and decoded on the caller's thread; the functions that take
a `Write` run on the writer's thread, inside its transaction.
"""

from collections.abc import Sequence

from drumbeat.clock import Clock
from drumbeat.errors import JobExpired, JobNotFound
from drumbeat.ids import InstanceId, JobId, created_us, is_job_id
from drumbeat.model.death import follow_up
from drumbeat.model.job import (
    Added,
    CancelAnswer,
    Claim,
    Ended,
    Exchanged,
    Failure,
    Hold,
    NewJob,
    Outcome,
    Replayed,
    Unique,
    Verdict,
)
from drumbeat.store.outcomes import released
from drumbeat.store.searching import WHOLE
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.adding import Adding, Batch, Keys
from drumbeat.store.sqlite.claiming import Asked, Claiming, Picked
from drumbeat.store.sqlite.connection import NULL, Connection
from drumbeat.store.sqlite.ending import Ending, take_out
from drumbeat.store.sqlite.place import Room
from drumbeat.store.sqlite.reader import Reader
from drumbeat.store.sqlite.rows import EndedRow, as_json
from drumbeat.store.sqlite.shapes import UNREADABLE
from drumbeat.store.sqlite.statements import InspectSql, JobSql
from drumbeat.store.sqlite.writer import Write, Writer

_ANSWERS = {
    "pending": CancelAnswer.CANCELLED,
    "running": CancelAnswer.REQUESTED,
    "succeeded": CancelAnswer.SUCCEEDED,
    "cancelled": CancelAnswer.CANCELLED,
    "dead": CancelAnswer.DEAD,
    None: CancelAnswer.UNKNOWN,
}


class SqliteJobs:
    def __init__(
        self,
        sql: JobSql,
        inspect: InspectSql,
        *,
        writer: Writer,
        reader: Reader,
        ending: Ending,
        clock: Clock,
        room: Room,
    ) -> None:
        self._sql = sql
        self._inspect = inspect
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._room = room
        self._adding = Adding(sql)
        self._claiming = Claiming(sql)
        self._ending = ending

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        if not jobs:
            return []
        self._room.check()
        return await self._writer.write(self._adding.add, Batch(jobs), self._adding.add_all, weight=len(jobs))

    async def exchange(self, instance: InstanceId, outcomes: Sequence[Outcome], claim: Claim | None) -> Exchanged:
        asked = None if claim is None else Asked(instance, claim)
        if asked is None and not outcomes:
            return Exchanged(verdicts=[], jobs=[], now=self._clock.now_us())
        if asked is not None and not outcomes and not asked.claim.expected:
            # Look by a read before going for the lock: most looks find nothing.
            now = self._clock.now_us()
            due, next_due = await self._reader.read(lambda db: self._claiming.look(db, asked, now))
            if not due:
                return Exchanged(verdicts=[], jobs=[], now=now, next_due=next_due)
        verdicts, picked, now, next_due = await self._writer.write(
            self._exchange, (instance, outcomes, asked), durable=bool(outcomes)
        )
        jobs, malformed = rows.claimed(picked)
        return Exchanged(verdicts=verdicts, jobs=jobs, now=now, next_due=next_due, malformed=malformed)

    async def running(self, instance: InstanceId) -> list[Hold]:
        return await self._reader.read(lambda db: rows.holds(db, self._sql.running, {"instance": instance}))

    async def release(self, instance: InstanceId, holds: Sequence[Hold]) -> int:
        if not holds:
            return 0
        outcomes = released((hold.id, hold.token) for hold in holds)
        return await self._writer.write(lambda write, given: self._ending.give_back(write, instance, given), outcomes)

    async def note(self, instance: InstanceId, notes: Sequence[tuple[Hold, str]]) -> None:
        if notes:
            written = [(hold.id, hold.token, progress) for hold, progress in notes]
            await self._writer.write(
                lambda write, given: write.db.run_rows(self._sql.note, 3, given, (instance,)), written
            )

    async def cancel(self, ids: Sequence[JobId]) -> list[CancelAnswer]:
        return await self._writer.write(self._cancel, list(ids)) if ids else []

    async def cancel_keys(self, task: str, keys: Sequence[str]) -> list[CancelAnswer]:
        return await self._writer.write(self._cancel_keys, {"task": task, "keys": as_json(keys)}) if keys else []

    async def run_now(self, ids: Sequence[JobId]) -> int:
        return await self._writer.write(self._run_now, list(ids)) if ids else 0

    async def replay(self, ids: Sequence[JobId]) -> list[Replayed]:
        return await self._writer.write(self._replay, list(ids)) if ids else []

    async def discard(self, ids: Sequence[JobId]) -> int:
        return await self._writer.write(self._discard, as_json(ids)) if ids else 0

    async def ended(self, ids: Sequence[JobId]) -> list[Ended | None]:
        wanted = {"ids": as_json(ids)}

        def look(db: Connection) -> tuple[list[EndedRow | None], int | None]:
            try:
                return rows.ended(db.value(self._sql.ended, wanted)), db.value(self._sql.pruned_before)
            except UNREADABLE:
                return self._ended(db, ids), db.value(self._sql.pruned_before)

        answers, pruned_before = await self._reader.read(look)
        found: list[Ended | None] = []
        for id, row in zip(ids, answers, strict=True):
            if row is None:
                raise nowhere(id, pruned_before)
            found.append(row.record())
        return found

    async def expire_waits(self, prefix: str, before: int, limit: int) -> int:
        parameters = {"prefix": prefix, "before": before, "limit": limit}
        # A look first: there is nearly never anything to do, and a commit would wake every worker.
        if await self._reader.text(self._sql.waited_too_long, parameters) == "[]":
            return 0
        return await self._writer.write(self._expire_waits, parameters)

    async def prune(self, before: int, limit: int) -> int:
        parameters = {"before": before, "limit": limit}
        if await self._reader.text(self._sql.prunable, parameters) == "[]":
            return 0
        return await self._writer.write(self._prune, parameters)

    async def pause(self, queue: str, *, by: str, why: str) -> None:
        def work(write: Write, name: str) -> None:
            write.db.run(self._sql.pause, {"queue": name, "by": by, "why": why, "now": write.now})

        await self._writer.write(work, queue)

    async def resume(self, queue: str) -> bool:
        def work(write: Write, name: str) -> bool:
            resumed = write.db.run(self._sql.resume, {"queue": name}) > 0
            if resumed:
                write.ring(0)
            return resumed

        return await self._writer.write(work, queue)

    # On the reader's thread.

    def _ended(self, db: Connection, ids: Sequence[JobId]) -> list[EndedRow | None]:
        """As the statement `ended`, where a row cannot be made JSON."""
        wanted = {"ids": as_json(ids), "preview": WHOLE}
        statements = (self._inspect.dead_record, self._inspect.live_record, self._inspect.history_record)
        found = {row.id: row for statement in statements for row in rows.jobs(db, statement, wanted)}
        return [None if id not in found else EndedRow.of(found[id]) for id in ids]

    # On the writer's thread.

    def _exchange(
        self, write: Write, given: tuple[InstanceId, Sequence[Outcome], Asked | None]
    ) -> tuple[list[Verdict], Picked, int, int | None]:
        instance, outcomes, asked = given
        verdicts = self._ending.end(write, instance, outcomes) if outcomes else []
        picked, next_due = ("", None) if asked is None else self._claiming.claim(write, asked)
        return verdicts, picked, write.now, next_due

    def _cancel(self, write: Write, ids: Sequence[JobId]) -> list[CancelAnswer]:
        found = rows.states(write.db, self._sql.states, {"ids": as_json(ids)})
        # A state that nobody knows is one of a live job that was written by hand: it never runs, and may go.
        states = {row.id: row.state if row.state in _ANSWERS else "pending" for row in found}
        pending = as_json([id for id, state in states.items() if state == "pending"])
        running = as_json([id for id, state in states.items() if state == "running"])
        if pending != "[]":
            write.db.run(self._sql.cancel_pending, {"ids": pending, "now": write.now})
            take_out(write, self._sql.delete_jobs, {"ids": pending})
        if running != "[]":
            write.db.run(self._sql.request_cancel, {"ids": running})
        return [_ANSWERS[states[id]] for id in ids]

    def _cancel_keys(self, write: Write, wanted: dict[str, str]) -> list[CancelAnswer]:
        found = rows.ids(write.db.value(self._sql.live_of_keys, wanted))
        return self._cancel(write, found) if found else []

    def _run_now(self, write: Write, ids: Sequence[JobId]) -> int:
        changed = write.db.run(self._sql.run_now, {"ids": as_json(ids), "now": write.now})
        if changed:
            write.ring(write.now)
        return changed

    def _replay(self, write: Write, ids: Sequence[JobId]) -> list[Replayed]:
        found = rows.letters(write.db, self._sql.dead_letters, {"ids": as_json(ids)})
        letters = {letter.id: letter for letter in found}
        unique = [letter for letter in found if letter.unique is not Unique.NO]
        keys = Keys(self._sql, write, ((each.task, each.key) for each in unique if each.key is not None))
        answers: list[Replayed] = []
        chosen: list[JobId] = []
        for id in ids:
            letter = letters.pop(id, None)
            if letter is None:
                answers.append(Replayed(id, False))
                continue
            holder = keys.holder(letter.task, letter.key, letter.unique)
            if holder is None:
                keys.take(letter.task, letter.key, letter.unique, id)
                chosen.append(id)
            answers.append(Replayed(id, holder is None, holder))
        if chosen:
            text = as_json(chosen)
            write.db.run(self._sql.keep_last_attempts, {"ids": text})
            write.db.run(self._sql.revive, {"ids": text, "now": write.now})
            write.db.run(self._sql.delete_dead, {"ids": text})
            write.ring(write.now)
        return answers

    def _discard(self, write: Write, ids: str) -> int:
        write.db.run(self._sql.discard, {"ids": ids})
        return write.db.run(self._sql.delete_dead, {"ids": ids})

    def _expire_waits(self, write: Write, parameters: dict[str, object]) -> int:
        ids = write.db.value(self._sql.waited_too_long, parameters)
        found = rows.jobs(write.db, self._inspect.live_record, {"ids": ids, "preview": WHOLE})
        if not found:
            return 0
        dead, after = [], []
        for row in found:
            hours = (write.now - (row.waits_since or write.now)) / 3_600_000_000
            error = Failure(type="WaitExpired", message=f"nobody came in {hours:.1f} h for {row.waits_for}")
            dead.append((row.id, NULL, NULL, write.now, row.failures, row.crashes, as_json(error)))
            if (job := follow_up(row.record(), error)) is not None:
                after.append(job)
        write.db.run_rows(self._sql.die, 7, dead, (write.now,))
        take_out(write, self._sql.delete_jobs, {"ids": ids})
        self._adding.follow(write, after)
        return len(dead)

    def _prune(self, write: Write, parameters: dict[str, int]) -> int:
        seqs = write.db.value(self._sql.prunable, parameters)
        write.db.run(self._sql.prune_attempts, {"seqs": seqs})
        pruned = write.db.run(self._sql.prune, {"seqs": seqs})
        if pruned:
            write.db.run(self._sql.keep_pruned_before, {"before": parameters["before"]})
        return pruned


def nowhere(id: JobId, pruned_before: int | None) -> JobNotFound | JobExpired:
    """Which of the two it is for an id that is in no table."""
    if pruned_before is not None and is_job_id(id) and created_us(id) < pruned_before:
        return JobExpired(id)
    return JobNotFound(id)
