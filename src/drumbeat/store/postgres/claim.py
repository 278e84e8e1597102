"""Claims, and the scan bounds that keep them fast while dead rows cannot be vacuumed, or not yet.

Every row that was ever claimed stays in the index until a vacuum removes it, which an open snapshot of another session
prevents, and each claim would step over all of them. So a claim that was filled is remembered by queue and priority:
the next one starts shortly before the last run_at that it saw. (Not a whole second: at 100,000 enqueued in a second
that would still be all of them.) Where a whole claim had one run_at, as in a batch or a burst, it starts at the last id
instead. What may lie below is searched whenever a claim is not filled, once a second, and as far down as a hint says.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from drumbeat.clock import Clock
from drumbeat.core.claim import ClaimedJob, ClaimRequest, ClaimResult, MalformedJob, Outcome, WriteStatus
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.postgres.connections import Session
from drumbeat.store.postgres.lane_claim import LaneTimes
from drumbeat.store.postgres.rows import array_literal, claimed_jobs
from drumbeat.store.sqlfile import Statements

_PRIORITY_LEVELS = 10
_MARGIN_US = 100_000
_MAX_AGE_S = 1.0
_by_level = attrgetter("queue", "priority")


class ScanBound(NamedTuple):
    """Where to start a scan, in the order of claims."""

    run_at: int
    id: JobId | None
    """None: any id."""


NO_BOUND = ScanBound(-(2**63), None)
"""Not 0: a job may be due since before 1970."""


class ScanBounds:
    """Where to start, for each queue and priority."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bounds: dict[str, list[ScanBound]] = {}
        self._since = float("-inf")

    def for_claim(self, claim: ClaimRequest) -> list[ScanBound]:
        """The bounds of the request's queues, one after the other."""
        if self._bounds and self._clock.monotonic() - self._since > _MAX_AGE_S:
            self.reset()
        found: list[ScanBound] = []
        for queue, _ in claim.queues:
            found += self._bounds.get(queue) or [NO_BOUND] * _PRIORITY_LEVELS
        return found

    def advance(self, jobs: Sequence[ClaimedJob]) -> None:
        """A claim was filled with these jobs, in the order of claims."""
        if not self._bounds:
            self._since = self._clock.monotonic()
        for (queue, priority), group in groupby(jobs, _by_level):
            claimed = list(group)
            last = claimed[-1]
            has_one_run_at = len(claimed) > 1 and claimed[0].run_at == last.run_at
            bound = ScanBound(last.run_at, last.id) if has_one_run_at else ScanBound(last.run_at - _MARGIN_US, None)
            levels = self._bounds.setdefault(queue, [NO_BOUND] * _PRIORITY_LEVELS)
            if _sort_key(bound) > _sort_key(levels[priority]):
                levels[priority] = bound

    def lower_to(self, due: int) -> None:
        """A job that is due then may have been added: start there."""
        for levels in self._bounds.values():
            for level, bound in enumerate(levels):
                if due <= bound.run_at:
                    levels[level] = ScanBound(due, None)

    def reset(self) -> None:
        self._bounds.clear()


def _sort_key(bound: ScanBound) -> tuple[int, str]:
    return bound.run_at, bound.id or ""


class ReportAndClaimReply:
    """The result of statement `report_and_claim`."""

    __slots__ = (
        *("jobs", "lane_ends", "lanes", "malformed", "next_due", "now"),
        *("recorded_count", "recorded_ids", "released_count"),
    )

    def __init__(self, rows: Sequence[Any]) -> None:
        [summary] = [row for row in rows if row["now"] is not None]
        self.now: int = summary["now"]
        self.recorded_count: int = summary["recorded_count"]
        self.recorded_ids: str | None = summary["recorded_ids"]
        """The ids of the recorded outcomes, separated by spaces, if not all were recorded."""
        self.next_due: int | None = summary["next_due"]
        self.released_count: int = summary["released_count"]
        """Parents among the recorded: their children are to be followed."""
        self.lane_ends: int = summary["lane_ends"] or 0
        """Runs of lanes among the recorded: there is room for others."""
        # The statement does not see the news of the ends that it records.
        lanes = LaneTimes.from_row(summary["lanes"])
        self.lanes = lanes._replace(has_news=True) if self.lane_ends else lanes
        self.jobs, self.malformed = claimed_jobs(row for row in rows if row is not summary)

    def to_result(self, statuses: list[WriteStatus]) -> ClaimResult:
        return ClaimResult(
            statuses=statuses, jobs=self.jobs, now=self.now, next_due_at=self.next_due, malformed=self.malformed
        )

    def added_to(self, result: ClaimResult) -> ClaimResult:
        """This claim was made after another one, of the same queues."""
        return msgspec.structs.replace(
            result,
            jobs=[*result.jobs, *self.jobs],
            malformed=[*result.malformed, *self.malformed],
            now=self.now,
            next_due_at=self.next_due,
        )


