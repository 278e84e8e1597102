"""Schedules on PostgreSQL. The contract is in `store.protocol.Schedules`.

`core.overlap` decides what a fire does. A trigger of the schema does what the end of a job does to its schedule: it holds the
lock of the job and waits for that of the schedule. So a fire, which holds schedules and needs their jobs, must not wait: it
skips locked rows and tries them again later.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from drumbeat.clock import jitter
from drumbeat.core import overlap
from drumbeat.core import schedule as model
from drumbeat.core.job import OutcomeKind
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.postgres.connections import Session
from drumbeat.store.postgres.parts import PostgresParts
from drumbeat.store.postgres.rows import to_columns
from drumbeat.store.records import FIRES, SCHEDULES

_MAX_TIMESTAMP = 2**63 - 1
_FIRE_RETRY_DELAYS = (0.0, 0.01, 0.02, 0.04, 0.08)
"""Delays before each attempt to fire what was locked. Short, since other schedules become due meanwhile."""
_BACKFILL_RETRY_DELAYS = (*_FIRE_RETRY_DELAYS, *[0.2] * 10)
"""The same for a backfill, for which a person waits and which is not repeated."""
_CANCELLED = OutcomeKind.CANCELLED.value

IndexedFiring = tuple[int, model.FireRequest]


class PostgresSchedules:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql.schedules
        self._jobs = parts.sql.jobs
        self._connection = parts.connection
        self._notifier = parts.notifier
        self._advancer = parts.advancer
        self._clock = parts.clock

    async def put(
        self, schedule: model.NewSchedule, *, revision: int | None, cursor: int | None, next_at: int | None, by: str
    ) -> bool:
        facts = [*msgspec.to_builtins(schedule).values(), overlap.interval_of(schedule), cursor, next_at, by]
        statement = self._sql.put_new
        if revision is not None:
            statement = self._sql.put_changed
            facts.append(revision)
        return await self._connection.call(lambda session: session.fetchval(statement, *facts)) is not None

    async def declare(self, names: Sequence[str]) -> list[str]:
        if not names:
            return []
        missing = await self._connection.call(lambda session: session.fetch(self._sql.declare, list(names)))
        return [row["name"] for row in missing]

    async def set_state(self, change: model.ScheduleChange) -> bool:
        *values, _ = msgspec.to_builtins(change).values()

        async def work(session: Session) -> bool:
            now = await session.fetchval(self._sql.change, *values)
            if now is not None and change.skipped is not None:
                await self._insert_fires([overlap.make_skip(change.name, change.skipped, now)], session)
            return now is not None

        return await self._connection.transact(work)

    async def get(self, name: str) -> model.Schedule | None:
        found = SCHEDULES.read_rows(await self._connection.call(lambda session: session.fetch(self._sql.get, name)))
        return found[0].to_record() if found else None

    async def list_page(
        self, *, after: str | None = None, limit: int = 1_000, all: bool = False
    ) -> list[model.Schedule]:
        found = await self._connection.call(lambda session: session.fetch(self._sql.page, after or "", all, limit))
        return [row.to_record() for row in SCHEDULES.read_rows(found)]

    async def get_due(self, limit: int) -> model.DueSchedules:
        async def look(session: Session) -> model.DueSchedules:
            # In this order: what becomes due between the two statements is in the first.
            ahead = await session.fetchrow(self._sql.next_due)
            found = await session.fetch(self._sql.due, ahead["now"], limit)
            schedules = [row.to_record() for row in SCHEDULES.read_rows(found)]
            return model.DueSchedules(
                now=ahead["now"], schedules=schedules, next_at=ahead["next_at"], min_interval=ahead["shortest"]
            )

        return await self._connection.call(look)

    async def fire(self, firings: Sequence[model.FireRequest]) -> list[model.FireResult]:
        answers: dict[int, model.FireResult] = {}
        for requests in overlap.split_into_rounds(firings):
            left = requests
            advances = all(request.advances for _, request in requests)
            for delay in _FIRE_RETRY_DELAYS if advances else _BACKFILL_RETRY_DELAYS:
                if delay:
                    await self._clock.sleep(jitter(delay))
                fired, due, released = await self._connection.transact(partial(self._fire, left))
                answers |= fired
                self._notifier.notify(due)
                await self._advancer.follow(released)
                left = [each for each in left if each[0] not in fired]
                if not left:
                    break
        # What was locked throughout is unchanged, and still due.
        return [
            answers.get(position) or model.FireResult(name=request.name, applied=False)
            for position, request in enumerate(firings)
        ]

    async def advance_stalled(self) -> int:
        # A read first: there is nearly never anything to do.
        async def look(session: Session) -> list[str]:
            found = await session.fetch(self._sql.find_stalled, None)
            found += await session.fetch(self._sql.find_orphaned_waits, None)
            return [row["name"] for row in found]

        names = await self._connection.call(look)
        return await self._connection.transact(partial(self._advance_schedules, names)) if names else 0

    async def retire_undeclared(self, undeclared_since: int) -> list[str]:
        found = await self._connection.call(lambda session: session.fetch(self._sql.retire, undeclared_since))
        return [row["name"] for row in found]

    async def list_fires(
        self, names: Sequence[str], *, before: int | None = None, limit: int = 100
    ) -> dict[str, list[model.Fire]]:
        last = _MAX_TIMESTAMP if before is None else before
        found = await self._connection.call(lambda session: session.fetch(self._sql.fires, list(names), last, limit))
        fires: dict[str, list[model.Fire]] = {name: [] for name in names}
        for row in FIRES.read_rows(found):
            fires[row.schedule].append(row)
        return fires

    async def prune_fires(self, before: int, limit: int) -> int:
        return len(await self._connection.call(lambda session: session.fetch(self._sql.delete_fires, before, limit)))

    async def claim_once(self, key: str, instance: InstanceId) -> model.OnceState:
        async def work(session: Session) -> Any:
            await session.execute(self._sql.begin_once, key, instance)
            return await session.fetchrow(self._sql.once_state, key)

        found = await self._connection.transact(work)
        return model.once_state(found["instance"], instance, is_done=found["done_at"] is not None)

    async def complete_once(self, key: str, instance: InstanceId) -> bool:
        return (
            await self._connection.call(lambda session: session.fetchval(self._sql.finish_once, key, instance))
            is not None
        )

    async def _fire(
        self, requests: Sequence[IndexedFiring], session: Session
    ) -> tuple[dict[int, model.FireResult], int | None, int]:
        """Fire what can be locked now; return the results by position, the earliest run_at of new jobs, and how many parents
        were cancelled."""
        now, snapshots, missing = await self._load_snapshots([request.name for _, request in requests], session)
        locked = [each for each in requests if each[1].name in snapshots or each[1].name in missing]
        recorded = await self._load_recorded_fires([request for _, request in locked], session)
        plans = [overlap.plan_fire(snapshots.get(request.name), request, recorded, now) for _, request in locked]
        due, released = await self._apply_plans(plans, session)
        return {position: plan.result for (position, _), plan in zip(locked, plans, strict=True)}, due, released

    async def _load_snapshots(
        self, names: list[str], session: Session
    ) -> tuple[int, dict[str, overlap.ScheduleSnapshot], set[str]]:
        """The time, the snapshots of those schedules that could be locked, and the names that do not exist."""
        locked = await session.fetch(self._sql.lock, names)
        held = {row["name"] for row in locked}
        missing = {name for name in names if name not in held}
        if missing:
            missing -= {row["name"] for row in await session.fetch(self._sql.existing_names, list(missing))}
        now = locked[0]["now"] if locked else 0
        currents = [row["current"] for row in locked if row["current"] is not None]
        live = (
            {row["id"]: row["state"] for row in await session.fetch(self._sql.live_states, currents)}
            if currents
            else {}
        )
        waiting, busy = await self._lock_cancellable_jobs(locked, live, session)
        snapshots: dict[str, overlap.ScheduleSnapshot] = {}
        for row in locked:
            if row["name"] in busy:
                continue
            facts = (*list(row)[:7], live.get(row["current"]), waiting.get(row["name"], []))
            try:
                snapshots[row["name"]] = msgspec.convert(facts, overlap.ScheduleSnapshot)
            except msgspec.ValidationError:  # an unknown state or overlap, written by hand: it is not fired
                missing.add(row["name"])
        return now, snapshots, missing

    async def _lock_cancellable_jobs(
        self, locked: Sequence[Any], live: dict[JobId, str], session: Session
    ) -> tuple[dict[str, list[JobId]], set[str]]:
        """Lock the jobs that may be cancelled; return waiting jobs by schedule, and schedules some of whose jobs are locked.

        Updates `live`: a pending job may have been claimed since.
        """
        cancelling = [row for row in locked if row["overlap"] == model.Overlap.CANCEL]
        if not cancelling:
            return {}, set()
        names = {model.blocked_on_schedule(row["name"]): row["name"] for row in cancelling}
        waiting: dict[str, list[JobId]] = {}
        for row in await session.fetch(self._sql.list_waiting, list(names)):
            waiting.setdefault(names[row["blocked_on"]], []).append(row["id"])
        wanted = {
            row["name"]: [*waiting.get(row["name"], []), *([row["current"]] if row["current"] in live else [])]
            for row in cancelling
        }
        ids = [id for each in wanted.values() for id in each]
        if not ids:
            return waiting, set()
        states = {row["id"]: row["state"] for row in await session.fetch(self._sql.lock_jobs, ids)}
        live.update({id: state for id, state in states.items() if id in live})
        return waiting, {name for name, each in wanted.items() if any(id not in states for id in each)}

    async def _load_recorded_fires(
        self, firings: Sequence[model.FireRequest], session: Session
    ) -> set[tuple[str, int]]:
        fire_times = [(request.name, fire.at) for request in firings for fire in request.fires]
        if not fire_times:
            return set()
        return {tuple(row) for row in await session.fetch(self._sql.find_fired, *to_columns(fire_times))}

    async def _apply_plans(self, plans: Sequence[overlap.FirePlan], session: Session) -> tuple[int | None, int]:
        """Write plans in a few statements for all of them; return the earliest run_at of new jobs, and how many parents were
        cancelled."""
        batch, released = overlap.FireBatch(plans), 0
        if batch.cancel:
            cancelled = [(id, _CANCELLED, *[None] * 6) for id in batch.cancel]
            await session.execute(self._sql.clear_current, batch.cleared)
            released = await session.fetchval(self._jobs.move_to_history, *to_columns(cancelled))
        if batch.request_cancel:
            await session.execute(self._jobs.request_cancel, batch.request_cancel)
        if batch.jobs:
            await session.execute(self._sql.enqueue, *to_columns(map(msgspec.structs.astuple, batch.jobs)))
        await self._insert_fires(batch.records, session)
        if batch.updates:
            await session.execute(self._sql.move_cursor, *to_columns(map(msgspec.structs.astuple, batch.updates)))
        return batch.earliest_run_at, released

    async def _insert_fires(self, records: Sequence[model.Fire], session: Session) -> None:
        if records:
            await session.execute(self._sql.record_fires, *to_columns(map(msgspec.structs.astuple, records)))

    async def _advance_schedules(self, names: list[str], session: Session) -> int:
        """Lock first, then check again: what was found before may have been advanced meanwhile."""
        held = [row["name"] for row in await session.fetch(self._sql.lock, names)]
        stuck = [row["name"] for row in await session.fetch(self._sql.find_orphaned_waits, held)]
        if stuck:
            # First: a schedule whose successor starts is not stalled.
            await session.execute(self._sql.start_next, stuck)
        still = [row["name"] for row in await session.fetch(self._sql.find_stalled, held)]
        if still:
            await session.execute(self._sql.advance_schedule, still)
        return len(stuck) + len(still)
