"""When to claim jobs, how many, and from which queues. Does no I/O: store_loop.py asks for claims and passes in the answers.

                notification, failed claim
    WAITING ---------------------------------> NOTIFIED         STREAMING_NOTIFIED <--full answer-- any state
       ^                                          |                |          ^
       +---------------- next_claim --------------+           next_claim   notification, failed claim
                                                                   v          |
    partial answer: STREAMING -> WAITING,                       STREAMING ----+
                    STREAMING_NOTIFIED -> NOTIFIED
    all queues rest: any state -> WAITING, for REST_INTERVAL.  stop: any state -> STOPPED

WAITING claims when the poll, or the next known job, is due; the other states claim as soon as there is capacity. After a full
answer there may be more jobs, so both lanes of the store loop keep claiming (STREAMING). A notification is a state of its own
in both cases: one that arrives while a claim is in flight must survive its answer.

Jobs under limits are claimed for free slots only. Where the store has some and the claim had no slot for them, nothing is
prefetched until a slot is free, which is a reason to claim in every state.

Where the store parks a claim that found nothing, the next enqueue answers it. So one is sent along with the last outcomes,
and an idle worker always has one parked.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from drumbeat.clock import Clock, jitter
from drumbeat.core.claim import ClaimedJob, ClaimRequest, ClaimResult
from drumbeat.worker.buffer import JobBuffer
from drumbeat.worker.prefetch import Prefetch
from drumbeat.worker.queue_weights import QueueWeights
from drumbeat.worker.store_clock import StoreClockOffset

REST_INTERVAL = 0.1
CAUTIOUS_ANSWERS = 64
"""After jobs under limits had to wait for slots, at most one job for each slot is prefetched for so many answers: there will be
more of them as soon as the first have ended, and they would wait behind all that is prefetched."""


class FetchState(Enum):
    WAITING = "waiting"
    NOTIFIED = "notified"
    STREAMING = "streaming"
    STREAMING_NOTIFIED = "streaming, notified"
    STOPPED = "stopped"


WAITING, NOTIFIED, STREAMING, STREAMING_NOTIFIED, STOPPED = FetchState
_ON_NOTIFICATION = {WAITING: NOTIFIED, STREAMING: STREAMING_NOTIFIED}
_ON_CLAIM = {NOTIFIED: WAITING, STREAMING_NOTIFIED: STREAMING}
_ON_FULL_ANSWER = dict.fromkeys(FetchState, STREAMING_NOTIFIED)
_ON_REST = dict.fromkeys(FetchState, WAITING)
_ON_PARTIAL_ANSWER = {STREAMING: WAITING, STREAMING_NOTIFIED: NOTIFIED}


class FetchTimer:
    """When to claim next without a notification: at the poll, or at the next known due time. Local monotonic times."""

    def __init__(self, clock: Clock, poll: float) -> None:
        self._clock = clock
        self._poll = poll
        self.offset = StoreClockOffset()
        self._poll_at = 0.0
        self._due_at = 0.0
        """The next known due time; 0: none. Kept until it has passed: an answer may be older than a notification before it."""

    @property
    def is_due(self) -> bool:
        return self._clock.monotonic() >= self._poll_at

    @property
    def seconds_left(self) -> float:
        return self._poll_at - self._clock.monotonic()

    @property
    def due_at(self) -> float | None:
        """When the next known job is due, by the local clock."""
        return self._due_at or None

    def delay(self, seconds: float) -> None:
        self._poll_at = self._clock.monotonic() + seconds

    def is_past(self, run_at: int) -> bool:
        """Whether a job with this due time, by the store's clock, can be claimed now; 0: yes."""
        now = self._clock.monotonic()
        return self._to_local(run_at, now) <= now

    def add_due(self, run_at: int) -> bool:
        """A job falls due at this time of the store's clock. Returns whether the next claim is earlier now."""
        due_at = self._to_local(run_at, self._clock.monotonic())
        if not self._set_due(due_at) or due_at >= self._poll_at:
            return False
        self._poll_at = due_at
        return True

    def take_due(self) -> bool:
        """A claim is made: forget a due time that has passed. Returns whether there was one."""
        now = self._clock.monotonic()
        was_due = 0.0 < self._due_at <= now
        if was_due:
            self._due_at = 0.0
        if self._poll_at <= now:  # until the answer is there, so that the other lane does not claim as well
            self._poll_at = self._due_at or now + jitter(self._poll)
        return was_due

    def rearm(self, next_due_at: int | None) -> None:
        """A claim was not filled; `next_due_at`: when the store's next job is due."""
        now = self._clock.monotonic()
        self._poll_at = now + jitter(self._poll)
        if next_due_at is not None:
            self._set_due(self._to_local(next_due_at, now))
        if 0.0 < self._due_at < self._poll_at:
            self._poll_at = self._due_at

    def _set_due(self, due_at: float) -> bool:
        if 0.0 < self._due_at <= due_at:
            return False
        self._due_at = due_at
        return True

    def _to_local(self, run_at: int, now: float) -> float:
        local = self.offset.to_local(run_at, now)
        return now + (run_at - self._clock.now_us()) / 1e6 if local is None else local


