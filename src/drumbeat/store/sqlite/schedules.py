"""Rules in time, on SQLite. The contract is in `store.protocol.Schedules`.

What becomes of a fire is decided in `core.overlap`. What the end of a job does to its schedule is a trigger of the schema.
"""

from collections.abc import Sequence

import msgspec

from drumbeat.clock import Clock
from drumbeat.core.overlap import FirePlan, interval_of, make_skip_row, plan_fire, split_into_rounds
from drumbeat.core.schedule import (
    DueSchedules,
    Fire,
    FireRequest,
    FireResult,
    NewSchedule,
    OnceState,
    Schedule,
    ScheduleState,
    SkippedRange,
)
from drumbeat.ids import InstanceId
from drumbeat.store.records import StoredScheduleRow
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.file_checks import DiskSpaceGuard
from drumbeat.store.sqlite.reader import Reader
from drumbeat.store.sqlite.rows import as_json
from drumbeat.store.sqlite.statements import SqliteJobSql, SqliteScheduleSql
from drumbeat.store.sqlite.writer import WriteContext, Writer

_MAX_TIMESTAMP = 2**63 - 1


class SqliteSchedules:
    def __init__(
        self,
        sql: SqliteScheduleSql,
        jobs: SqliteJobSql,
        *,
        writer: Writer,
        reader: Reader,
        clock: Clock,
        disk_space: DiskSpaceGuard,
    ) -> None:
        self._sql = sql
        self._jobs = jobs
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._disk_space = disk_space

    async def put(
        self, schedule: NewSchedule, *, revision: int | None, cursor: int | None, next_at: int | None, by: str
    ) -> bool:
        facts = msgspec.to_builtins(schedule)
        facts |= {"every": interval_of(schedule), "revision": revision, "cursor": cursor, "next_at": next_at, "by": by}
        statement = self._sql.put_new if revision is None else self._sql.put_changed
        return await self._writer.write(
            lambda write, given: write.db.run(statement, given | {"now": write.now}) > 0, facts
        )

    async def declare(self, names: Sequence[str]) -> list[str]:
        def work(write: WriteContext, names: str) -> list[str]:
            write.db.run(self._sql.declare, {"names": names, "now": write.now})
            return rows.texts(write.db.value(self._sql.unknown_names, {"names": names}))

        return await self._writer.write(work, as_json(names)) if names else []

    async def set_state(
        self,
        name: str,
        *,
        revision: int,
        state: ScheduleState,
        cursor: int | None,
        next_at: int | None,
        by: str,
        reason: str,
        skipped: SkippedRange | None = None,
    ) -> bool:
        facts = {"name": name, "revision": revision, "state": state.value, "cursor": cursor, "next_at": next_at}
        facts |= {"by": by, "reason": reason}

        def work(write: WriteContext, given: dict[str, object]) -> bool:
            if not write.db.run(self._sql.change, given | {"now": write.now}):
                return False
            if skipped is not None:
                write.db.run(self._sql.record_fires, {"records": as_json([make_skip_row(name, skipped, write.now)])})
            return True

        return await self._writer.write(work, facts)

    async def get(self, name: str) -> Schedule | None:
        found = await self._reader.read(lambda db: rows.schedules(db, self._sql.get, {"name": name}))
        return found[0].to_record() if found else None

    async def list_page(self, *, after: str | None = None, limit: int = 1_000, all: bool = False) -> list[Schedule]:
        given = {"after": after or "", "limit": limit, "all": all}
        found = await self._reader.read(lambda db: rows.schedules(db, self._sql.page, given))
        return [row.to_record() for row in found]

    async def get_due(self, limit: int) -> DueSchedules:
        now = self._clock.now_us()

        def look(db: SqliteConnection) -> tuple[list[StoredScheduleRow], int | None, int | None]:
            found = rows.schedules(db, self._sql.due, {"now": now, "limit": limit})
            return found, db.value(self._sql.next_at, {"now": now}), db.value(self._sql.shortest_interval)

        found, next_at, shortest = await self._reader.read(look)
        next_at = next_at if type(next_at) is int else None
        return DueSchedules(
            now=now, schedules=[row.to_record() for row in found], next_at=next_at, min_interval=shortest
        )

    async def fire(self, firings: Sequence[FireRequest]) -> list[FireResult]:
        if not firings:
            return []
        self._disk_space.check()
        return await self._writer.write(self._fire, firings)

    async def advance_stalled(self) -> int:
        # A look first: there is nearly never anything to do, and a commit would wake every worker.
        still, stuck = await self._reader.read(lambda db: self._find_stuck(db, self._clock.now_us()))
        if still == "[]" and stuck == "[]":
            return 0
        return await self._writer.write(lambda write, _: self._advance_stuck(write), None)

    async def retire_undeclared(self, undeclared_since: int) -> list[str]:
        given = {"silent_since": undeclared_since}
        if await self._reader.read_value(self._sql.undeclared, given) == "[]":
            return []

        def work(write: WriteContext, given: dict[str, int]) -> list[str]:
            names: str = write.db.value(self._sql.undeclared, given)
            write.db.run(self._sql.retire, {"names": names, "now": write.now})
            return rows.texts(names)

        return await self._writer.write(work, given)

    async def list_fires(
        self, names: Sequence[str], *, before: int | None = None, limit: int = 100
    ) -> dict[str, list[Fire]]:
        given = {"before": _MAX_TIMESTAMP if before is None else before, "limit": limit}
        found = await self._reader.read(
            lambda db: {name: rows.fires(db, self._sql.fires, {"name": name, **given}) for name in names}
        )
        return {name: [row.to_record() for row in fires] for name, fires in found.items()}

    async def prune_fires(self, before: int, limit: int) -> int:
        given = {"before": before, "limit": limit}
        if await self._reader.read_value(self._sql.prunable_fires, given) == "[]":
            return 0

        def work(write: WriteContext, given: dict[str, int]) -> int:
            return write.db.run(self._sql.delete_fires, {"old": write.db.value(self._sql.prunable_fires, given)})

        return await self._writer.write(work, given)

    async def claim_once(self, key: str, instance: InstanceId) -> OnceState:
        def work(write: WriteContext, given: dict[str, str]) -> tuple[InstanceId | None, int]:
            write.db.run(self._sql.begin_once, given | {"now": write.now})
            return rows.once(write.db.value(self._sql.once_state, given))

        holder, is_done = await self._writer.write(work, {"key": key, "instance": instance})
        if is_done:
            return OnceState.DONE
        return OnceState.YOURS if holder == instance else OnceState.BUSY

    async def complete_once(self, key: str, instance: InstanceId) -> bool:
        given = {"key": key, "instance": instance}
        return await self._writer.write(
            lambda write, given: write.db.run(self._sql.finish_once, given | {"now": write.now}) > 0, given
        )

    # On the writer's thread.

    def _fire(self, write: WriteContext, firings: Sequence[FireRequest]) -> list[FireResult]:
        answers: dict[int, FireResult] = {}
        for turn in split_into_rounds(firings):
            plans = self._plan_fires(write, [firing for _, firing in turn])
            self._apply_plans(write, plans)
            answers |= {place: plan.result for (place, _), plan in zip(turn, plans, strict=True)}
        return [answers[place] for place in range(len(firings))]

    def _plan_fires(self, write: WriteContext, firings: Sequence[FireRequest]) -> list[FirePlan]:
        names = as_json([firing.name for firing in firings])
        found = {row.name: row for row in rows.snapshots(write.db, self._sql.snapshots, {"names": names})}
        fire_times = as_json([(firing.name, moment.at) for firing in firings for moment in firing.fires])
        recorded = set(rows.fire_times(write.db.value(self._sql.recorded_fires, {"moments": fire_times})))
        return [plan_fire(found.get(firing.name), firing, recorded, write.now) for firing in firings]

    def _apply_plans(self, write: WriteContext, plans: Sequence[FirePlan]) -> None:
        """A few statements for all of them: each step of SQLite may wait for the interpreter's lock."""
        cancelled = [id for plan in plans for id in plan.cancel]
        if cancelled:
            names = [plan.result.name for plan in plans if plan.cancel and not plan.request_cancel]
            ids = as_json(cancelled)
            write.db.run(self._sql.clear_current, {"names": as_json(names)})
            write.db.run(self._jobs.cancel_pending, {"ids": ids, "now": write.now})
            write.db.run(self._jobs.delete_jobs, {"ids": ids})
        if stopped := [id for plan in plans for id in plan.request_cancel]:
            write.db.run(self._jobs.request_cancel, {"ids": as_json(stopped)})
        if jobs := [job for plan in plans for job in plan.jobs]:
            write.db.run(self._sql.insert_jobs, {"jobs": as_json(jobs), "now": write.now})
            if due := [job.run_at for job in jobs if job.blocked_on is None]:
                write.notify(min(due))
        if records := [row for plan in plans for row in plan.records]:
            write.db.run(self._sql.record_fires, {"records": as_json(records)})
        if moved := [plan.update for plan in plans if plan.update is not None]:
            write.db.run(self._sql.advance, {"moved": as_json(moved)})

    def _find_stuck(self, db: SqliteConnection, now: int) -> tuple[str, str]:
        return db.value(self._sql.stalled, {"now": now}), db.value(self._sql.orphaned)

    def _advance_stuck(self, write: WriteContext) -> int:
        _, stuck = self._find_stuck(write.db, write.now)
        if stuck != "[]":
            # First: a series whose successor goes on does not stand still.
            write.db.run(self._sql.promote_next, {"names": stuck})
            write.db.run(self._sql.start_next, {"names": stuck})
            write.notify(write.now)
        still, _ = self._find_stuck(write.db, write.now)
        if still != "[]":
            write.db.run(self._sql.advance_stalled, {"names": still, "now": write.now})
        return len(rows.texts(still)) + len(rows.texts(stuck))
