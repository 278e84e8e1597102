"""When to claim, how many, and from which queues. Talks to nobody: exchange.py asks it and tells it what came.

A claim is made when there is room and a reason: a wake-up, the due moment of the next job, the poll beneath, or that the last
claim was filled (there may be more). Where the store keeps a claim that found nothing, whoever adds a job answers it: then one
goes with the last outcomes, so that an idle worker always has one there.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from drumbeat.clock import Clock, jittered
from drumbeat.model.job import Claim, Claimed, Exchanged
from drumbeat.worker.buffer import Buffer
from drumbeat.worker.moments import Moments
from drumbeat.worker.pace import Pace
from drumbeat.worker.turns import Turns

REST = 0.1


class Fetcher:
    def __init__(
        self,
        clock: Clock,
        buffer: Buffer,
        turns: Turns,
        pace: Pace,
        *,
        batches: Mapping[str, int],
        batch: int,
        poll: float,
        wake: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._buffer = buffer
        self._turns = turns
        self._pace = pace
        self._batches = batches
        self._batch = batch
        self._poll = poll
        self._wake = wake
        self._moments = Moments()
        self._hungry = True
        self._expects = False
        self._was_filled = False
        self._stands = True
        self._to_stand: Claim | None = None
        self._look_at = 0.0
        self._due_at = 0.0
        self._group = 1
        self._stopped = False
        self._stalled_at = -1
        self._on_their_way = 0
        self.wants: tuple[str, ...] = ()

    def stop(self) -> None:
        """Claim nothing any more."""
        self._stopped = True

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def stalled(self) -> None:
        """What was held was not taken for long: hold nothing until a slot takes a job again."""
        self._stalled_at = self._buffer.taken

    def hear(self, run_at: int) -> None:
        """A hint: a job with this due moment may have come; 0: look now."""
        now = self._clock.monotonic()
        moment = self._moments.of(run_at, now)
        if moment is None:
            moment = now + (run_at - self._clock.now_us()) / 1e6
        if moment <= now:
            self._hungry = True
            self._expects = run_at > 0
        elif self._knows_of_one_before(moment):
            return
        else:
            self._due_at = moment
            if moment >= self._look_at:
                return  # it will be looked for before then anyway
            self._look_at = moment
        self._wake()

    def wanting(self, wants: tuple[str, ...]) -> None:
        """Jobs that other workers could not take, and this one can."""
        if wants and wants != self.wants:
            self._hungry = True
            self._wake()
        self.wants = wants

    @property
    def ahead(self) -> int:
        """How many jobs may be held beyond those that run."""
        return 0 if self._buffer.taken == self._stalled_at else self._pace.ahead

    @property
    def is_asking(self) -> bool:
        """A claim is under way."""
        return self._on_their_way > 0

    @property
    def room(self) -> int:
        """How many more jobs may be held. A batch task's idle slot takes a whole batch."""
        ahead = self.ahead
        self._buffer.low = ahead // 2
        held = len(self._buffer) + self._on_their_way
        return min(self._batch, ahead + self._buffer.idle * self._group - held)

    def claim(self, at_least: int = 1) -> Claim | None:
        """What to ask for now; None: nothing, or not as many. `got` or `failed` must follow."""
        if not self._is_time() or not self._has_room():
            return None
        room = self.room
        if room < at_least:
            return None
        now = self._clock.monotonic()
        queues = self._turns.divide(room)
        if not queues:  # all of them rest
            self._hungry = self._was_filled = False
            self._look_at = now + REST
            return None
        self._on_their_way += room
        # Before the question: a hint that arrives while it is under way must not be lost.
        expected = self._expects or 0.0 < self._due_at <= now
        self._hungry = self._expects = False
        if self._due_at <= now:
            self._due_at = 0.0
        if self._look_at <= now:  # the answer will tell better; until then the other lane does not ask the same
            self._look_at = self._due_at or now + jittered(self._poll)
        return Claim(queues=queues, limit=room, wants=self.wants, expected=expected)

    def claim_to_stand(self) -> Claim | None:
        """As `claim`, for when nothing is held any more, though it may not be time; None: the store keeps no claims."""
        if not self._stands:
            return None
        self._hungry = True
        self._to_stand = self.claim()
        return self._to_stand

    def claim_at_once(self) -> Claim | None:
        """As `claim`, for when a call is under way that claims nothing: only if idle slots would wait for its answer."""
        return None if self._on_their_way or self._buffer else self.claim()

    def got(self, claim: Claim, answer: Exchanged, asked_at: float) -> None:
        """What the claim gave, and when it was asked for by the local monotonic clock."""
        jobs = answer.jobs
        self._moments.saw(answer.now, asked_at)
        self._on_their_way -= claim.limit
        self._turns.took(claim.queues, Counter(job.queue for job in jobs), claim.limit)
        self._came(jobs)
        if answer.stands or (claim is self._to_stand and not jobs):
            self._stands = answer.stands
        self._was_filled = len(jobs) + len(answer.malformed) >= claim.limit
        if self._was_filled:
            self._hungry = self._expects = True
            return
        now = self._clock.monotonic()
        self._look_at = now + jittered(self._poll)
        if answer.next_due is not None:
            moment = self._moments.of(answer.next_due, now)
            if moment is not None and not self._knows_of_one_before(moment):
                self._due_at = moment
        if 0.0 < self._due_at < self._look_at:
            self._look_at = self._due_at
        self._wake()  # the other lane may sleep for longer than that

    def given(self, jobs: Sequence[Claimed]) -> None:
        """What a claim has got that stood. When it was made each queue was empty, so no turn was passed over."""
        self._came(jobs)
        self._wake()

    def failed(self, claim: Claim) -> None:
        """The claim was not answered."""
        self._on_their_way -= claim.limit
        self._turns.took(claim.queues, {}, 0)
        self._hungry = True

    @property
    def patience(self) -> float | None:
        """Seconds until the next look, when nothing happens before; None: there is no room, so no use in looking."""
        if not self._has_room():
            return None
        return 0.0 if self._is_time() else self._look_at - self._clock.monotonic()

    def _came(self, jobs: Sequence[Claimed]) -> None:
        if jobs:
            self._group = min(self._batches.get(job.task, 1) for job in jobs)

    def _knows_of_one_before(self, moment: float) -> bool:
        """A due moment stays known until it has passed: an answer may be older than a hint that came before it."""
        return 0.0 < self._due_at <= moment

    def _has_room(self) -> bool:
        if self._stopped:
            return False
        room = self.room
        # With jobs at hand, a few places are not worth a round trip: it comes when half of them are gone.
        return room > 0 and (len(self._buffer) <= self._buffer.low or room >= self._batch // 2)

    def _is_time(self) -> bool:
        # While claims are filled both lanes go on, without a word from the one that is under way.
        return self._hungry or self._was_filled or self._clock.monotonic() >= self._look_at
