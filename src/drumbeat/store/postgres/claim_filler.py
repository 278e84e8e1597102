"""Plain jobs and lanes in one claim. The hot statement (claim.py) takes plain jobs and says whether lanes may be ready; only
then are they asked (lane_claim.py), on the same connection.

Where lanes of a queue were ready lately, its plain jobs and each of its lines take turns: the hot statement is asked for the
part of plain jobs only, then the lanes, and what is left of the claim is filled with plain jobs.
"""

import contextlib
from collections.abc import Mapping

import msgspec

from drumbeat.core.claim import ClaimedJob, ClaimRequest, ClaimResult
from drumbeat.errors import StoreError
from drumbeat.ids import InstanceId
from drumbeat.store.postgres.claim import PostgresClaimer, Reported
from drumbeat.store.postgres.connections import PlanMode, PostgresConnection
from drumbeat.store.postgres.lane_claim import LaneClaim, LaneTimes, PostgresLaneClaimer
from drumbeat.store.postgres.wake import PostgresNotifier


class ClaimFiller:
    def __init__(self, claimer: PostgresClaimer, lanes: PostgresLaneClaimer, notifier: PostgresNotifier) -> None:
        self._claimer = claimer
        self._lanes = lanes
        self._notifier = notifier
        self._ready_lines: dict[str, int] = {}
        """How many lines of a queue had ready lanes lately."""
        self._owed: dict[str, int] = {}
        """To the plain jobs of these queues, in parts of a turn that were left over."""

    def plain_part(self, claim: ClaimRequest) -> ClaimRequest:
        """What the hot statement is asked for."""
        if not any(queue in self._ready_lines for queue, _ in claim.queues):
            return claim
        queues = []
        for queue, quota in _quotas(claim).items():
            plain, lines = quota, self._ready_lines.get(queue)
            if lines is not None:
                # A queue that only gets what others leave takes turns claim by claim.
                turn, self._owed[queue] = divmod(self._owed.get(queue, 0) + (quota or 1), lines + 1)
                if not quota and not turn:
                    continue
                plain = min(turn, quota)
            queues.append((queue, plain))
        return msgspec.structs.replace(claim, queues=tuple(queues), limit=sum(plain for _, plain in queues))

    async def fill(
        self,
        connection: PostgresConnection,
        instance: InstanceId,
        reported: Reported,
        claim: ClaimRequest | None,
        part: ClaimRequest | None,
    ) -> ClaimResult:
        """The result of a call, with what lanes give. What was reported and claimed stands: an outage from here on must not
        look as if it did not."""
        if claim is None or part is None or claim.limit <= 0:
            if reported.lane_ends:
                self._notifier.notify(reported.result.now)
            return reported.result
        result, due = reported.result, reported.lanes
        slots = claim.limit if claim.slots is None else claim.slots
        plain = _count(result)
        has_turns = part is not claim
        is_ready = due.is_now(result.now, slots) or len(part.queues) < len(claim.queues)
        lanes = LaneClaim()
        if not is_ready:
            # What only lacks a slot has its turn as soon as there is one.
            waiting = int(due.lacks_slots(result.now, slots))
            self._remember(dict.fromkeys((queue for queue, _ in claim.queues), waiting))
        elif plain >= claim.limit:
            self._remember({queue: max(1, self._ready_lines.get(queue, 1)) for queue, _ in claim.queues})
        else:
            with contextlib.suppress(StoreError):
                lanes = await self._claim_lanes(connection, instance, claim, result, slots)
            self._remember(lanes.lines)
            slots -= lanes.slots
            result = _with_lanes(result, lanes)
            due = due if lanes.due is None else lanes.due
        missing = claim.limit - _count(result)
        next_due = result.next_due_at
        if missing > 0 and has_turns and plain >= part.limit:
            rest = ClaimRequest(queues=tuple((queue, missing) for queue, _ in claim.queues), limit=missing)
            next_due = result.now
            with contextlib.suppress(StoreError):
                more = await connection.call(
                    lambda session: self._claimer.report_and_claim(session, instance, (), rest),
                    plan_mode=PlanMode.GENERIC,
                )
                result, due, next_due = more.added_to(result), more.lanes, more.next_due
                missing = claim.limit - _count(result)
        if missing <= 0 and is_ready and claim.slots is not None and slots <= 0:
            due = await self._look_again(connection, claim, due)
        is_more = is_ready and (lanes.is_more if missing <= 0 and lanes.jobs else due.is_now(result.now, 1))
        if reported.lane_ends and (is_more if missing <= 0 else due.lacks_slots(result.now, slots)):
            self._notifier.notify(result.now)
        now = result.now if lanes.now is None else lanes.now
        found = [at for at in (next_due, due.next_look(now, slots)) if at is not None]
        return msgspec.structs.replace(
            result,
            now=now,
            jobs=_in_order_of_queues(result, claim),
            next_due_at=min(found, default=None) if missing > 0 else None,
            has_limited=claim.slots is not None and due.may_lack_slots(result.now, slots),
        )

    async def _claim_lanes(
        self,
        connection: PostgresConnection,
        instance: InstanceId,
        claim: ClaimRequest,
        result: ClaimResult,
        slots: int,
    ) -> LaneClaim:
        quotas = _quotas(claim)
        for job in (*result.jobs, *(each.job for each in result.malformed)):
            if job.queue in quotas:
                quotas[job.queue] = max(0, quotas[job.queue] - 1)
        limit = claim.limit - _count(result)
        return await connection.transact(
            lambda session: self._lanes.claim(session, instance, limit, slots, quotas), plan_mode=PlanMode.GENERIC
        )

    async def _look_again(self, connection: PostgresConnection, claim: ClaimRequest, due: LaneTimes) -> LaneTimes:
        """What is left after a claim that was filled: whether jobs wait for slots."""
        queues = [queue for queue, _ in claim.queues]
        with contextlib.suppress(StoreError):
            return await connection.call(
                lambda session: self._lanes.load_due(session, queues), plan_mode=PlanMode.GENERIC
            )
        return due

    def _remember(self, lines: Mapping[str, int] | None) -> None:
        """How many lines of each queue are ready."""
        for queue, count in (lines or {}).items():
            if count:
                self._ready_lines[queue] = count
            else:
                self._ready_lines.pop(queue, None)
                self._owed.pop(queue, None)


def _quotas(claim: ClaimRequest) -> dict[str, int]:
    """What each queue may give before any gives more."""
    left = claim.limit
    quotas: dict[str, int] = {}
    for queue, share in claim.queues:
        quotas[queue] = max(0, min(share, left))
        left -= quotas[queue]
    return quotas


def _count(result: ClaimResult) -> int:
    return len(result.jobs) + len(result.malformed)


def _with_lanes(result: ClaimResult, lanes: LaneClaim) -> ClaimResult:
    return msgspec.structs.replace(
        result,
        jobs=[*result.jobs, *lanes.jobs],
        malformed=[*result.malformed, *lanes.malformed],
        now=max(result.now, lanes.now or 0),
    )


def _in_order_of_queues(result: ClaimResult, claim: ClaimRequest) -> list[ClaimedJob]:
    if len(claim.queues) == 1:
        return result.jobs
    order = {queue: index for index, (queue, _) in enumerate(claim.queues)}
    return sorted(result.jobs, key=lambda job: order[job.queue])
