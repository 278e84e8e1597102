"""Rules in time, on SQLite. The contract is in `store.protocol.Schedules`.

What becomes of a fire is decided in `store.scheduled`. What the end of a job does to its schedule is a trigger of the schema.
"""

from collections.abc import Sequence

import msgspec

from drumbeat.clock import Clock
from drumbeat.ids import InstanceId
from drumbeat.model.schedule import Due, Fire, Fired, Firing, NewSchedule, OnceState, Schedule, ScheduleState, Skip
from drumbeat.store.scheduled import Plan, ScheduleRow, decide, every, in_rounds, skip_row
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import Connection
from drumbeat.store.sqlite.place import Room
from drumbeat.store.sqlite.reader import Reader
from drumbeat.store.sqlite.rows import as_json
from drumbeat.store.sqlite.statements import JobSql, ScheduleSql
from drumbeat.store.sqlite.writer import Write, Writer

_LAST = 2**63 - 1


class SqliteSchedules:
    def __init__(
        self, sql: ScheduleSql, jobs: JobSql, *, writer: Writer, reader: Reader, clock: Clock, room: Room
    ) -> None:
        self._sql = sql
        self._jobs = jobs
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._room = room

    async def put(
        self, schedule: NewSchedule, *, revision: int | None, cursor: int | None, next_at: int | None, by: str
    ) -> bool:
        facts = msgspec.to_builtins(schedule)
        facts |= {"every": every(schedule), "revision": revision, "cursor": cursor, "next_at": next_at, "by": by}
        statement = self._sql.put_new if revision is None else self._sql.put_changed
        return await self._writer.write(
            lambda write, given: write.db.run(statement, given | {"now": write.now}) > 0, facts
        )

    async def declare(self, names: Sequence[str]) -> list[str]:
        def work(write: Write, names: str) -> list[str]:
            write.db.run(self._sql.declare, {"names": names, "now": write.now})
            return rows.texts(write.db.value(self._sql.missing, {"names": names}))

        return await self._writer.write(work, as_json(names)) if names else []

    async def change(
        self,
        name: str,
        *,
        revision: int,
        state: ScheduleState,
        cursor: int | None,
        next_at: int | None,
        by: str,
        why: str,
        skipped: Skip | None = None,
    ) -> bool:
        facts = {"name": name, "revision": revision, "state": state.value, "cursor": cursor, "next_at": next_at}
        facts |= {"by": by, "why": why}

        def work(write: Write, given: dict[str, object]) -> bool:
            if not write.db.run(self._sql.change, given | {"now": write.now}):
                return False
            if skipped is not None:
                write.db.run(self._sql.record, {"records": as_json([skip_row(name, skipped, write.now)])})
            return True

        return await self._writer.write(work, facts)

    async def get(self, name: str) -> Schedule | None:
        found = await self._reader.read(lambda db: rows.schedules(db, self._sql.get, {"name": name}))
        return found[0].record() if found else None

    async def page(self, *, after: str | None = None, limit: int = 1_000, all: bool = False) -> list[Schedule]:
        given = {"after": after or "", "limit": limit, "all": all}
        found = await self._reader.read(lambda db: rows.schedules(db, self._sql.page, given))
        return [row.record() for row in found]

    async def due(self, limit: int) -> Due:
        now = self._clock.now_us()

        def look(db: Connection) -> tuple[list[ScheduleRow], int | None, int | None]:
            found = rows.schedules(db, self._sql.due, {"now": now, "limit": limit})
            return found, db.value(self._sql.next_at, {"now": now}), db.value(self._sql.shortest)

        found, next_at, shortest = await self._reader.read(look)
        next_at = next_at if type(next_at) is int else None
        return Due(now=now, schedules=[row.record() for row in found], next_at=next_at, shortest=shortest)

    async def fire(self, firings: Sequence[Firing]) -> list[Fired]:
        if not firings:
            return []
        self._room.check()
        return await self._writer.write(self._fire, firings)

    async def rearm(self) -> int:
        # A look first: there is nearly never anything to do, and a commit would wake every worker.
        still, stuck = await self._reader.read(lambda db: self._at_rest(db, self._clock.now_us()))
        if still == "[]" and stuck == "[]":
            return 0
        return await self._writer.write(lambda write, _: self._rearm(write), None)

    async def retire(self, silent_since: int) -> list[str]:
        given = {"silent_since": silent_since}
        if await self._reader.text(self._sql.silent, given) == "[]":
            return []

        def work(write: Write, given: dict[str, int]) -> list[str]:
            names: str = write.db.value(self._sql.silent, given)
            write.db.run(self._sql.retire, {"names": names, "now": write.now})
            return rows.texts(names)

        return await self._writer.write(work, given)

    async def fires(self, name: str, *, before: int | None = None, limit: int = 100) -> list[Fire]:
        given = {"name": name, "before": _LAST if before is None else before, "limit": limit}
        return [row.record() for row in await self._reader.read(lambda db: rows.fires(db, self._sql.fires, given))]

    async def forget(self, before: int, limit: int) -> int:
        given = {"before": before, "limit": limit}
        if await self._reader.text(self._sql.forgettable, given) == "[]":
            return 0

        def work(write: Write, given: dict[str, int]) -> int:
            return write.db.run(self._sql.forget, {"old": write.db.value(self._sql.forgettable, given)})

        return await self._writer.write(work, given)

    async def once(self, key: str, instance: InstanceId) -> OnceState:
        def work(write: Write, given: dict[str, str]) -> tuple[InstanceId | None, int]:
            write.db.run(self._sql.once, given | {"now": write.now})
            return rows.once(write.db.value(self._sql.once_state, given))

        holder, is_done = await self._writer.write(work, {"key": key, "instance": instance})
        if is_done:
            return OnceState.DONE
        return OnceState.YOURS if holder == instance else OnceState.BUSY

    async def once_done(self, key: str, instance: InstanceId) -> bool:
        given = {"key": key, "instance": instance}
        return await self._writer.write(
            lambda write, given: write.db.run(self._sql.once_done, given | {"now": write.now}) > 0, given
        )

    # On the writer's thread.

    def _fire(self, write: Write, firings: Sequence[Firing]) -> list[Fired]:
        answers: dict[int, Fired] = {}
        for turn in in_rounds(firings):
            plans = self._plans(write, [firing for _, firing in turn])
            self._carry_out(write, plans)
            answers |= {place: plan.fired for (place, _), plan in zip(turn, plans, strict=True)}
        return [answers[place] for place in range(len(firings))]

    def _plans(self, write: Write, firings: Sequence[Firing]) -> list[Plan]:
        names = as_json([firing.name for firing in firings])
        found = {row.name: row for row in rows.standings(write.db, self._sql.standing, {"names": names})}
        moments = as_json([(firing.name, moment.at) for firing in firings for moment in firing.fires])
        recorded = set(rows.moments(write.db.value(self._sql.recorded, {"moments": moments})))
        return [decide(found.get(firing.name), firing, recorded, write.now) for firing in firings]

    def _carry_out(self, write: Write, plans: Sequence[Plan]) -> None:
        """A few statements for all of them: each step of SQLite may wait for the interpreter's lock."""
        cancelled = [id for plan in plans for id in plan.cancel]
        if cancelled:
            names = [plan.fired.name for plan in plans if plan.cancel and not plan.ask_to_stop]
            ids = as_json(cancelled)
            write.db.run(self._sql.let_go, {"names": as_json(names)})
            write.db.run(self._jobs.cancel_pending, {"ids": ids, "now": write.now})
            write.db.run(self._jobs.delete_jobs, {"ids": ids})
        if stopped := [id for plan in plans for id in plan.ask_to_stop]:
            write.db.run(self._jobs.request_cancel, {"ids": as_json(stopped)})
        if jobs := [job for plan in plans for job in plan.jobs]:
            write.db.run(self._sql.enqueue, {"jobs": as_json(jobs), "now": write.now})
            if due := [job.run_at for job in jobs if job.waits_for is None]:
                write.ring(min(due))
        if records := [row for plan in plans for row in plan.records]:
            write.db.run(self._sql.record, {"records": as_json(records)})
        if moved := [plan.moved for plan in plans if plan.moved is not None]:
            write.db.run(self._sql.move, {"moved": as_json(moved)})

    def _at_rest(self, db: Connection, now: int) -> tuple[str, str]:
        return db.value(self._sql.standing_still, {"now": now}), db.value(self._sql.waiting_for_nobody)

    def _rearm(self, write: Write) -> int:
        _, stuck = self._at_rest(write.db, write.now)
        if stuck != "[]":
            # First: a series whose successor goes on does not stand still.
            write.db.run(self._sql.succeed, {"names": stuck})
            write.db.run(self._sql.go_on, {"names": stuck})
            write.ring(write.now)
        still, _ = self._at_rest(write.db, write.now)
        if still != "[]":
            write.db.run(self._sql.rearm, {"names": still, "now": write.now})
        return len(rows.texts(still)) + len(rows.texts(stuck))
