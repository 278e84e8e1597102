"""Schedules on SQLite. The contract is in `store.protocol.Schedules`.

`core.overlap` decides what a fire does. What the end of a job does to its schedule is a trigger of the schema, and the
statement `advance_intervals` of `completion.py`.
"""

from collections.abc import Sequence

import msgspec

from drumbeat.core import overlap
from drumbeat.core import schedule as model
from drumbeat.ids import InstanceId
from drumbeat.store.records import RecordRow, as_json
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.parts import SqliteOperations
from drumbeat.store.sqlite.writer import WriteContext

_MAX_TIMESTAMP = 2**63 - 1


class SqliteSchedules(SqliteOperations):
    async def put(
        self, schedule: model.NewSchedule, *, revision: int | None, cursor: int | None, next_at: int | None, by: str
    ) -> bool:
        facts = msgspec.to_builtins(schedule)
        facts |= {
            "every": overlap.interval_of(schedule),
            "revision": revision,
            "cursor": cursor,
            "next_at": next_at,
            "by": by,
        }
        statement = self._sql.put_new if revision is None else self._sql.put_changed
        return await self._writer.write(
            lambda write, given: write.db.run(statement, given | {"now": write.now}) > 0, facts
        )

    async def declare(self, names: Sequence[str]) -> list[str]:
        def work(write: WriteContext, names: str) -> list[str]:
            write.db.run(self._sql.declare, {"names": names, "now": write.now})
            return rows.texts(write.db.value(self._sql.unknown_names, {"names": names}))

        return await self._writer.write(work, as_json(names)) if names else []

    async def set_state(self, change: model.ScheduleChange) -> bool:
        facts = msgspec.structs.asdict(change) | {"state": change.state.value}
        skipped = facts.pop("skipped")

        def work(write: WriteContext, given: dict[str, object]) -> bool:
            if not write.db.run(self._sql.change, given | {"now": write.now}):
                return False
            if skipped is not None:
                write.db.run(
                    self._sql.record_fires, {"records": as_json([overlap.make_skip(change.name, skipped, write.now)])}
                )
            return True

        return await self._writer.write(work, facts)

    async def get(self, name: str) -> model.Schedule | None:
        found = await self._worker_reader.read(lambda db: rows.schedules(db, self._sql.get, {"name": name}))
        return found[0].to_record() if found else None

    async def list_page(
        self, *, after: str | None = None, limit: int = 1_000, all: bool = False
    ) -> list[model.Schedule]:
        given = {"after": after or "", "limit": limit, "all": all}
        found = await self._worker_reader.read(lambda db: rows.schedules(db, self._sql.page, given))
        return [row.to_record() for row in found]

    async def get_due(self, limit: int) -> model.DueSchedules:
        now = self._clock.now_us()

        def look(db: SqliteConnection) -> tuple[list[RecordRow[model.Schedule]], int | None, int | None]:
            found = rows.schedules(db, self._sql.due, {"now": now, "limit": limit})
            return found, db.value(self._sql.next_at, {"now": now}), db.value(self._sql.shortest_interval)

        found, next_at, shortest = await self._worker_reader.read(look)
        next_at = next_at if type(next_at) is int else None
        return model.DueSchedules(
            now=now, schedules=[row.to_record() for row in found], next_at=next_at, min_interval=shortest
        )

    async def fire(self, firings: Sequence[model.FireRequest]) -> list[model.FireResult]:
        if not firings:
            return []
        self._disk_space.check()
        return await self._write_and_advance(self._fire, firings)

    async def advance_stalled(self) -> int:
        # A read first: there is nearly never anything to do, and a commit would wake every worker.
        still, stuck = await self._worker_reader.read(lambda db: self._find_stuck(db, self._clock.now_us()))
        if still == "[]" and stuck == "[]":
            return 0
        return await self._writer.write(lambda write, _: self._advance_stuck(write), None)

    async def retire_undeclared(self, undeclared_since: int) -> list[str]:
        given = {"silent_since": undeclared_since}
        if not await self._worker_reader.read_value(self._sql.has_undeclared, given):
            return []

        def work(write: WriteContext, given: dict[str, int]) -> list[str]:
            return [name for (name,) in write.db.rows(self._sql.retire, given | {"now": write.now})]

        return await self._writer.write(work, given)

    async def list_fires(
        self, names: Sequence[str], *, before: int | None = None, limit: int = 100
    ) -> dict[str, list[model.Fire]]:
        given = {"before": _MAX_TIMESTAMP if before is None else before, "limit": limit}
        return await self._worker_reader.read(
            lambda db: {name: rows.fires(db, self._sql.fires, {"name": name, **given}) for name in names}
        )

    async def prune_fires(self, before: int, limit: int) -> int:
        given = {"before": before, "limit": limit}
        if not await self._worker_reader.read_value(self._sql.has_old_fires, given):
            return 0
        return await self._writer.write(lambda write, given: write.db.run(self._sql.delete_fires, given), given)

    async def claim_once(self, key: str, instance: InstanceId) -> model.OnceState:
        def work(write: WriteContext, given: dict[str, str]) -> tuple[InstanceId | None, int]:
            write.db.run(self._sql.begin_once, given | {"now": write.now})
            return rows.once(write.db.value(self._sql.once_state, given))

        holder, is_done = await self._writer.write(work, {"key": key, "instance": instance})
        return model.once_state(holder, instance, is_done=bool(is_done))

    async def complete_once(self, key: str, instance: InstanceId) -> bool:
        given = {"key": key, "instance": instance}
        return await self._writer.write(
            lambda write, given: write.db.run(self._sql.finish_once, given | {"now": write.now}) > 0, given
        )

    # On the writer's thread.

    def _fire(self, write: WriteContext, firings: Sequence[model.FireRequest]) -> list[model.FireResult]:
        answers: dict[int, model.FireResult] = {}
        for requests in overlap.split_into_rounds(firings):
            plans = self._plan_fires(write, [request for _, request in requests])
            self._apply_plans(write, plans)
            answers |= {position: plan.result for (position, _), plan in zip(requests, plans, strict=True)}
        return [answers[position] for position in range(len(firings))]

    def _plan_fires(self, write: WriteContext, firings: Sequence[model.FireRequest]) -> list[overlap.FirePlan]:
        names = as_json([request.name for request in firings])
        found = {row.name: row for row in rows.snapshots(write.db, self._sql.snapshots, {"names": names})}
        fire_times = as_json([(request.name, fire.at) for request in firings for fire in request.fires])
        recorded = set(rows.fire_times(write.db.value(self._sql.recorded_fires, {"fire_times": fire_times})))
        return [overlap.plan_fire(found.get(request.name), request, recorded, write.now) for request in firings]

    def _apply_plans(self, write: WriteContext, plans: Sequence[overlap.FirePlan]) -> None:
        """Write plans in a few statements for all of them: each step of SQLite may wait for the interpreter's lock."""
        batch = overlap.FireBatch(plans)
        if batch.cancel:
            ids = as_json(batch.cancel)
            write.db.run(self._sql.clear_current, {"names": as_json(batch.cleared)})
            write.db.run(self._parts.sql.jobs.end_pending, {"ids": ids, "now": write.now, "state": "cancelled"})
            write.db.run(self._parts.sql.jobs.delete_jobs, {"ids": ids})
            write.has_releases = True
        if batch.request_cancel:
            write.db.run(self._parts.sql.jobs.request_cancel, {"ids": as_json(batch.request_cancel)})
        if batch.jobs:
            write.db.run(self._sql.insert_jobs, {"jobs": as_json(batch.jobs), "now": write.now})
            self._parts.completion.inserter.enter_lanes(write, [each.job for each in batch.jobs])
        if batch.earliest_run_at is not None:
            write.notify(batch.earliest_run_at)
        if batch.records:
            write.db.run(self._sql.record_fires, {"records": as_json(batch.records)})
        if batch.updates:
            write.db.run(self._sql.advance, {"advanced": as_json(batch.updates)})

    def _find_stuck(self, db: SqliteConnection, now: int) -> tuple[str, str]:
        return db.value(self._sql.stalled, {"now": now}), db.value(self._sql.orphaned)

    def _advance_stuck(self, write: WriteContext) -> int:
        _, stuck = self._find_stuck(write.db, write.now)
        if stuck != "[]":
            # First: a schedule whose successor starts is not stalled.
            write.db.run(self._sql.promote_next, {"names": stuck})
            write.db.run(self._sql.start_next, {"names": stuck})
            write.notify(write.now)
        still, _ = self._find_stuck(write.db, write.now)
        if still != "[]":
            write.db.run(self._sql.advance_stalled, {"names": still, "now": write.now})
        return len(rows.texts(still)) + len(rows.texts(stuck))
