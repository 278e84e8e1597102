"""When to claim, how many, and from which queues. Talks to nobody: exchange.py asks it and tells it what came.

A claim is made when there is room and a reason: a wake-up, the due moment of the next job, the poll beneath, or that the last
claim was filled (there may be more). Where the store keeps a claim that found nothing, whoever adds a job answers it: then one
goes with the last outcomes, so that an idle worker always has one there.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from drumbeat.clock import Clock, jitter
from drumbeat.core.claim import ClaimedJob, ClaimRequest, ClaimResult
from drumbeat.worker.buffer import JobBuffer
from drumbeat.worker.prefetch import Prefetch
from drumbeat.worker.queue_weights import QueueWeights
from drumbeat.worker.store_clock import StoreClockOffset

REST_INTERVAL = 0.1


class Fetcher:
    def __init__(
        self,
        clock: Clock,
        buffer: JobBuffer,
        queue_weights: QueueWeights,
        prefetch: Prefetch,
        *,
        batch_sizes: Mapping[str, int],
        max_claim: int,
        poll: float,
        wake: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._buffer = buffer
        self._queue_weights = queue_weights
        self._prefetch = prefetch
        self._batch_sizes = batch_sizes
        self._max_claim = max_claim
        self._poll = poll
        self._wake = wake
        self._clock_offset = StoreClockOffset()
        self._should_claim = True
        self._is_job_expected = False
        self._was_claim_filled = False
        self._can_park_claims = True
        self._parked_claim: ClaimRequest | None = None
        self._poll_at = 0.0
        self._due_at = 0.0
        self._jobs_per_slot = 1
        self._stopped = False
        self._stalled_count = -1
        self._in_flight = 0
        self.unblocks: tuple[str, ...] = ()

    def stop(self) -> None:
        """Claim nothing any more."""
        self._stopped = True

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def on_stalled(self) -> None:
        """What was held was not taken for long: hold nothing until a slot takes a job again."""
        self._stalled_count = self._buffer.taken_count

    def on_notification(self, run_at: int) -> None:
        """A hint: a job with this due moment may have come; 0: look now."""
        now = self._clock.monotonic()
        moment = self._clock_offset.to_local(run_at, now)
        if moment is None:
            moment = now + (run_at - self._clock.now_us()) / 1e6
        if moment <= now:
            self._should_claim = True
            self._is_job_expected = run_at > 0
        elif self._has_earlier_due(moment):
            return
        else:
            self._due_at = moment
            if moment >= self._poll_at:
                return  # it will be looked for before then anyway
            self._poll_at = moment
        self._wake()

    def set_unblocks(self, unblocks: tuple[str, ...]) -> None:
        """Jobs that other workers could not take, and this one can."""
        if unblocks and unblocks != self.unblocks:
            self._should_claim = True
            self._wake()
        self.unblocks = unblocks

    @property
    def prefetch_limit(self) -> int:
        """How many jobs may be held beyond those that run."""
        return 0 if self._buffer.taken_count == self._stalled_count else self._prefetch.limit

    @property
    def has_claim_in_flight(self) -> bool:
        """A claim is under way."""
        return self._in_flight > 0

    @property
    def capacity(self) -> int:
        """How many more jobs may be held. A batch task's idle slot takes a whole batch."""
        ahead = self.prefetch_limit
        self._buffer.low_watermark = ahead // 2
        held = len(self._buffer) + self._in_flight
        return min(self._max_claim, ahead + self._buffer.idle_slots * self._jobs_per_slot - held)

    def next_claim(self, at_least: int = 1) -> ClaimRequest | None:
        """What to ask for now; None: nothing, or not as many. `got` or `failed` must follow."""
        if not self._has_reason() or not self._has_capacity():
            return None
        room = self.capacity
        if room < at_least:
            return None
        now = self._clock.monotonic()
        queues = self._queue_weights.divide(room)
        if not queues:  # all of them rest
            self._should_claim = self._was_claim_filled = False
            self._poll_at = now + REST_INTERVAL
            return None
        self._in_flight += room
        # Before the question: a hint that arrives while it is under way must not be lost.
        expected = self._is_job_expected or 0.0 < self._due_at <= now
        self._should_claim = self._is_job_expected = False
        if self._due_at <= now:
            self._due_at = 0.0
        if self._poll_at <= now:  # the answer will tell better; until then the other lane does not ask the same
            self._poll_at = self._due_at or now + jitter(self._poll)
        return ClaimRequest(queues=queues, limit=room, unblocks=self.unblocks, is_expected=expected)

    def next_parked_claim(self) -> ClaimRequest | None:
        """As `claim`, for when nothing is held any more, though it may not be time; None: the store keeps no claims."""
        if not self._can_park_claims:
            return None
        self._should_claim = True
        self._parked_claim = self.next_claim()
        return self._parked_claim

    def next_idle_claim(self) -> ClaimRequest | None:
        """As `claim`, for when a call is under way that claims nothing: only if idle slots would wait for its answer."""
        return None if self._in_flight or self._buffer else self.next_claim()

    def on_answer(self, claim: ClaimRequest, answer: ClaimResult, asked_at: float) -> None:
        """What the claim gave, and when it was asked for by the local monotonic clock."""
        jobs = answer.jobs
        self._clock_offset.record_answer(answer.now, asked_at)
        self._in_flight -= claim.limit
        self._queue_weights.record_claim(claim.queues, Counter(job.queue for job in jobs), claim.limit)
        self._note_batch_size(jobs)
        if answer.parked_claim or (claim is self._parked_claim and not jobs):
            self._can_park_claims = answer.parked_claim
        self._was_claim_filled = len(jobs) + len(answer.malformed) >= claim.limit
        if self._was_claim_filled:
            self._should_claim = self._is_job_expected = True
            return
        now = self._clock.monotonic()
        self._poll_at = now + jitter(self._poll)
        if answer.next_due_at is not None:
            moment = self._clock_offset.to_local(answer.next_due_at, now)
            if moment is not None and not self._has_earlier_due(moment):
                self._due_at = moment
        if 0.0 < self._due_at < self._poll_at:
            self._poll_at = self._due_at
        self._wake()  # the other lane may sleep for longer than that

    def on_parked_jobs(self, jobs: Sequence[ClaimedJob]) -> None:
        """What a claim has got that stood. When it was made each queue was empty, so no turn was passed over."""
        self._note_batch_size(jobs)
        self._wake()

    def on_claim_failed(self, claim: ClaimRequest) -> None:
        """The claim was not answered."""
        self._in_flight -= claim.limit
        self._queue_weights.record_claim(claim.queues, {}, 0)
        self._should_claim = True

    @property
    def seconds_until_poll(self) -> float | None:
        """Seconds until the next look, when nothing happens before; None: there is no room, so no use in looking."""
        if not self._has_capacity():
            return None
        return 0.0 if self._has_reason() else self._poll_at - self._clock.monotonic()

    def _note_batch_size(self, jobs: Sequence[ClaimedJob]) -> None:
        if jobs:
            self._jobs_per_slot = min(self._batch_sizes.get(job.task, 1) for job in jobs)

    def _has_earlier_due(self, moment: float) -> bool:
        """A due moment stays known until it has passed: an answer may be older than a hint that came before it."""
        return 0.0 < self._due_at <= moment

    def _has_capacity(self) -> bool:
        if self._stopped:
            return False
        room = self.capacity
        # With jobs at hand, a few places are not worth a round trip: it comes when half of them are gone.
        return room > 0 and (len(self._buffer) <= self._buffer.low_watermark or room >= self._max_claim // 2)

    def _has_reason(self) -> bool:
        # While claims are filled both lanes go on, without a word from the one that is under way.
        return self._should_claim or self._was_claim_filled or self._clock.monotonic() >= self._poll_at