class FetchCapacity:
    """How many jobs may be claimed."""

    def __init__(
        self, buffer: JobBuffer, prefetch: Prefetch, *, batch_sizes: Mapping[str, int], max_claim: int
    ) -> None:
        self._buffer = buffer
        self._prefetch = prefetch
        self._batch_sizes = batch_sizes
        self._max_claim = max_claim
        self._jobs_per_slot = 1
        self._stalled_count = -1
        self.in_flight = 0
        """Jobs asked for by claims that are not answered yet: two lanes may claim at once."""
        self.has_limited = False
        """Jobs under limits are due and have room, but the last claim had no slot left for them. Nothing is prefetched
        meanwhile, or the slots would never be free."""
        self._cautious_answers = 0

    @property
    def prefetch_limit(self) -> int:
        """How many jobs may be held beyond those that run."""
        if self.has_limited or self._buffer.taken_count == self._stalled_count:
            return 0
        limit = self._prefetch.limit
        return min(limit, self._prefetch.concurrency) if self._cautious_answers else limit

    @property
    def free_slots(self) -> int:
        """How many slots wait, without those that held jobs and claims in flight may take."""
        return max(0, self._buffer.idle_slots - len(self._buffer) - self.in_flight)

    @property
    def has_idle_buffer(self) -> bool:
        """Nothing is held and nothing is on its way."""
        return not self.in_flight and not self._buffer

    def next_limit(self) -> int:
        """How many jobs to claim now; 0: none. Updates the buffer's low watermark."""
        prefetch = self.prefetch_limit
        self._buffer.low_watermark = prefetch // 2
        held = len(self._buffer) + self.in_flight
        # An idle slot of a batch task takes a whole batch.
        limit = min(self._max_claim, prefetch + self._buffer.idle_slots * self._jobs_per_slot - held)
        # With jobs at hand, a few are not worth a round trip: it comes when half of them are taken.
        is_worthwhile = len(self._buffer) <= self._buffer.low_watermark or limit >= self._max_claim // 2
        return limit if limit > 0 and is_worthwhile else 0

    def record_limited(self, has_limited: bool) -> None:
        """What an answer says of jobs under limits."""
        self.has_limited = has_limited
        self._cautious_answers = CAUTIOUS_ANSWERS if has_limited else max(0, self._cautious_answers - 1)

    def record_jobs(self, jobs: Sequence[ClaimedJob]) -> None:
        if jobs:
            self._jobs_per_slot = min(self._batch_sizes.get(job.task, 1) for job in jobs)

    def on_stalled(self) -> None:
        """Prefetched jobs were not taken for long: prefetch nothing until a slot takes a job again."""
        self._stalled_count = self._buffer.taken_count


class ParkedClaims:
    """Whether the store parks claims: assumed until a claim of ours that should be parked comes back empty-handed."""

    def __init__(self) -> None:
        self.is_supported = True
        self._claim: ClaimRequest | None = None

    def send(self, claim: ClaimRequest | None) -> None:
        self._claim = claim

    def record_answer(self, claim: ClaimRequest, answer: ClaimResult) -> None:
        if answer.parked_claim or (claim is self._claim and not answer.jobs):
            self.is_supported = answer.parked_claim


