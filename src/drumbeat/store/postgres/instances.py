"""Who lives, on PostgreSQL. The contract is in `store.protocol.Instances`.

A burial locks in the same order as an exchange: the instance's jobs first, then its row. A claim holds the row's key while it
takes jobs, so after the burial has the row no claim is under way, and a second look finds what came in between.
"""

from collections.abc import Sequence
from functools import partial

from drumbeat.clock import Clock
from drumbeat.core.claim import ClaimRef, Outcome
from drumbeat.core.dead_letter import make_follow_up
from drumbeat.core.instance import DeadInstanceReport, HeartbeatReply, InstanceState, Leader, NewInstance, Peer
from drumbeat.core.job import OutcomeKind
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.job_search import WHOLE_TEXT
from drumbeat.store.outcomes import crash_failure, crashed_outcome, released_outcomes
from drumbeat.store.postgres import rows
from drumbeat.store.postgres.completion import PostgresCompletionWriter, PostgresTransitions
from drumbeat.store.postgres.connections import PostgresConnection, Session
from drumbeat.store.postgres.history import HistoryPartitions
from drumbeat.store.postgres.rows import PostgresHeldJob, as_json
from drumbeat.store.postgres.statements import PostgresStatements
from drumbeat.store.postgres.wake import PostgresNotifier

_CANCELLED = OutcomeKind.CANCELLED.value
_CRASHED = OutcomeKind.CRASHED.value
_COUNT_INTERVAL_FACTOR = 20
"""Counting the running jobs may take a twentieth of the time: where dead rows pile up it is slow, and so rarer."""
_QUICK_COUNT_S = 0.1