class Reported(NamedTuple):
    """The result of a call so far: outcomes, and a claim of plain jobs."""

    result: ClaimResult
    released: int
    """How many parents have ended: their children are to be followed."""
    lane_ends: int
    lanes: LaneTimes


class PostgresClaimer:
    def __init__(self, sql: Statements, bounds: ScanBounds) -> None:
        self._sql = sql
        self._bounds = bounds

    def lower_bounds(self, due: int) -> None:
        """A job that is due then may have been added."""
        self._bounds.lower_to(due)

    async def report_and_claim(
        self,
        session: Session,
        instance: InstanceId,
        successes: Sequence[Outcome],
        claim: ClaimRequest | None,
    ) -> ReportAndClaimReply:
        """Record successes and claim. The jobs are ordered by queue (as requested), then priority, run_at, id."""
        bounds = [] if claim is None else self._bounds.for_claim(claim)
        reply = await self._execute(session, instance, successes, claim, bounds)
        if claim is None:
            return reply
        missing = claim.limit - len(reply.jobs) - len(reply.malformed)
        if missing > 0 and any(bound != NO_BOUND for bound in bounds):
            self._bounds.reset()
            rest = ClaimRequest(queues=tuple((queue, missing) for queue, _ in claim.queues), limit=missing)
            more = await self._execute(session, instance, (), rest, self._bounds.for_claim(rest))
            reply.lanes = more.lanes
            reply.jobs += more.jobs
            reply.malformed += more.malformed
            reply.next_due = more.next_due
        reply.jobs.sort(key=attrgetter("priority", "run_at", "id"))
        if len(claim.queues) > 1:
            order = {queue: index for index, (queue, _) in enumerate(claim.queues)}
            reply.jobs.sort(key=lambda job: order[job.queue])
        if reply.jobs and len(reply.jobs) >= claim.limit:
            self._bounds.advance(reply.jobs)
        return reply

    async def claim_blocked(
        self, session: Session, instance: InstanceId, claim: ClaimRequest
    ) -> tuple[list[ClaimedJob], list[MalformedJob]]:
        """Claim jobs that are blocked on what this worker unblocks. Those of lanes are only unblocked."""
        queues = [queue for queue, _ in claim.queues]
        await session.execute(self._sql.unblock_lanes, list(claim.unblocks), queues, claim.limit)
        rows = await session.fetch(self._sql.claim_blocked, instance, list(claim.unblocks), queues, claim.limit)
        jobs, malformed = claimed_jobs(rows)
        return sorted(jobs, key=lambda job: (job.priority, job.run_at, job.id)), malformed

    async def _execute(
        self,
        session: Session,
        instance: InstanceId,
        successes: Sequence[Outcome],
        claim: ClaimRequest | None,
        bounds: list[ScanBound],
    ) -> ReportAndClaimReply:
        queues = () if claim is None else claim.queues
        rows = await session.fetch(
            self._sql.report_and_claim,
            instance,
            array_literal([each.id for each in successes]),
            array_literal([each.token for each in successes]),
            array_literal([each.started_at for each in successes]),
            array_literal([each.finished_at for each in successes]),
            _empty_if_null([each.result for each in successes]),
            _empty_if_null([each.result_error for each in successes]),
            [queue for queue, _ in queues],
            [max(0, share) for _, share in queues],
            0 if claim is None else max(0, claim.limit),
            [bound.run_at for bound in bounds],
            array_literal([bound.id for bound in bounds]) if any(bound.id for bound in bounds) else "{}",
        )
        return ReportAndClaimReply(rows)


def _empty_if_null(values: list[str | None]) -> list[str | None]:
    """Empty if all are None: what is missing from an array is NULL anyway."""
    return [] if values.count(None) == len(values) else values