class Fetcher:
    def __init__(
        self, timer: FetchTimer, capacity: FetchCapacity, queue_weights: QueueWeights, wake: Callable[[], None]
    ) -> None:
        self.timer = timer
        self.capacity = capacity
        self._queue_weights = queue_weights
        self._wake = wake
        self._parked = ParkedClaims()
        self._is_job_expected = False
        self._unblocks: tuple[str, ...] = ()
        self.state = NOTIFIED

    def stop(self) -> None:
        self.state = STOPPED

    @property
    def queues(self) -> tuple[str, ...]:
        """All that are served."""
        return self._queue_weights.queues

    @property
    def is_stopped(self) -> bool:
        return self.state is STOPPED

    def on_notification(self, run_at: int) -> None:
        """A hint: a job with this due time may have come; 0: it is due now."""
        if self.timer.is_past(run_at):
            self._change(_ON_NOTIFICATION)
            self._is_job_expected = run_at > 0
            self._wake()
        elif self.timer.add_due(run_at):
            self._wake()

    def set_unblocks(self, unblocks: tuple[str, ...]) -> None:
        """What this worker can run and other workers could not: jobs blocked on it may be claimed."""
        if unblocks and unblocks != self._unblocks:
            self._change(_ON_NOTIFICATION)
            self._wake()
        self._unblocks = unblocks

    def next_claim(self, at_least: int = 1) -> ClaimRequest | None:
        """The claim to make now; None: none, or not for as many. `on_answer` or `on_claim_failed` must follow."""
        if not self._has_reason():
            return None
        limit = self._next_limit()
        if limit < at_least:
            return None
        queues = self._queue_weights.divide(limit)
        if not queues:  # all of them rest
            self._change(_ON_REST)
            self.timer.delay(REST_INTERVAL)
            return None
        slots = self.capacity.free_slots
        self.capacity.in_flight += limit
        # Before the claim is sent: a notification that arrives while it is in flight must not be lost.
        was_due = self.timer.take_due()
        is_expected, self._is_job_expected = self._is_job_expected or was_due, False
        self._change(_ON_CLAIM)
        return ClaimRequest(queues=queues, limit=limit, unblocks=self._unblocks, slots=slots, is_expected=is_expected)

    def next_parked_claim(self) -> ClaimRequest | None:
        """As `next_claim`, to be parked although nothing is due; None also where the store parks no claims."""
        if not self._parked.is_supported:
            return None
        self._change(_ON_NOTIFICATION)
        claim = self.next_claim()
        self._parked.send(claim)
        return claim

    def next_idle_claim(self) -> ClaimRequest | None:
        """As `next_claim`, while a call without a claim is in flight: only if idle slots would wait for its answer."""
        return self.next_claim() if self.capacity.has_idle_buffer else None

    def on_answer(self, claim: ClaimRequest, answer: ClaimResult, asked_at: float) -> None:
        """The answer to a claim that was sent at this local monotonic time."""
        jobs = answer.jobs
        self.timer.offset.record_answer(answer.now, asked_at)
        self.capacity.in_flight -= claim.limit
        self.capacity.record_limited(answer.has_limited)
        self.capacity.record_jobs(jobs)
        self._queue_weights.record_claim(claim.queues, Counter(job.queue for job in jobs), claim.limit)
        self._parked.record_answer(claim, answer)
        if len(jobs) + len(answer.malformed) >= claim.limit:
            self._change(_ON_FULL_ANSWER)
            self._is_job_expected = True
            return
        self._change(_ON_PARTIAL_ANSWER)
        self.timer.rearm(answer.next_due_at)
        self._wake()  # the other lane may sleep for longer than that

    def on_parked_jobs(self, jobs: Sequence[ClaimedJob]) -> None:
        """The jobs of a parked claim. Every queue was empty when it was made, so queue weights need no correction."""
        self.capacity.record_jobs(jobs)
        self._wake()

    def on_claim_failed(self, claim: ClaimRequest) -> None:
        """The claim was not answered."""
        self.capacity.in_flight -= claim.limit
        self._queue_weights.record_claim(claim.queues, {}, 0)
        self._change(_ON_NOTIFICATION)

    @property
    def seconds_until_poll(self) -> float | None:
        """Seconds until the next claim if nothing happens before; None: there is no capacity for one."""
        if not self._next_limit():
            return None
        return 0.0 if self._has_reason() else self.timer.seconds_left

    def _has_reason(self) -> bool:
        awaits_slots = self.capacity.has_limited and self.capacity.free_slots > 0
        return self.state is not WAITING or self.timer.is_due or awaits_slots

    def _next_limit(self) -> int:
        return 0 if self.state is STOPPED else self.capacity.next_limit()

    def _change(self, transitions: Mapping[FetchState, FetchState]) -> None:
        if self.state is not STOPPED:
            self.state = transitions.get(self.state, self.state)
