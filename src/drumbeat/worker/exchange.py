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
from drumbeat.errors import StoreError, StoreFull, StoreUnavailable
from drumbeat.ids import InstanceId, JobId
from drumbeat.model.instance import Pulse
from drumbeat.model.job import Claim, Exchanged, Hold, Outcome, OutcomeKind
from drumbeat.outage import OnlyFull, Outage
from drumbeat.service import Patience, Wakeup
from drumbeat.store.protocol import Jobs
from drumbeat.worker.buffer import Buffer
from drumbeat.worker.ending import end_malformed
from drumbeat.worker.fetcher import Fetcher
from drumbeat.worker.moments import StoreClock
from drumbeat.worker.reporter import Reporter

log = logging.getLogger(__name__)

TICK = 0.5
RECONCILE_EVERY = 2.0
SURPLUS_DELAY = 0.05


class Exchange:
    name = "exchange"

    def __init__(
        self,
        jobs: Jobs,
        clock: Clock,
        buffer: Buffer,
        fetcher: Fetcher,
        reporter: Reporter,
        outage: Outage,
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
        self._patience, self._telling = Patience(clock, outage), Patience(clock, outage)
        self._minding = Patience(clock, OnlyFull(outage))
        self._wakeup = wakeup
        self._batch = batch
        self._portion = batch
        self._identity = identity
        self._store_clock = StoreClock()
        self._closing = False
        self._is_talking = False
        self._suspicious = False
        self._missing: set[tuple[JobId, int]] = set()
        self._ticked_at = self._reconciled_at = clock.monotonic()
        self._taken = 0

    def store_now(self) -> int:
        """The store's clock, as known from its answers."""
        return self._store_clock.now_us(self._clock.now_us())

    def hear(self, pulse: Pulse) -> None:
        """The store counts more jobs of ours than we hold: an answer may have been lost."""
        if pulse.running > len(self._reporter.held):
            self._suspicious = True

    def receive(self, instance: InstanceId, answer: Exchanged) -> None:
        """A claim that stood got jobs. Those of an instance that we are no longer were rescued with all that it had."""
        if instance != self._identity():
            return
        self._store_clock.heard(answer.now, self._clock.now_us())
        if self._fetcher.is_asking or self._buffer.idle < len(answer.jobs):
            # Given while another claim was under way: both together may be more than there are slots.
            self._clock.later(SURPLUS_DELAY, self._give_back_surplus)
        self._accept(answer)
        self._fetcher.given(answer.jobs)

    def _give_back_surplus(self) -> None:
        """What no slot has taken by now goes to others, unless it is held because jobs are short."""
        if self._buffer and not self._buffer.idle and not self._fetcher.ahead:
            self._reporter.give_back(self._buffer.empty())

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
            claim = None if self._telling.is_out else self._fetcher.claim()
            outcomes = self._reporter.take(self._portion)
            if claim is None and outcomes and len(outcomes) == len(self._reporter.held):
                claim = None if self._telling.is_out else self._fetcher.claim_to_stand()
            if outcomes or claim:
                with self._alarm():
                    await self._talk(outcomes, claim)
            elif self._closing:
                return
            else:
                await self._wakeup.wait(self._pause())
            await self._tick()

    async def _second_lane(self) -> None:
        enough = max(1, self._batch // 2)
        self._reporter.enough = enough
        while not self._closing:
            self._wakeup.clear()
            if self._telling.is_out:  # one lane is enough to try whether it has space again
                await self._wakeup.wait(TICK)
                continue
            claim = self._fetcher.claim(at_least=enough)
            if claim or len(self._reporter) >= enough:
                await self._talk(self._reporter.take(self._batch), claim)
            elif self._is_talking and (claim := self._fetcher.claim_at_once()):
                await self._talk([], claim)
            else:
                await self._wakeup.wait(None)

    @contextmanager
    def _alarm(self) -> Iterator[None]:
        """While the first lane waits for an answer, it does not see that a job falls due: have the second woken for it."""
        patience = self._fetcher.patience
        timer = None if patience is None else self._clock.later(patience, self._wakeup.set)
        self._is_talking = True
        try:
            yield
        finally:
            self._is_talking = False
            if timer is not None:
                timer.cancel()

    def _pause(self) -> float:
        """Seconds until something must be done though nothing happened. Quiet when idle: only the fetcher's poll."""
        patience = self._fetcher.patience
        longest = TICK if self._reporter.held else 60.0
        return longest if patience is None else min(patience, longest)

    async def _talk(self, outcomes: list[Outcome], claim: Claim | None) -> None:
        instance = self._identity()
        asked_at = self._clock.monotonic()
        try:
            answer = await self._jobs.exchange(instance, outcomes, claim)
        except StoreUnavailable as error:
            if claim:
                self._fetcher.failed(claim)
            self._suspicious = True
            await self._keep(outcomes, error)
            return
        except StoreError as error:
            if claim:
                self._fetcher.failed(claim)
            await self._tell_apart(instance, outcomes, error)
            return
        self._patience.over()
        if outcomes and self._telling.is_out:
            self._portion = min(self._batch, 2 * self._portion)
            if self._portion == self._batch or not self._reporter:
                self._portion = self._batch
                self._telling.over()
        self._store_clock.heard(answer.now, self._clock.now_us())
        self._reporter.told(instance, outcomes, answer.verdicts)
        if claim:
            self._welcome(claim, answer, asked_at)

    async def _keep(self, outcomes: list[Outcome], error: StoreUnavailable) -> None:
        """They were not taken: tell them again after a while."""
        if not outcomes or not isinstance(error, StoreFull):
            self._reporter.restore(outcomes)
            await self._patience.suffer(error)
            return
        self._portion = max(1, len(outcomes) // 2)
        self._reporter.restore(outcomes, last=len(outcomes) == 1)
        await self._telling.suffer(error)

    def _welcome(self, claim: Claim, answer: Exchanged, asked_at: float) -> None:
        self._accept(answer)  # first: slots run before the lanes look again
        self._fetcher.got(claim, answer, asked_at)

    def _accept(self, answer: Exchanged) -> None:
        jobs = answer.jobs
        for malformed in answer.malformed:
            self._reporter.hold([malformed.job])
            self._reporter.put(end_malformed(malformed, self._identity()))
        if self._fetcher.is_stopped:  # asked to stop while they were under way
            self._reporter.hold(jobs)
            self._reporter.give_back(jobs)
        elif jobs:
            self._reporter.hold(jobs)
            self._buffer.put(jobs)

    async def _tell_apart(self, instance: InstanceId, outcomes: list[Outcome], error: StoreError) -> None:
        """The store refuses this batch: halve it until the bad one is alone, and tell that one without its texts."""
        if type(error) is not StoreError:  # lost, or of another schema: nothing will be taken
            raise error
        if not outcomes:
            # A claim: nothing that is stored may end a worker, and whoever reads the log mends the store.
            await self._patience.suffer(StoreUnavailable(error.reason))
            return
        if len(outcomes) > 1:
            middle = len(outcomes) // 2
            for half in (outcomes[:middle], outcomes[middle:]):
                await self._talk(half, None)
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
        await self._talk([bare], None)

    async def _tick(self) -> None:
        now = self._clock.monotonic()
        if now - self._ticked_at < TICK:
            return
        self._ticked_at = now
        self._reporter.summarise(self._identity())
        self._unhoard()
        try:
            await self._mind(now)
        except StoreUnavailable as error:
            self._minding.failed(error)  # the next tick tries again; outcomes and claims do not wait for it
        else:
            self._minding.over()

    async def _mind(self, now: float) -> None:
        if notes := self._reporter.take_notes():
            try:
                await self._jobs.note(self._identity(), notes)
            except StoreUnavailable:
                self._reporter.restore_notes(notes)
                raise
        if self._suspicious and now - self._reconciled_at >= RECONCILE_EVERY:
            self._reconciled_at = now
            await self._reconcile()

    def _unhoard(self) -> None:
        """Nothing was taken from the buffer for a whole tick: others may be idle, so it goes back."""
        if self._buffer and self._buffer.taken == self._taken:
            self._fetcher.stalled()
            self._reporter.give_back(self._buffer.empty())
        self._taken = self._buffer.taken

    async def _reconcile(self) -> None:
        """Release claims that the store believes are ours and that we do not hold, seen so at two looks."""
        instance = self._identity()
        held = self._reporter.held
        missing = {
            (hold.id, hold.token) for hold in await self._jobs.running(instance) if (hold.id, hold.token) not in held
        }
        lost = missing & self._missing
        self._missing = missing - lost
        self._suspicious = bool(self._missing)
        if lost:
            released = await self._jobs.release(instance, [Hold(id, token) for id, token in sorted(lost)])
            log.warning("claims whose answer was lost were released", extra={"jobs": released})
