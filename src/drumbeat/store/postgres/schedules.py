"""Rules in time, on PostgreSQL. The contract is in `store.protocol.Schedules`.

What becomes of a fire is decided in `store.scheduled`. What the end of a job does to its schedule is a trigger of the
schema: it holds the job and waits for the schedule. So a fire, which holds schedules and needs their jobs, waits for nobody:
what somebody else is at is left out, and tried again when that has passed.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from drumbeat.clock import Clock, jittered
from drumbeat.ids import InstanceId, JobId
from drumbeat.model.job import OutcomeKind
from drumbeat.model.schedule import (
    Due,
    Fire,
    Fired,
    Firing,
    NewSchedule,
    OnceState,
    Overlap,
    Schedule,
    ScheduleState,
    Skip,
    waits_for_schedule,
)
from drumbeat.store.malformed import salvage, tell
from drumbeat.store.postgres.connections import Link, Session
from drumbeat.store.postgres.rows import columns
from drumbeat.store.postgres.statements import Statements
from drumbeat.store.postgres.wake import Announcer
from drumbeat.store.scheduled import (
    FireRow,
    Plan,
    ScheduleRow,
    Standing,
    decide,
    every,
    in_rounds,
    mend_schedule,
    skip_row,
)

_LAST = 2**63 - 1
_PAUSES_S = (0.0, 0.01, 0.02, 0.04, 0.08)
"""Before each try to fire what somebody else was at. Not for long: others are due meanwhile."""
_PATIENT_S = (*_PAUSES_S, *[0.2] * 10)
"""The same for a backfill, behind which a person waits, and which nobody asks for again."""
_CANCELLED = OutcomeKind.CANCELLED.value

Placed = tuple[int, Firing]


class PostgresSchedules:
    def __init__(self, sql: Statements, *, link: Link, announcer: Announcer, clock: Clock) -> None:
        self._sql = sql.schedules
        self._jobs = sql.jobs
        self._link = link
        self._announcer = announcer
        self._clock = clock

    async def put(
        self, schedule: NewSchedule, *, revision: int | None, cursor: int | None, next_at: int | None, by: str
    ) -> bool:
        facts = [*msgspec.to_builtins(schedule).values(), every(schedule), cursor, next_at, by]
        if revision is None:
            return await self._link.call(lambda session: session.fetchval(self._sql.put_new, *facts)) is not None
        facts.append(revision)
        return await self._link.call(lambda session: session.fetchval(self._sql.put_changed, *facts)) is not None

    async def declare(self, names: Sequence[str]) -> list[str]:
        if not names:
            return []
        missing = await self._link.call(lambda session: session.fetch(self._sql.declare, list(names)))
        return [row["name"] for row in missing]

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
        async def work(session: Session) -> bool:
            now = await session.fetchval(self._sql.change, name, revision, state.value, cursor, next_at, by, why)
            if now is not None and skipped is not None:
                await self._record([skip_row(name, skipped, now)], session)
            return now is not None

        return await self._link.transact(work)

    async def get(self, name: str) -> Schedule | None:
        found = await self._link.call(lambda session: session.fetch(self._sql.get, name))
        return _schedule(found[0]) if found else None

    async def page(self, *, after: str | None = None, limit: int = 1_000, all: bool = False) -> list[Schedule]:
        found = await self._link.call(lambda session: session.fetch(self._sql.page, after or "", all, limit))
        return [_schedule(row) for row in found]

    async def due(self, limit: int) -> Due:
        async def look(session: Session) -> Due:
            # In this order: what becomes due between the two statements is in the first.
            ahead = await session.fetchrow(self._sql.ahead)
            found = await session.fetch(self._sql.due, ahead["now"], limit)
            schedules = [_schedule(row) for row in found]
            return Due(now=ahead["now"], schedules=schedules, next_at=ahead["next_at"], shortest=ahead["shortest"])

        return await self._link.call(look)

    async def fire(self, firings: Sequence[Firing]) -> list[Fired]:
        answers: dict[int, Fired] = {}
        for turn in in_rounds(firings):
            left = turn
            for pause in _PAUSES_S if all(firing.moves for _, firing in turn) else _PATIENT_S:
                if pause:
                    await self._clock.sleep(jittered(pause))
                fired, due = await self._link.transact(partial(self._fire, left))
                answers |= fired
                if due is not None:
                    self._announcer.tell(due)
                left = [placed for placed in left if placed[0] not in fired]
                if not left:
                    break
        # What somebody was at all the while is as it was: whoever looks finds it again.
        return [answers.get(place) or Fired(name=firing.name, done=False) for place, firing in enumerate(firings)]

    async def rearm(self) -> int:
        # A look first: there is nearly never anything to do.
        async def look(session: Session) -> list[str]:
            found = await session.fetch(self._sql.standing_still, None)
            found += await session.fetch(self._sql.waiting_for_nobody, None)
            return [row["name"] for row in found]

        names = await self._link.call(look)
        return await self._link.transact(partial(self._rearm, names)) if names else 0

    async def retire(self, silent_since: int) -> list[str]:
        found = await self._link.call(lambda session: session.fetch(self._sql.retire, silent_since))
        return [row["name"] for row in found]

    async def fires(self, name: str, *, before: int | None = None, limit: int = 100) -> list[Fire]:
        last = _LAST if before is None else before
        found = await self._link.call(lambda session: session.fetch(self._sql.fires, name, last, limit))
        fires: list[Fire] = []
        for row in found:
            values, faults = salvage(FireRow, tuple(row))
            if faults:
                tell("fire", name, faults)
            else:
                fires.append(FireRow(**values).record())
        return fires

    async def forget(self, before: int, limit: int) -> int:
        return len(await self._link.call(lambda session: session.fetch(self._sql.forget, before, limit)))

    async def once(self, key: str, instance: InstanceId) -> OnceState:
        async def work(session: Session) -> Any:
            await session.execute(self._sql.once, key, instance)
            return await session.fetchrow(self._sql.once_state, key)

        found = await self._link.transact(work)
        if found["done_at"] is not None:
            return OnceState.DONE
        return OnceState.YOURS if found["instance"] == instance else OnceState.BUSY

    async def once_done(self, key: str, instance: InstanceId) -> bool:
        return await self._link.call(lambda session: session.fetchval(self._sql.once_done, key, instance)) is not None

    async def _fire(self, turn: Sequence[Placed], session: Session) -> tuple[dict[int, Fired], int | None]:
        """What can be done now: answers by place, and the earliest due moment of new jobs."""
        now, standings, missing = await self._standings([firing.name for _, firing in turn], session)
        mine = [placed for placed in turn if placed[1].name in standings or placed[1].name in missing]
        recorded = await self._recorded([firing for _, firing in mine], session)
        plans = [decide(standings.get(firing.name), firing, recorded, now) for _, firing in mine]
        due = await self._carry_out(plans, session)
        return {place: plan.fired for (place, _), plan in zip(mine, plans, strict=True)}, due

    async def _standings(self, names: list[str], session: Session) -> tuple[int, dict[str, Standing], set[str]]:
        """Now, how those schedules stand that we have locked, and which names are nobody's."""
        locked = await session.fetch(self._sql.lock, names)
        held = {row["name"] for row in locked}
        missing = {name for name in names if name not in held}
        if missing:
            missing -= {row["name"] for row in await session.fetch(self._sql.known, list(missing))}
        now = locked[0]["now"] if locked else 0
        currents = [row["current"] for row in locked if row["current"] is not None]
        live = {row["id"]: row["state"] for row in await session.fetch(self._sql.live, currents)} if currents else {}
        waiting, busy = await self._seized(locked, live, session)
        standings: dict[str, Standing] = {}
        for row in locked:
            if row["name"] in busy:
                continue
            try:
                standings[row["name"]] = _standing(row, live.get(row["current"]), waiting.get(row["name"], []))
            except ValueError:  # its state or overlap is no word of ours: it is not fired
                missing.add(row["name"])
        return now, standings, missing

    async def _seized(
        self, locked: Sequence[Any], live: dict[JobId, str], session: Session
    ) -> tuple[dict[str, list[JobId]], set[str]]:
        """Lock the jobs that may be cancelled: who waits for each such schedule, and of which schedules not all were to be had.

        `live` is brought up to date: a pending job may have been claimed since.
        """
        cancelling = [row for row in locked if row["overlap"] == Overlap.CANCEL]
        if not cancelling:
            return {}, set()
        lines = {waits_for_schedule(row["name"]): row["name"] for row in cancelling}
        waiting: dict[str, list[JobId]] = {}
        for row in await session.fetch(self._sql.waiting, list(lines)):
            waiting.setdefault(lines[row["waits_for"]], []).append(row["id"])
        wanted = {
            row["name"]: [*waiting.get(row["name"], []), *([row["current"]] if row["current"] in live else [])]
            for row in cancelling
        }
        ids = [id for each in wanted.values() for id in each]
        if not ids:
            return waiting, set()
        seized = {row["id"]: row["state"] for row in await session.fetch(self._sql.seize, ids)}
        live.update({id: state for id, state in seized.items() if id in live})
        return waiting, {name for name, each in wanted.items() if any(id not in seized for id in each)}

    async def _recorded(self, firings: Sequence[Firing], session: Session) -> set[tuple[str, int]]:
        moments = [(firing.name, moment.at) for firing in firings for moment in firing.fires]
        if not moments:
            return set()
        return {tuple(row) for row in await session.fetch(self._sql.recorded, *columns(moments, 2))}

    async def _carry_out(self, plans: Sequence[Plan], session: Session) -> int | None:
        """A few statements for all of them; gives the earliest due moment of new jobs."""
        if cancelled := [(id, _CANCELLED, *[None] * 6) for plan in plans for id in plan.cancel]:
            let_go = [plan.fired.name for plan in plans if plan.cancel and not plan.ask_to_stop]
            await session.execute(self._sql.let_go, let_go)
            await session.execute(self._jobs.finish, *columns(cancelled, 8))
        if stopped := [id for plan in plans for id in plan.ask_to_stop]:
            await session.execute(self._jobs.request_cancel, stopped)
        jobs = [job for plan in plans for job in plan.jobs]
        if jobs:
            await session.execute(self._sql.enqueue, *columns(map(msgspec.structs.astuple, jobs), 5))
        await self._record([row for plan in plans for row in plan.records], session)
        if moved := [msgspec.structs.astuple(plan.moved) for plan in plans if plan.moved is not None]:
            await session.execute(self._sql.move, *columns(moved, 5))
        return min((job.run_at for job in jobs if job.waits_for is None), default=None)

    async def _record(self, records: Sequence[FireRow], session: Session) -> None:
        if records:
            await session.execute(self._sql.record, *columns(map(msgspec.structs.astuple, records), 8))

    async def _rearm(self, names: list[str], session: Session) -> int:
        """Lock first, look then: what was seen before may have been put right meanwhile."""
        held = [row["name"] for row in await session.fetch(self._sql.lock, names)]
        stuck = [row["name"] for row in await session.fetch(self._sql.waiting_for_nobody, held)]
        if stuck:
            # First: a series whose successor goes on does not stand still.
            await session.execute(self._sql.go_on, stuck)
        still = [row["name"] for row in await session.fetch(self._sql.standing_still, held)]
        if still:
            await session.execute(self._sql.rearm, still)
        return len(stuck) + len(still)


def _standing(row: Any, live: str | None, waiting: list[JobId]) -> Standing:
    return Standing(
        name=row["name"],
        revision=row["revision"],
        cursor=row["cursor"],
        state=ScheduleState(row["state"]),
        overlap=Overlap(row["overlap"]),
        every=row["every"],
        current=row["current"],
        live=live,
        waiting=waiting,
    )


def _schedule(row: Any) -> Schedule:
    """One that cannot be read says so in its rule, and is never fired."""
    values, faults = salvage(ScheduleRow, tuple(row))
    if faults:
        tell("schedule", row["name"], faults)
        values |= mend_schedule(faults)
    return ScheduleRow(**values).record()