class PostgresInstances:
    def __init__(
        self,
        sql: PostgresStatements,
        *,
        connection: PostgresConnection,
        completion: PostgresCompletionWriter,
        history: HistoryPartitions,
        notifier: PostgresNotifier,
        clock: Clock,
    ) -> None:
        self._sql = sql
        self._connection = connection
        self._completion = completion
        self._history = history
        self._notifier = notifier
        self._clock = clock
        self._next_count_at = float("-inf")

    async def register(self, instance: NewInstance) -> None:
        await self._history.ensure_days_ahead()
        facts = (
            *(instance.id, instance.app, instance.version, instance.host, instance.pid),
            *(as_json(instance.roles), as_json(instance.queues), as_json(instance.tasks)),
            *(instance.concurrency, instance.wake, as_json(instance.rooms)),
        )
        await self._connection.call(lambda session: session.execute(self._sql.instances.register, *facts))

    async def heartbeat(self, id: InstanceId, running: int, *, lead: int | None = None) -> HeartbeatReply:
        await self._history.ensure_days_ahead()
        began = self._clock.monotonic()
        counts = began >= self._next_count_at
        row = await self._connection.call(
            lambda session: session.fetchrow(self._sql.instances.beat, id, running, counts, lead)
        )
        took = self._clock.monotonic() - began
        if counts and took > _QUICK_COUNT_S:
            self._next_count_at = began + took * _COUNT_INTERVAL_FACTOR
        if row is None:
            now = await self._connection.call(lambda session: session.fetchval(self._sql.schema.now))
            return HeartbeatReply(alive=False, beat=0, now=now, running=0, cancel_requests=[], blocked_on=[], peers=[])
        leader = row
        if lead is not None and row["leader"] is None:
            leader = await self._connection.call(lambda session: session.fetchrow(self._sql.instances.leader))
        return HeartbeatReply(
            alive=True,
            beat=row["beat"],
            now=row["now"],
            running=running if row["running"] is None else row["running"],
            cancel_requests=[
                ClaimRef(*hold) for hold in zip(row["cancel_ids"], row["cancel_tokens"], strict=True) if all(hold)
            ],
            blocked_on=row["waiting"],
            peers=[Peer(id, beat or 0) for id, beat in zip(row["peers"], row["peer_beats"], strict=True)],
            leader=None
            if leader is None or leader["leader"] is None
            else Leader(instance=leader["leader"], term=leader["term"]),
            next_fire_at=row["next_fire"],
        )

    async def declare_dead(
        self, id: InstanceId, *, beat: int | None, started: Sequence[ClaimRef] | None, reason: str
    ) -> DeadInstanceReport:
        marked = None if started is None else {(hold.id, hold.token) for hold in started}
        buried, soonest = await self._connection.transact(partial(self._declare_dead, id, beat, marked, reason))
        self._notify(soonest)
        return buried

    async def deregister(self, id: InstanceId, reason: str) -> None:
        self._notify(await self._connection.transact(partial(self._leave, id, reason)))

    async def leave_rooms(self, id: InstanceId) -> None:
        await self._connection.call(lambda session: session.execute(self._sql.instances.leave_rooms, id))

    async def prune(self, before: int) -> int:
        return len(await self._connection.call(lambda session: session.fetch(self._sql.instances.forget, before)))

    async def _lock_instance_and_jobs(
        self, id: InstanceId, beat: int | None, session: Session
    ) -> list[PostgresHeldJob] | None:
        """Lock the instance and everything that runs under it; None if it is not there, or its heart has beaten."""
        await session.fetch(self._sql.jobs.lock_running_of_instance, id)
        if await session.fetchval(self._sql.instances.lock, id, beat) is None:
            return None
        return [rows.held_job(row) for row in await session.fetch(self._sql.jobs.lock_running_of_instance, id)]

    async def _leave(self, id: InstanceId, reason: str, session: Session) -> int | None:
        held = await self._lock_instance_and_jobs(id, None, session)
        if held is None:
            return None
        await session.execute(self._sql.instances.end, id, InstanceState.LEFT.value, reason)
        await session.execute(self._sql.instances.resign_lead, id)
        if not held:
            return None
        return (
            await self._completion.record_current(
                session, id, released_outcomes((each.id, each.token) for each in held)
            )
        )[1]

    async def _declare_dead(
        self, id: InstanceId, beat: int | None, started: set[tuple[JobId, int]] | None, reason: str, session: Session
    ) -> tuple[DeadInstanceReport, int | None]:
        held = await self._lock_instance_and_jobs(id, beat, session)
        if held is None:
            return DeadInstanceReport(declared=False), None
        await session.execute(self._sql.instances.end, id, InstanceState.DEAD.value, reason)
        await session.execute(self._sql.instances.resign_lead, id)
        buried, soonest = await self._free_jobs(id, held, started, reason, session)
        await session.execute(self._sql.instances.set_end_reason, id, buried.describe(reason))
        return buried, soonest

    async def _free_jobs(
        self,
        id: InstanceId,
        held: Sequence[PostgresHeldJob],
        marked: set[tuple[JobId, int]] | None,
        reason: str,
        session: Session,
    ) -> tuple[DeadInstanceReport, int | None]:
        """What becomes of a dead instance's jobs."""
        started = [each for each in held if marked is None or (each.id, each.token) in marked]
        transitions = PostgresTransitions(id)
        suspect = unharmed = dead = cancelled = 0
        for each in held:
            blamed = marked is None or (each.id, each.token) in marked
            # A suspect runs alone: if it was the only one that ran, the crash is its own, and counts further.
            crashes = each.crashes + 1 if each.crashes and len(started) == 1 else max(each.crashes, 1)
            if each.cancel_requested:
                end = crashed_outcome(each, reason) if blamed else _released_outcome(each)
                transitions.finish(each, end, _CANCELLED, _CRASHED if blamed else None)
                cancelled += 1
            elif not blamed:
                transitions.requeue(each, _released_outcome(each), each.crashes)
                unharmed += 1
            elif crashes >= each.crash_limit:
                transitions.make_dead(each, await self._dead_outcome(each, reason, session), crashes)
                dead += 1
            else:
                transitions.requeue(each, crashed_outcome(each, reason), crashes)
                suspect += 1
        soonest = await self._completion.apply(session, transitions)
        return DeadInstanceReport(
            declared=True, crash_suspect=suspect, released=unharmed, dead=dead, cancelled=cancelled
        ), soonest

    async def _dead_outcome(self, held: PostgresHeldJob, reason: str, session: Session) -> Outcome:
        if held.on_dead is None:
            return crashed_outcome(held, reason)
        row = await session.fetchrow(self._sql.inspect.live_record, [held.id], WHOLE_TEXT)
        return crashed_outcome(held, reason, make_follow_up(rows.job(row), crash_failure(reason)))

    def _notify(self, soonest: int | None) -> None:
        if soonest is not None:
            self._notifier.notify(soonest)


def _released_outcome(held: PostgresHeldJob) -> Outcome:
    return Outcome(id=held.id, token=held.token, kind=OutcomeKind.RELEASED)
