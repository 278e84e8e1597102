"""The conversation with the store: outcomes out, jobs in, in one round trip.

    slots -> reporter -> |exchange| -> store
    slots <- buffer  <-  |        | <-

Two lanes do the same: the first takes whatever there is; the second joins only when half a batch has come together while the
first is under way, so that under load the store always has the next call at hand, and otherwise batches are not torn. It also
claims what falls due while the first only tells outcomes: these wait for the disk, a claim on an idle slot need not.

What the store believes to be running under this instance and what is held here are compared when an answer may have been lost:
claims that we do not know of are released, but only what was missing at two looks two seconds apart, since a call under way,
or an abandoned one, may still take effect after the first.

A store that is full may refuse outcomes and answer everything else. They are kept, and told in smaller and smaller parts, in
turn, because what frees space, or needs little, may be taken; nothing is claimed meanwhile, or they would pile up here.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from drumbeat.clock import Clock
from drumbeat.core.claim import ClaimRequest, ClaimResult, Outcome, WriteStatus
from drumbeat.core.instance import HeartbeatReply
from drumbeat.core.job import OutcomeKind
from drumbeat.errors import StoreError, StoreFull, StoreUnavailable
from drumbeat.ids import InstanceId, JobId
from drumbeat.outage import FullStoreReporter, OutageReporter
from drumbeat.service import OutageBackoff, Wakeup
from drumbeat.store.protocol import JobStore
from drumbeat.worker.buffer import JobBuffer
from drumbeat.worker.fetcher import Fetcher
from drumbeat.worker.reporter import OutcomeReporter
from drumbeat.worker.result import malformed_outcome
from drumbeat.worker.store_clock import StoreClock

log = logging.getLogger(__name__)

TICK_INTERVAL = 0.5
RECONCILE_INTERVAL = 2.0
SURPLUS_DELAY = 0.05


class StoreLoop:
    name = "exchange"

    def __init__(
        self,
        jobs: JobStore,
        clock: Clock,
        buffer: JobBuffer,
        fetcher: Fetcher,
        reporter: OutcomeReporter,
        outage: OutageReporter,
        wakeup: Wakeup,
        *,
        batch: int,
        identity: Callable[[], InstanceId],
    ) -> None:
        self._jobs = jobs
        self._clock = clock
        self._buffer = buffer
        self._fetcher = fetcher
        self._reporter = reporter
        self._claim_backoff, self._outcome_backoff = OutageBackoff(clock, outage), OutageBackoff(clock, outage)
        self._upkeep_backoff = OutageBackoff(clock, FullStoreReporter(outage))
        self._wakeup = wakeup
        self._batch = batch
        self._outcome_limit = batch
        self._identity = identity
        self._store_clock = StoreClock()
        self._closing = False
        self._is_call_in_flight = False
        self._must_reconcile = False
        self._unknown_claims: set[tuple[JobId, int]] = set()
        self._ticked_at = self._reconciled_at = clock.monotonic()
        self._taken_count = 0

    def store_now(self) -> int:
        """The store's clock, as known from its answers."""
        return self._store_clock.now_us(self._clock.now_us())

    def on_heartbeat(self, pulse: HeartbeatReply) -> None:
        """The store counts more jobs of ours than we hold: an answer may have been lost."""
        if pulse.running > len(self._reporter.held):
            self._must_reconcile = True

    def on_parked_answer(self, instance: InstanceId, answer: ClaimResult) -> None:
        """A claim that stood got jobs. Those of an instance that we are no longer were rescued with all that it had."""
        if instance != self._identity():
            return
        self._store_clock.record_answer(answer.now, self._clock.now_us())
        if self._fetcher.has_claim_in_flight or self._buffer.idle_slots < len(answer.jobs):
            # Given while another claim was under way: both together may be more than there are slots.
            self._clock.call_later(SURPLUS_DELAY, self._release_surplus)
        self._buffer_jobs(answer)
        self._fetcher.on_parked_jobs(answer.jobs)

    def _release_surplus(self) -> None:
        """What no slot has taken by now goes to others, unless it is held because jobs are short."""
        if self._buffer and not self._buffer.idle_slots and not self._fetcher.prefetch_limit:
            self._reporter.release(self._buffer.drain())

    def close(self) -> None:
        """Return from `run` once every outcome is told."""
        self._closing = True
        self._wakeup.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as lanes:
            lanes.create_task(self._first_lane(), name="exchange, first lane")
            lanes.create_task(self._second_lane(), name="exchange, second lane")

    # Both lanes wait for the same wake-up: it wakes both, and neither waits between its look and its wait.

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
        enough = max(1, self._batch // 2)
        self._reporter.wake_threshold = enough
        while not self._closing:
            self._wakeup.clear()
            if self._outcome_backoff.is_active:  # one lane is enough to try whether it has space again
                await self._wakeup.wait(TICK_INTERVAL)
                continue
            claim = self._fetcher.next_claim(at_least=enough)
            if claim or len(self._reporter) >= enough:
                await self._report_and_claim(self._reporter.take(self._batch), claim)
            elif self._is_call_in_flight and (claim := self._fetcher.next_idle_claim()):
                await self._report_and_claim([], claim)
            else:
                await self._wakeup.wait(None)

    @contextmanager
    def _wake_when_due(self) -> Iterator[None]:
        """While the first lane waits for an answer, it does not see that a job falls due: have the second woken for it."""
        patience = self._fetcher.seconds_until_poll
        timer = None if patience is None else self._clock.call_later(patience, self._wakeup.set)
        self._is_call_in_flight = True
        try:
            yield
        finally:
            self._is_call_in_flight = False
            if timer is not None:
                timer.cancel()

    def _idle_timeout(self) -> float:
        """Seconds until something must be done though nothing happened. Quiet when idle: only the fetcher's poll."""
        patience = self._fetcher.seconds_until_poll
        longest = TICK_INTERVAL if self._reporter.held else 60.0
        return longest if patience is None else min(patience, longest)

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
        self._store_clock.record_answer(answer.now, self._clock.now_us())
        self._reporter.apply_statuses(instance, outcomes, answer.statuses)
        if claim:
            self._handle_answer(claim, answer, asked_at)

    async def _restore_outcomes(self, outcomes: list[Outcome], error: StoreUnavailable) -> None:
        """They were not taken: tell them again after a while."""
        if not outcomes or not isinstance(error, StoreFull):
            self._reporter.restore(outcomes)
            await self._claim_backoff.wait(error)
            return
        self._outcome_limit = max(1, len(outcomes) // 2)
        self._reporter.restore(outcomes, at_end=len(outcomes) == 1)
        await self._outcome_backoff.wait(error)

    def _handle_answer(self, claim: ClaimRequest, answer: ClaimResult, asked_at: float) -> None:
        self._buffer_jobs(answer)  # first: slots run before the lanes look again
        self._fetcher.on_answer(claim, answer, asked_at)

    def _buffer_jobs(self, answer: ClaimResult) -> None:
        jobs = answer.jobs
        for malformed in answer.malformed:
            self._reporter.hold([malformed.job])
            self._reporter.put(malformed_outcome(malformed, self._identity()))
        if self._fetcher.is_stopped:  # asked to stop while they were under way
            self._reporter.hold(jobs)
            self._reporter.release(jobs)
        elif jobs:
            self._reporter.hold(jobs)
            self._buffer.put(jobs)

    async def _isolate_refused(self, instance: InstanceId, outcomes: list[Outcome], error: StoreError) -> None:
        """The store refuses this batch: halve it until the bad one is alone, and tell that one without its texts."""
        if type(error) is not StoreError:  # lost, or of another schema: nothing will be taken
            raise error
        if not outcomes:
            # A claim: nothing that is stored may end a worker, and whoever reads the log mends the store.
            await self._claim_backoff.wait(StoreUnavailable(error.reason))
            return
        if len(outcomes) > 1:
            middle = len(outcomes) // 2
            for half in (outcomes[:middle], outcomes[middle:]):
                await self._report_and_claim(half, None)
            return
        bare = Outcome(
            id=outcomes[0].id,
            token=outcomes[0].token,
            kind=outcomes[0].kind,
            delay=outcomes[0].delay,
            started_at=outcomes[0].started_at,
            finished_at=outcomes[0].finished_at,
            result_error="the store refused the result"
            if outcomes[0].kind is OutcomeKind.SUCCEEDED and outcomes[0].result is not None
            else None,
        )
        if bare == outcomes[0]:
            # It stays ours, and runs nowhere, until this process ends and others find it.
            log.error("the store refuses to hear how a job ended", extra={"job": bare.id, "reason": str(error)})
            return
        log.error("the store refused an outcome: told without its texts", extra={"job": bare.id, "reason": str(error)})
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
            self._upkeep_backoff.record_failure(
                error
            )  # the next tick tries again; outcomes and claims do not wait for it
        else:
            self._upkeep_backoff.reset()

    async def _run_upkeep(self, now: float) -> None:
        if notes := self._reporter.take_progress():
            try:
                await self._jobs.save_progress(self._identity(), notes)
            except StoreUnavailable:
                self._reporter.restore_progress(notes)
                raise
        if self._must_reconcile and now - self._reconciled_at >= RECONCILE_INTERVAL:
            self._reconciled_at = now
            await self._reconcile()

    def _release_unused(self) -> None:
        """Nothing was taken from the buffer for a whole tick: others may be idle, so it goes back."""
        if self._buffer and self._buffer.taken_count == self._taken_count:
            self._fetcher.on_stalled()
            self._reporter.release(self._buffer.drain())
        self._taken_count = self._buffer.taken_count

    async def _reconcile(self) -> None:
        """Release claims that the store believes are ours and that we do not hold, seen so at two looks."""
        instance = self._identity()
        held = self._reporter.held
        missing = {
            (hold.id, hold.token)
            for hold in await self._jobs.list_running(instance)
            if (hold.id, hold.token) not in held
        }
        lost = missing & self._unknown_claims
        self._unknown_claims = missing - lost
        self._must_reconcile = bool(self._unknown_claims)
        if lost:
            outcomes = [Outcome(id=id, token=token, kind=OutcomeKind.RELEASED) for id, token in sorted(lost)]
            reply = await self._jobs.report_and_claim(instance, outcomes, None)
            released = reply.statuses.count(WriteStatus.APPLIED)
            log.warning("claims whose answer was lost were released", extra={"jobs": released})
