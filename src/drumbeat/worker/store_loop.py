"""Report outcomes and claim jobs, in one round trip to the store.

    slots -> reporter -> |store loop| -> store
    slots <- buffer  <-  |          | <-

Two lanes make the same call. The first sends whatever there is. The second joins only when half a batch has collected while the
first is in flight: under load the store always has the next call waiting, and otherwise batches are not split. The second also
claims jobs that fall due while the first only reports: outcomes wait for the disk, a claim for an idle slot need not.

After a call whose answer may have been lost, the claims that the store has for this instance are compared with those held
here. Unknown claims are released, but only if they were unknown in two comparisons two seconds apart: a call that is in
flight, or was abandoned, may still take effect after the first.

A full store may refuse outcomes and answer everything else. Refused outcomes are kept and reported in smaller and smaller
parts, in turn, because an outcome that frees space, or needs little, may be accepted. Nothing is claimed meanwhile, or
outcomes would pile up here.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter, not_

from msgspec.structs import replace

from drumbeat.core.claim import ClaimedJob, ClaimRequest, ClaimResult, Outcome, WriteStatus
from drumbeat.core.instance import HeartbeatReply
from drumbeat.core.job import OutcomeKind
from drumbeat.errors import StoreError, StoreFull, StoreUnavailable
from drumbeat.ids import InstanceId, JobId
from drumbeat.outage import FullStoreReporter
from drumbeat.service import OutageBackoff, Wakeup
from drumbeat.store.protocol import JobStore
from drumbeat.worker.buffer import JobBuffer
from drumbeat.worker.core import WorkerCore
from drumbeat.worker.fetcher import Fetcher
from drumbeat.worker.reporter import OutcomeReporter
from drumbeat.worker.result import malformed_outcome

log = logging.getLogger(__name__)

TICK_INTERVAL = 0.5
MAX_IDLE_SECONDS = 60.0
RECONCILE_INTERVAL = 2.0
SURPLUS_DELAY = 0.05
MAX_RELEASED_CLAIMS = 10_000
_BINDS, _LANE = attrgetter("binds"), attrgetter("lane")


class StoreLoop:
    name = "store loop"

    def __init__(
        self,
        core: WorkerCore,
        jobs: JobStore,
        buffer: JobBuffer,
        fetcher: Fetcher,
        reporter: OutcomeReporter,
        wakeup: Wakeup,
        on_releasing: Callable[[], None],
        load_ahead: Callable[[Sequence[ClaimedJob]], Awaitable[None]],
    ) -> None:
        """`on_releasing`: called when parents have ended and not all of their children were followed; `load_ahead`: before
        claimed jobs that bind results of parents are given to slots."""
        self._clock = core.clock
        self._identity = core.identity
        self._store_clock = core.store_clock
        self._lane_check = core.lane_check
        self._jobs = jobs
        self._buffer = buffer
        self._fetcher = fetcher
        self._reporter = reporter
        self._wakeup = wakeup
        self._on_releasing = on_releasing
        self._load_ahead = load_ahead
        self._claim_backoff = OutageBackoff(core.clock, core.outage_reporter)
        self._outcome_backoff = OutageBackoff(core.clock, core.outage_reporter)
        self._upkeep_backoff = OutageBackoff(core.clock, FullStoreReporter(core.outage_reporter))
        self._outcome_limit = self._batch = core.settings.batch
        self._closing = False
        self._is_call_in_flight = False
        self._must_reconcile = False
        self._unknown_claims: set[tuple[JobId, int]] = set()
        self._released_claims: dict[tuple[JobId, int], None] = {}
        """Unknown ones that were released, oldest first: if their answer comes after all, they are no longer ours."""
        self._lost_instance: InstanceId | None = None
        """The id under which we were declared dead last."""
        self._ticked_at = self._reconciled_at = core.clock.monotonic()
        self._taken_count = 0

    def on_heartbeat(self, reply: HeartbeatReply) -> None:
        """If the store counts more running jobs than we hold, an answer may have been lost."""
        if reply.running > len(self._reporter.held):
            self._must_reconcile = True

    def on_lease_lost(self) -> None:
        """Claims under the current id are lost, those that are not answered yet too."""
        self._lost_instance = self._identity()
        self._released_claims.clear()

    def on_parked_answer(self, instance: InstanceId, answer: ClaimResult) -> None:
        """A parked claim got jobs."""
        if not self._has_claims_of(instance):
            return
        self._store_clock.record_answer(answer.now)
        if self._fetcher.capacity.in_flight or self._buffer.idle_slots < len(answer.jobs):
            # Another claim is in flight: both together may exceed the slots.
            self._clock.call_later(SURPLUS_DELAY, self._release_surplus)
        self._buffer_jobs(answer)
        self._fetcher.on_parked_jobs(answer.jobs)

    def _has_claims_of(self, instance: InstanceId) -> bool:
        """Whether what was claimed under this id is still ours. It was freed if that instance was declared dead."""
        return instance == self._identity() and instance != self._lost_instance

    def _release_surplus(self) -> None:
        """Release what no slot has taken by now, unless it is prefetched because jobs are short; under limits none is."""
        if not self._buffer or self._buffer.idle_slots:
            return
        if not self._fetcher.capacity.prefetch_limit:
            self._reporter.release(self._buffer.drain())
        elif limited := {job.id for job in self._buffer if self._lane_check.is_limited(job)}:
            self._reporter.release(self._buffer.remove(limited))

    def close(self) -> None:
        """Return from `run` once every outcome is reported."""
        self._closing = True
        self._wakeup.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as lanes:
            lanes.create_task(self._first_lane(), name="store loop, first lane")
            lanes.create_task(self._second_lane(), name="store loop, second lane")

    # Both lanes wait for the same wake-up. Neither awaits anything between its check and its wait.

    async def _first_lane(self) -> None:
        while True:
            self._wakeup.clear()
            claim = None if self._outcome_backoff.is_active else self._fetcher.next_claim()
            outcomes = self._reporter.take(self._outcome_limit)
            if claim is None and outcomes and len(outcomes) == len(self._reporter.held):
                claim = None if self._outcome_backoff.is_active else self._fetcher.next_parked_claim()
            if outcomes or claim:
                with self._wake_when_due():
                    await self._report_and_claim(outcomes, claim)
            elif self._closing:
                return
            else:
                await self._wakeup.wait(self._idle_timeout())
            await self._tick()

    async def _second_lane(self) -> None:
        half_batch = max(1, self._batch // 2)
        self._reporter.wake_threshold = half_batch
        while not self._closing:
            self._wakeup.clear()
            if self._outcome_backoff.is_active:  # one lane is enough to find out whether there is space again
                await self._wakeup.wait(TICK_INTERVAL)
                continue
            claim = self._fetcher.next_claim(at_least=half_batch)
            if claim or len(self._reporter) >= half_batch:
                await self._report_and_claim(self._reporter.take(self._batch), claim)
            elif self._is_call_in_flight and (claim := self._fetcher.next_idle_claim()):
                await self._report_and_claim([], claim)
            else:
                await self._wakeup.wait(None)

    @contextmanager
    def _wake_when_due(self) -> Iterator[None]:
        """While the first lane waits for an answer, it cannot see that a job falls due: wake the second lane for it."""
        delay = self._fetcher.seconds_until_poll
        timer = None if delay is None else self._clock.call_later(delay, self._wakeup.set)
        self._is_call_in_flight = True
        try:
            yield
        finally:
            self._is_call_in_flight = False
            if timer is not None:
                timer.cancel()

    def _idle_timeout(self) -> float:
        """Seconds to sleep without a wake-up. An idle worker only polls."""
        delay = self._fetcher.seconds_until_poll
        max_delay = TICK_INTERVAL if self._reporter.held else MAX_IDLE_SECONDS
        return max_delay if delay is None else min(delay, max_delay)

    async def _report_and_claim(self, outcomes: list[Outcome], claim: ClaimRequest | None) -> None:
        instance = self._identity()
        asked_at = self._clock.monotonic()
        try:
            answer = await self._jobs.report_and_claim(instance, outcomes, claim)
        except StoreUnavailable as error:
            if claim:
                self._fetcher.on_claim_failed(claim)
            self._must_reconcile = True
            await self._restore_outcomes(outcomes, error)
            return
        except StoreError as error:
            if claim:
                self._fetcher.on_claim_failed(claim)
            await self._isolate_refused(instance, outcomes, error)
            return
        self._claim_backoff.reset()
        if outcomes and self._outcome_backoff.is_active:
            self._outcome_limit = min(self._batch, 2 * self._outcome_limit)
            if self._outcome_limit == self._batch or not self._reporter:
                self._outcome_limit = self._batch
                self._outcome_backoff.reset()
        self._store_clock.record_answer(answer.now)
        self._reporter.apply_statuses(instance, outcomes, answer.statuses)
        if answer.is_releasing:
            self._on_releasing()
        if claim:
            if any(map(_BINDS, answer.jobs)):
                await self._load_ahead(answer.jobs)
            if self._has_claims_of(instance):
                self._buffer_jobs(answer)  # first: slots run before the lanes check again
            self._fetcher.on_answer(claim, answer, asked_at)

    async def _restore_outcomes(self, outcomes: list[Outcome], error: StoreUnavailable) -> None:
        """They were not accepted: report them again after a delay."""
        if not outcomes or not isinstance(error, StoreFull):
            self._reporter.restore(outcomes)
            await self._claim_backoff.wait(error)
            return
        self._outcome_limit = max(1, len(outcomes) // 2)
        self._reporter.restore(outcomes, at_end=len(outcomes) == 1)
        await self._outcome_backoff.wait(error)

    def _buffer_jobs(self, answer: ClaimResult) -> None:
        jobs = answer.jobs
        if self._released_claims:
            jobs = [job for job in jobs if (job.id, job.token) not in self._released_claims]
        for malformed in answer.malformed:
            self._reporter.hold([malformed.job])
            self._reporter.put(malformed_outcome(malformed, self._identity()))
        if self._fetcher.is_stopped:  # stopped while the claim was in flight
            self._reporter.hold(jobs)
            self._reporter.release(jobs)
        elif jobs:
            self._reporter.hold(jobs)
            if misplaced := self._lane_check.find_misplaced(jobs):
                jobs = self._move(jobs, misplaced)
            if any(map(_LANE, jobs)):
                first = [self._lane_check.is_limited(job) for job in jobs]
                self._buffer.put(itertools.compress(jobs, map(not_, first)), list(itertools.compress(jobs, first)))
            else:
                self._buffer.put(jobs)

    def _move(self, jobs: Sequence[ClaimedJob], misplaced: Sequence[Outcome]) -> list[ClaimedJob]:
        """Release jobs into the lanes where they belong. Returns the others."""
        for outcome in misplaced:
            self._reporter.put(outcome)
        moved = {outcome.id for outcome in misplaced}
        return [job for job in jobs if job.id not in moved]

    async def _isolate_refused(self, instance: InstanceId, outcomes: list[Outcome], error: StoreError) -> None:
        """The store refuses this batch: halve it until the bad outcome is alone, and report that one without its texts."""
        if type(error) is not StoreError:  # lost, or of another schema: nothing will be accepted
            raise error
        if not outcomes:
            # A claim: bad data in the store must not end a worker.
            await self._claim_backoff.wait(StoreUnavailable(error.reason))
            return
        if len(outcomes) > 1:
            middle = len(outcomes) // 2
            for half in (outcomes[:middle], outcomes[middle:]):
                await self._report_and_claim(half, None)
            return
        outcome = outcomes[0]
        facts = {"job": outcome.id, "reason": str(error)}
        has_result = outcome.kind is OutcomeKind.SUCCEEDED and outcome.result is not None
        lost = "the store refused the result" if has_result else None
        bare = replace(outcome, result=None, result_error=lost, error=None, blocked_on=None, follow_up=None)
        if bare == outcome:
            # The job stays claimed, and runs nowhere, until this process ends and other instances free it.
            log.error("the store refuses an outcome: its job stays claimed until this process exits", extra=facts)
            return
        log.error("the store refused an outcome: reported again without its texts", extra=facts)
        await self._report_and_claim([bare], None)

    async def _tick(self) -> None:
        now = self._clock.monotonic()
        if now - self._ticked_at < TICK_INTERVAL:
            return
        self._ticked_at = now
        self._reporter.emit_summary(self._identity())
        self._release_unused()
        try:
            await self._run_upkeep(now)
        except StoreUnavailable as error:
            self._upkeep_backoff.record_failure(error)  # the next tick tries again; outcomes and claims do not wait
        else:
            self._upkeep_backoff.reset()

    async def _run_upkeep(self, now: float) -> None:
        if progress := self._reporter.take_progress():
            try:
                await self._jobs.save_progress(self._identity(), progress)
            except StoreUnavailable:
                self._reporter.restore_progress(progress)
                raise
        if self._must_reconcile and now - self._reconciled_at >= RECONCILE_INTERVAL:
            await self._reconcile()

    def _release_unused(self) -> None:
        """If no job was taken from the buffer for a whole tick, release it: other workers may be idle."""
        if self._buffer and self._buffer.taken_count == self._taken_count:
            self._fetcher.capacity.on_stalled()
            self._reporter.release(self._buffer.drain())
        self._taken_count = self._buffer.taken_count

    async def _reconcile(self) -> None:
        """Release claims that the store has for us and that we do not hold, in two comparisons in a row."""
        instance = self._identity()
        try:
            running = await self._jobs.list_running(instance)
        finally:
            self._reconciled_at = self._clock.monotonic()  # from the answer, which may be late
        held = self._reporter.held
        missing = {(claim.id, claim.token) for claim in running if (claim.id, claim.token) not in held}
        lost = missing & self._unknown_claims
        self._remember_released(lost)
        self._unknown_claims = missing - lost
        self._must_reconcile = bool(self._unknown_claims)
        if lost:
            outcomes = [Outcome(id=id, token=token, kind=OutcomeKind.RELEASED) for id, token in sorted(lost)]
            reply = await self._jobs.report_and_claim(instance, outcomes, None)
            released = reply.statuses.count(WriteStatus.APPLIED)
            log.warning("claims whose answer was lost were released", extra={"jobs": released})

    def _remember_released(self, claims: set[tuple[JobId, int]]) -> None:
        """The answer to a parked claim may come much later, so none is forgotten while there is room."""
        self._released_claims |= dict.fromkeys(sorted(claims))
        for _ in range(len(self._released_claims) - MAX_RELEASED_CLAIMS):
            del self._released_claims[next(iter(self._released_claims))]
