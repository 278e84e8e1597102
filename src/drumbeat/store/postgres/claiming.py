"""Claiming, and the bound that keeps it quick where dead rows cannot be cleared away, or not yet.

Every row that was ever claimed stays in the index until a vacuum clears it away, which an open snapshot of another session
prevents, and each claim would step over all of them. So a claim that was filled is remembered by queue and level: the next
one starts shortly before the last due moment that it saw. (Not a whole second: at 100,000 enqueued in a second that would
still be all of them.) Where a whole claim had one due moment, as in a batch or a burst, it starts at the last id instead. What
may lie below is looked for whenever a claim is not filled, once a second, and as far down as a hint says.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from drumbeat.clock import Clock
from drumbeat.ids import InstanceId, JobId
from drumbeat.model.job import Claim, Claimed, Malformed, Outcome
from drumbeat.store.postgres.connections import Session
from drumbeat.store.postgres.rows import array, claimed
from drumbeat.store.postgres.statements import JobSql

_LEVELS = 10
_BELOW_US = 100_000
_TRUSTED_S = 1.0
_by_level = attrgetter("queue", "priority")


class Bound(NamedTuple):
    """From where on to look, in the order of claims."""

    run_at: int
    id: JobId | None
    """None: whatever its id."""


NO_BOUND = Bound(-(2**63), None)
"""Not 0: a job may be due since before 1970."""


class Bounds:
    """For each queue and level, from where on to look."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bounds: dict[str, list[Bound]] = {}
        self._since = float("-inf")

    def of(self, claim: Claim) -> list[Bound]:
        """The bounds of the claim's queues, one after the other."""
        if self._bounds and self._clock.monotonic() - self._since > _TRUSTED_S:
            self.drop()
        found: list[Bound] = []
        for queue, _ in claim.queues:
            found += self._bounds.get(queue) or [NO_BOUND] * _LEVELS
        return found

    def saw(self, jobs: Sequence[Claimed]) -> None:
        """A claim was filled with these, in the order of claims."""
        if not self._bounds:
            self._since = self._clock.monotonic()
        for (queue, priority), group in groupby(jobs, _by_level):
            some = list(group)
            last = some[-1]
            is_one_moment = len(some) > 1 and some[0].run_at == last.run_at
            bound = Bound(last.run_at, last.id) if is_one_moment else Bound(last.run_at - _BELOW_US, None)
            levels = self._bounds.setdefault(queue, [NO_BOUND] * _LEVELS)
            if _order(bound) > _order(levels[priority]):
                levels[priority] = bound

    def hear(self, due: int) -> None:
        """A job with this due moment may have come: look from there on."""
        for levels in self._bounds.values():
            for level, bound in enumerate(levels):
                if due <= bound.run_at:
                    levels[level] = Bound(due, None)

    def drop(self) -> None:
        self._bounds.clear()


def _order(bound: Bound) -> tuple[int, str]:
    return bound.run_at, bound.id or ""


class Answer:
    """What the statement `exchange` gave."""

    __slots__ = ("ended", "jobs", "malformed", "next_due", "now", "recorded")

    def __init__(self, rows: Sequence[Any]) -> None:
        first = rows[0]
        self.now: int = first["token"]
        self.ended: int = first["created_at"]
        self.recorded: str | None = first["args"]
        """The ids of the runs that were recorded, if those were not all."""
        self.next_due: int | None = first["due_at"]
        self.jobs, self.malformed = claimed(rows[1:])


class Claiming:
    def __init__(self, sql: JobSql, bounds: Bounds) -> None:
        self._sql = sql
        self._bounds = bounds

    def hear(self, due: int) -> None:
        """A job with this due moment may have come."""
        self._bounds.hear(due)

    async def exchange(
        self,
        session: Session,
        instance: InstanceId,
        good: Sequence[Outcome],
        claim: Claim | None,
    ) -> Answer:
        """Record successes and claim. The claim is in order: by queue in their turn, then priority, run_at, id."""
        bounds = [] if claim is None else self._bounds.of(claim)
        answer = await self._ask(session, instance, good, claim, bounds)
        if claim is None:
            return answer
        missing = claim.limit - len(answer.jobs) - len(answer.malformed)
        if missing > 0 and any(bound != NO_BOUND for bound in bounds):
            self._bounds.drop()
            rest = Claim(queues=tuple((queue, missing) for queue, _ in claim.queues), limit=missing)
            more = await self._ask(session, instance, (), rest, self._bounds.of(rest))
            answer.jobs += more.jobs
            answer.malformed += more.malformed
            answer.next_due = more.next_due
        answer.jobs.sort(key=attrgetter("priority", "run_at", "id"))
        if len(claim.queues) > 1:
            turns = {queue: turn for turn, (queue, _) in enumerate(claim.queues)}
            answer.jobs.sort(key=lambda job: turns[job.queue])
        if answer.jobs and len(answer.jobs) >= claim.limit:
            self._bounds.saw(answer.jobs)
        return answer

    async def claim_waiting(
        self, session: Session, instance: InstanceId, claim: Claim
    ) -> tuple[list[Claimed], list[Malformed]]:
        """Jobs that wait for what this worker has."""
        queues = [queue for queue, _ in claim.queues]
        rows = await session.fetch(self._sql.claim_waiting, instance, list(claim.wants), queues, claim.limit)
        jobs, malformed = claimed(rows)
        return sorted(jobs, key=lambda job: (job.priority, job.run_at, job.id)), malformed

    async def _ask(
        self,
        session: Session,
        instance: InstanceId,
        good: Sequence[Outcome],
        claim: Claim | None,
        bounds: list[Bound],
    ) -> Answer:
        queues = () if claim is None else claim.queues
        rows = await session.fetch(
            self._sql.exchange,
            instance,
            array([each.id for each in good]),
            array([each.token for each in good]),
            array([each.started_at for each in good]),
            array([each.finished_at for each in good]),
            _if_any([each.result for each in good]),
            _if_any([each.result_error for each in good]),
            [queue for queue, _ in queues],
            [max(0, share) for _, share in queues],
            0 if claim is None else max(0, claim.limit),
            [bound.run_at for bound in bounds],
            array([bound.id for bound in bounds]) if any(bound.id for bound in bounds) else "{}",
        )
        return Answer(rows)


def _if_any(values: list[str | None]) -> list[str | None]:
    """Nothing where all are null: what is missing from an array is null anyway."""
    return [] if values.count(None) == len(values) else values
