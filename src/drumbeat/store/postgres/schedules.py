"""Rules in time, on PostgreSQL. The contract is in `store.protocol.Schedules`.

What becomes of a fire is decided in `core.overlap`. What the end of a job does to its schedule is a trigger of the
schema: it holds the job and waits for the schedule. So a fire, which holds schedules and needs their jobs, waits for nobody:
what somebody else is at is left out, and tried again when that has passed.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from drumbeat.clock import Clock, jitter
from drumbeat.core.job import OutcomeKind
from drumbeat.core.overlap import (
    FirePlan,
    FireRow,
    ScheduleSnapshot,
    interval_of,
    make_skip_row,
    plan_fire,
    split_into_rounds,
)
from drumbeat.core.schedule import (
    DueSchedules,
    Fire,
    FireRequest,
    FireResult,
    NewSchedule,
    OnceState,
    Overlap,
    Schedule,
    ScheduleState,
    SkippedRange,
    blocked_on_schedule,
)
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.malformed import log_faults, salvage
from drumbeat.store.postgres.connections import PostgresConnection, Session
from drumbeat.store.postgres.rows import to_columns
from drumbeat.store.postgres.statements import PostgresStatements
from drumbeat.store.postgres.wake import PostgresNotifier
from drumbeat.store.records import StoredScheduleRow, repaired_rule

_MAX_TIMESTAMP = 2**63 - 1
_FIRE_RETRY_DELAYS = (0.0, 0.01, 0.02, 0.04, 0.08)
"""Before each try to fire what somebody else was at. Not for long: others are due meanwhile."""
_BACKFILL_RETRY_DELAYS = (*_FIRE_RETRY_DELAYS, *[0.2] * 10)
"""The same for a backfill, behind which a person waits, and which nobody asks for again."""
_CANCELLED = OutcomeKind.CANCELLED.value

IndexedFiring = tuple[int, FireRequest]


class PostgresSchedules:
    def __init__(
        self, sql: PostgresStatements, *, connection: PostgresConnection, notifier: PostgresNotifier, clock: Clock
    ) -> None:
        self._sql = sql.schedules
        self._jobs = sql.jobs
        self._connection = connection
        self._notifier = notifier
        self._clock = clock

    async def put(
        self, schedule: NewSchedule, *, revision: int | None, cursor: int | None, next_at: int | None, by: str
    ) -> bool:
        facts = [*msgspec.to_builtins(schedule).values(), interval_of(schedule), cursor, next_at, by]
        if revision is None:
            return await self._connection.call(lambda session: session.fetchval(self._sql.put_new, *facts)) is not None
        facts.append(revision)
        return await self._connection.call(lambda session: session.fetchval(self._sql.put_changed, *facts)) is not None

    async def declare(self, names: Sequence[str]) -> list[str]:
        if not names:
            return []
        missing = await self._connection.call(lambda session: session.fetch(self._sql.declare, list(names)))
        return [row["name"] for row in missing]

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
        async def work(session: Session) -> bool:
            now = await session.fetchval(self._sql.change, name, revision, state.value, cursor, next_at, by, reason)
            if now is not None and skipped is not None:
                await self._insert_fires([make_skip_row(name, skipped, now)], session)
            return now is not None

        return await self._connection.transact(work)

    async def get(self, name: str) -> Schedule | None:
        found = await self._connection.call(lambda session: session.fetch(self._sql.get, name))
        return _schedule(found[0]) if found else None

    async def list_page(self, *, after: str | None = None, limit: int = 1_000, all: bool = False) -> list[Schedule]:
        found = await self._connection.call(lambda session: session.fetch(self._sql.page, after or "", all, limit))
        return [_schedule(row) for row in found]

    async def get_due(self, limit: int) -> DueSchedules:
        async def look(session: Session) -> DueSchedules:
            # In this order: what becomes due between the two statements is in the first.
            ahead = await session.fetchrow(self._sql.next_due)
            found = await session.fetch(self._sql.due, ahead["now"], limit)
            schedules = [_schedule(row) for row in found]
            return DueSchedules(
                now=ahead["now"], schedules=schedules, next_at=ahead["next_at"], min_interval=ahead["shortest"]
            )

        return await self._connection.call(look)

    async def fire(self, firings: Sequence[FireRequest]) -> list[FireResult]:
        answers: dict[int, FireResult] = {}
        for turn in split_into_rounds(firings):
            left = turn
            for pause in _FIRE_RETRY_DELAYS if all(firing.advances for _, firing in turn) else _BACKFILL_RETRY_DELAYS:
                if pause:
                    await self._clock.sleep(jitter(pause))
                fired, due = await self._connection.transact(partial(self._fire, left))
                answers |= fired
                if due is not None:
                    self._notifier.notify(due)
                left = [placed for placed in left if placed[0] not in fired]
                if not left:
                    break
        # What somebody was at all the while is as it was: whoever looks finds it again.
        return [
            answers.get(place) or FireResult(name=firing.name, applied=False) for place, firing in enumerate(firings)
        ]

    async def advance_stalled(self) -> int:
        # A look first: there is nearly never anything to do.
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
    ) -> dict[str, list[Fire]]:
        last = _MAX_TIMESTAMP if before is None else before
        found = await self._connection.call(lambda session: session.fetch(self._sql.fires, list(names), last, limit))
        fires: dict[str, list[Fire]] = {name: [] for name in names}
        for row in found:
            values, faults = salvage(FireRow, tuple(row))
            if faults:
                log_faults("fire", row["schedule"], faults)
            else:
                fires[row["schedule"]].append(FireRow(**values).to_record())
        return fires

    async def prune_fires(self, before: int, limit: int) -> int:
        return len(await self._connection.call(lambda session: session.fetch(self._sql.delete_fires, before, limit)))

    async def claim_once(self, key: str, instance: InstanceId) -> OnceState:
        async def work(session: Session) -> Any:
            await session.execute(self._sql.begin_once, key, instance)
            return await session.fetchrow(self._sql.once_state, key)

        found = await self._connection.transact(work)
        if found["done_at"] is not None:
            return OnceState.DONE
        return OnceState.YOURS if found["instance"] == instance else OnceState.BUSY

    async def complete_once(self, key: str, instance: InstanceId) -> bool:
        return (
            await self._connection.call(lambda session: session.fetchval(self._sql.finish_once, key, instance))
            is not None
        )

    async def _fire(self, turn: Sequence[IndexedFiring], session: Session) -> tuple[dict[int, FireResult], int | None]:
        """What can be done now: answers by place, and the earliest due moment of new jobs."""
        now, standings, missing = await self._load_snapshots([firing.name for _, firing in turn], session)
        mine = [placed for placed in turn if placed[1].name in standings or placed[1].name in missing]
        recorded = await self._load_recorded_fires([firing for _, firing in mine], session)
        plans = [plan_fire(standings.get(firing.name), firing, recorded, now) for _, firing in mine]
        due = await self._apply_plans(plans, session)
        return {place: plan.result for (place, _), plan in zip(mine, plans, strict=True)}, due

    async def _load_snapshots(
        self, names: list[str], session: Session
    ) -> tuple[int, dict[str, ScheduleSnapshot], set[str]]:
        """Now, how those schedules stand that we have locked, and which names are nobody's."""
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
        standings: dict[str, ScheduleSnapshot] = {}
        for row in locked:
            if row["name"] in busy:
                continue
            try:
                standings[row["name"]] = _snapshot(row, live.get(row["current"]), waiting.get(row["name"], []))
            except ValueError:  # its state or overlap is no word of ours: it is not fired
                missing.add(row["name"])
        return now, standings, missing

    async def _lock_cancellable_jobs(
        self, locked: Sequence[Any], live: dict[JobId, str], session: Session
    ) -> tuple[dict[str, list[JobId]], set[str]]:
        """Lock the jobs that may be cancelled: who waits for each such schedule, and of which schedules not all were to be had.

        `live` is brought up to date: a pending job may have been claimed since.
        """
        cancelling = [row for row in locked if row["overlap"] == Overlap.CANCEL]
        if not cancelling:
            return {}, set()
        lines = {blocked_on_schedule(row["name"]): row["name"] for row in cancelling}
        waiting: dict[str, list[JobId]] = {}
        for row in await session.fetch(self._sql.list_waiting, list(lines)):
            waiting.setdefault(lines[row["blocked_on"]], []).append(row["id"])
        wanted = {
            row["name"]: [*waiting.get(row["name"], []), *([row["current"]] if row["current"] in live else [])]
            for row in cancelling
        }
        ids = [id for each in wanted.values() for id in each]
        if not ids:
            return waiting, set()
        seized = {row["id"]: row["state"] for row in await session.fetch(self._sql.lock_jobs, ids)}
        live.update({id: state for id, state in seized.items() if id in live})
        return waiting, {name for name, each in wanted.items() if any(id not in seized for id in each)}

    async def _load_recorded_fires(self, firings: Sequence[FireRequest], session: Session) -> set[tuple[str, int]]:
        moments = [(firing.name, moment.at) for firing in firings for moment in firing.fires]
        if not moments:
            return set()
        return {tuple(row) for row in await session.fetch(self._sql.find_fired, *to_columns(moments, 2))}

    async def _apply_plans(self, plans: Sequence[FirePlan], session: Session) -> int | None:
        """A few statements for all of them; gives the earliest due moment of new jobs."""
        if cancelled := [(id, _CANCELLED, *[None] * 6) for plan in plans for id in plan.cancel]:
            let_go = [plan.result.name for plan in plans if plan.cancel and not plan.request_cancel]
            await session.execute(self._sql.clear_current, let_go)
            await session.execute(self._jobs.move_to_history, *to_columns(cancelled, 8))
        if stopped := [id for plan in plans for id in plan.request_cancel]:
            await session.execute(self._jobs.request_cancel, stopped)
        jobs = [job for plan in plans for job in plan.jobs]
        if jobs:
            await session.execute(self._sql.enqueue, *to_columns(map(msgspec.structs.astuple, jobs), 5))
        await self._insert_fires([row for plan in plans for row in plan.records], session)
        if moved := [msgspec.structs.astuple(plan.update) for plan in plans if plan.update is not None]:
            await session.execute(self._sql.move_cursor, *to_columns(moved, 5))
        return min((job.run_at for job in jobs if job.blocked_on is None), default=None)

    async def _insert_fires(self, records: Sequence[FireRow], session: Session) -> None:
        if records:
            await session.execute(self._sql.record_fires, *to_columns(map(msgspec.structs.astuple, records), 8))

    async def _advance_schedules(self, names: list[str], session: Session) -> int:
        """Lock first, look then: what was seen before may have been put right meanwhile."""
        held = [row["name"] for row in await session.fetch(self._sql.lock, names)]
        stuck = [row["name"] for row in await session.fetch(self._sql.find_orphaned_waits, held)]
        if stuck:
            # First: a series whose successor goes on does not stand still.
            await session.execute(self._sql.start_next, stuck)
        still = [row["name"] for row in await session.fetch(self._sql.find_stalled, held)]
        if still:
            await session.execute(self._sql.advance_schedule, still)
        return len(stuck) + len(still)


def _snapshot(row: Any, live: str | None, waiting: list[JobId]) -> ScheduleSnapshot:
    return ScheduleSnapshot(
        name=row["name"],
        revision=row["revision"],
        cursor=row["cursor"],
        state=ScheduleState(row["state"]),
        overlap=Overlap(row["overlap"]),
        interval=row["every"],
        current=row["current"],
        live_state=live,
        waiting=waiting,
    )


def _schedule(row: Any) -> Schedule:
    """One that cannot be read says so in its rule, and is never fired."""
    values, faults = salvage(StoredScheduleRow, tuple(row))
    if faults:
        log_faults("schedule", row["name"], faults)
        values |= repaired_rule(faults)
    return StoredScheduleRow(**values).to_record()
