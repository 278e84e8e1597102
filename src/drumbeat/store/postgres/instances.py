"""Who lives, on PostgreSQL. The contract is in `store.protocol.Instances`.

A burial locks in the same order as an exchange: the instance's jobs first, then its row. A claim holds the row's key while it
takes jobs, so after the burial has the row no claim is under way, and a second look finds what came in between.
"""

from collections.abc import Sequence
from functools import partial

from drumbeat.clock import Clock
from drumbeat.ids import InstanceId, JobId
from drumbeat.model.death import follow_up
from drumbeat.model.instance import Buried, InstanceState, Leader, NewInstance, Peer, Pulse
from drumbeat.model.job import Hold, Outcome, OutcomeKind
from drumbeat.store.outcomes import crash, crashed, released
from drumbeat.store.postgres import rows
from drumbeat.store.postgres.connections import Link, Session
from drumbeat.store.postgres.ending import Ending, Fates
from drumbeat.store.postgres.history import History
from drumbeat.store.postgres.rows import Held, as_json
from drumbeat.store.postgres.statements import Statements
from drumbeat.store.postgres.wake import Announcer
from drumbeat.store.searching import WHOLE

_CANCELLED = OutcomeKind.CANCELLED.value
_CRASHED = OutcomeKind.CRASHED.value
_SHARE = 20
"""Counting the running jobs may take a twentieth of the time: where dead rows pile up it is slow, and so rarer."""
_QUICK_S = 0.1


class PostgresInstances:
    def __init__(
        self, sql: Statements, *, link: Link, ending: Ending, history: History, announcer: Announcer, clock: Clock
    ) -> None:
        self._sql = sql
        self._link = link
        self._ending = ending
        self._history = history
        self._announcer = announcer
        self._clock = clock
        self._count_at = float("-inf")

    async def register(self, instance: NewInstance) -> None:
        await self._history.look_ahead()
        facts = (
            *(instance.id, instance.app, instance.version, instance.host, instance.pid),
            *(as_json(instance.roles), as_json(instance.queues), as_json(instance.tasks)),
            *(instance.concurrency, instance.wake, as_json(instance.rooms)),
        )
        await self._link.call(lambda session: session.execute(self._sql.instances.register, *facts))

    async def beat(self, id: InstanceId, running: int, *, lead: int | None = None) -> Pulse:
        await self._history.look_ahead()
        began = self._clock.monotonic()
        counts = began >= self._count_at
        row = await self._link.call(
            lambda session: session.fetchrow(self._sql.instances.beat, id, running, counts, lead)
        )
        took = self._clock.monotonic() - began
        if counts and took > _QUICK_S:
            self._count_at = began + took * _SHARE
        if row is None:
            now = await self._link.call(lambda session: session.fetchval(self._sql.schema.now))
            return Pulse(alive=False, beat=0, now=now, running=0, cancels=[], waiting=[], peers=[])
        leader = row
        if lead is not None and row["leader"] is None:
            leader = await self._link.call(lambda session: session.fetchrow(self._sql.instances.leader))
        return Pulse(
            alive=True,
            beat=row["beat"],
            now=row["now"],
            running=running if row["running"] is None else row["running"],
            cancels=[Hold(*hold) for hold in zip(row["cancel_ids"], row["cancel_tokens"], strict=True) if all(hold)],
            waiting=row["waiting"],
            peers=[Peer(id, beat or 0) for id, beat in zip(row["peers"], row["peer_beats"], strict=True)],
            leader=None
            if leader is None or leader["leader"] is None
            else Leader(instance=leader["leader"], term=leader["term"]),
            next_fire=row["next_fire"],
        )

    async def bury(self, id: InstanceId, *, beat: int | None, started: Sequence[Hold] | None, why: str) -> Buried:
        marked = None if started is None else {(hold.id, hold.token) for hold in started}
        buried, soonest = await self._link.transact(partial(self._bury, id, beat, marked, why))
        self._tell(soonest)
        return buried

    async def leave(self, id: InstanceId, why: str) -> None:
        self._tell(await self._link.transact(partial(self._leave, id, why)))

    async def leave_rooms(self, id: InstanceId) -> None:
        await self._link.call(lambda session: session.execute(self._sql.instances.leave_rooms, id))

    async def forget(self, before: int) -> int:
        return len(await self._link.call(lambda session: session.fetch(self._sql.instances.forget, before)))

    async def _held(self, id: InstanceId, beat: int | None, session: Session) -> list[Held] | None:
        """Lock the instance and everything that runs under it; None if it is not there, or its heart has beaten."""
        await session.fetch(self._sql.jobs.held_by, id)
        if await session.fetchval(self._sql.instances.lock, id, beat) is None:
            return None
        return [rows.held(row) for row in await session.fetch(self._sql.jobs.held_by, id)]

    async def _leave(self, id: InstanceId, why: str, session: Session) -> int | None:
        held = await self._held(id, None, session)
        if held is None:
            return None
        await session.execute(self._sql.instances.end, id, InstanceState.LEFT.value, why)
        await session.execute(self._sql.instances.give_up_lead, id)
        if not held:
            return None
        return (await self._ending.settle(session, id, released((each.id, each.token) for each in held)))[1]

    async def _bury(
        self, id: InstanceId, beat: int | None, marked: set[tuple[JobId, int]] | None, why: str, session: Session
    ) -> tuple[Buried, int | None]:
        held = await self._held(id, beat, session)
        if held is None:
            return Buried(buried=False), None
        await session.execute(self._sql.instances.end, id, InstanceState.DEAD.value, why)
        await session.execute(self._sql.instances.give_up_lead, id)
        buried, soonest = await self._free(id, held, marked, why, session)
        await session.execute(self._sql.instances.tell_end, id, buried.told(why))
        return buried, soonest

    async def _free(
        self, id: InstanceId, held: Sequence[Held], marked: set[tuple[JobId, int]] | None, why: str, session: Session
    ) -> tuple[Buried, int | None]:
        """What becomes of a dead instance's jobs."""
        started = [each for each in held if marked is None or (each.id, each.token) in marked]
        fates = Fates(id)
        suspect = unharmed = dead = cancelled = 0
        for each in held:
            blamed = marked is None or (each.id, each.token) in marked
            # A suspect runs alone: if it was the only one that ran, the crash is its own, and counts further.
            crashes = each.crashes + 1 if each.crashes and len(started) == 1 else max(each.crashes, 1)
            if each.cancel_requested:
                end = crashed(each, why) if blamed else _unstarted(each)
                fates.finish(each, end, _CANCELLED, _CRASHED if blamed else None)
                cancelled += 1
            elif not blamed:
                fates.go_back(each, _unstarted(each), each.crashes)
                unharmed += 1
            elif crashes >= each.crash_limit:
                fates.die(each, await self._death(each, why, session), crashes)
                dead += 1
            else:
                fates.go_back(each, crashed(each, why), crashes)
                suspect += 1
        soonest = await self._ending.write(session, fates)
        return Buried(buried=True, suspect=suspect, released=unharmed, dead=dead, cancelled=cancelled), soonest

    async def _death(self, held: Held, why: str, session: Session) -> Outcome:
        if held.on_dead is None:
            return crashed(held, why)
        row = await session.fetchrow(self._sql.inspect.live_record, [held.id], WHOLE)
        return crashed(held, why, follow_up(rows.job(row), crash(why)))

    def _tell(self, soonest: int | None) -> None:
        if soonest is not None:
            self._announcer.tell(soonest)


def _unstarted(held: Held) -> Outcome:
    return Outcome(id=held.id, token=held.token, kind=OutcomeKind.RELEASED)
