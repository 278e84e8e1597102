"""Instances on PostgreSQL. The contract is in `store.protocol.Instances`.

`declare_dead` locks in the same order as `report_and_claim`: the instance's jobs first, then its row. A claim holds a key share
lock on the row while it takes jobs; so once `declare_dead` has locked the row no claim is under way, and a second read finds
the jobs that were claimed in between.
"""

from collections.abc import Sequence
from functools import partial

from drumbeat.core import transitions
from drumbeat.core.claim import ClaimRef
from drumbeat.core.instance import DeadInstanceReport, HeartbeatReply, InstanceState, Leader, NewInstance, Peer
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.job_search import WHOLE_TEXT
from drumbeat.store.postgres import rows
from drumbeat.store.postgres.completion import Applied
from drumbeat.store.postgres.connections import Session
from drumbeat.store.postgres.parts import PostgresParts
from drumbeat.store.postgres.rows import PostgresHeldJob
from drumbeat.store.records import as_json

_COUNT_INTERVAL_FACTOR = 20
"""Running jobs are counted for at most a twentieth of the time: where dead rows pile up, counting is slow."""
_QUICK_COUNT_S = 0.1


class PostgresInstances:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql
        self._connection = parts.connection
        self._completion = parts.completion
        self._history = parts.history
        self._notifier = parts.notifier
        self._advancer = parts.advancer
        self._clock = parts.clock
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
            lambda session: session.fetchrow(self._sql.instances.heartbeat, id, running, counts, lead)
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
        marked = None if started is None else {(claim.id, claim.token) for claim in started}
        report, applied = await self._connection.transact(partial(self._declare_dead, id, beat, marked, reason))
        await self._follow(applied)
        return report

    async def deregister(self, id: InstanceId, reason: str) -> None:
        await self._follow(await self._connection.transact(partial(self._leave, id, reason)))

    async def leave_rooms(self, id: InstanceId) -> None:
        await self._connection.call(lambda session: session.execute(self._sql.instances.leave_rooms, id))

    async def prune(self, before: int) -> int:
        return len(await self._connection.call(lambda session: session.fetch(self._sql.instances.forget, before)))

    async def _lock_instance_and_jobs(
        self, id: InstanceId, beat: int | None, session: Session
    ) -> list[PostgresHeldJob] | None:
        """Lock the instance and everything that runs under it; None if it is not there, or has sent a heartbeat since."""
        await session.fetch(self._sql.jobs.lock_running_of_instance, id)
        if await session.fetchval(self._sql.instances.lock, id, beat) is None:
            return None
        return [rows.held_job(row) for row in await session.fetch(self._sql.jobs.lock_running_of_instance, id)]

    async def _leave(self, id: InstanceId, reason: str, session: Session) -> Applied | None:
        held = await self._lock_instance_and_jobs(id, None, session)
        if held is None:
            return None
        await session.execute(self._sql.instances.set_ended, id, InstanceState.LEFT.value, reason)
        await session.execute(self._sql.instances.resign_lead, id)
        if not held:
            return None
        outcomes = [transitions.leave_outcome(job) for job in held]
        return (await self._completion.record_current(session, id, outcomes))[1]

    async def _declare_dead(
        self, id: InstanceId, beat: int | None, started: set[tuple[JobId, int]] | None, reason: str, session: Session
    ) -> tuple[DeadInstanceReport, Applied | None]:
        jobs = await self._lock_instance_and_jobs(id, beat, session)
        if jobs is None:
            return DeadInstanceReport(declared=False), None
        await session.execute(self._sql.instances.set_ended, id, InstanceState.DEAD.value, reason)
        await session.execute(self._sql.instances.resign_lead, id)
        decided = transitions.blame_crash(jobs, started, reason, jobs[0].now if jobs else 0)
        report = transitions.report_crash(transition for _, transition in decided)
        if dead_ids := transitions.find_on_dead_jobs(decided):
            found = await session.fetch(self._sql.inspect.live_record, dead_ids, WHOLE_TEXT)
            decided = transitions.add_follow_ups(decided, map(rows.job, found), transitions.crash_failure(reason))
        applied = await self._completion.apply(session, id, decided)
        await session.execute(self._sql.instances.set_end_reason, id, report.describe(reason))
        return report, applied

    async def _follow(self, applied: Applied | None) -> None:
        """Tell workers, and children, of what has become of jobs."""
        if applied is not None:
            self._notifier.notify(0 if applied.lane_ends else applied.earliest)
            await self._advancer.follow(applied.released)
