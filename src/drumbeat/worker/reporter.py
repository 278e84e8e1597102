"""The outbox of a worker: outcomes and progress to report to the store, and the events that follow once it has them.

`put` cannot wait and cannot fail, so that a cancelled slot can still hand over its outcome. Nothing here calls the store:
store_loop.py sends the outcomes and passes back the write statuses.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from drumbeat.clock import Clock
from drumbeat.codec import Unstorable, encode_result
from drumbeat.core.claim import ClaimedJob, ClaimRef, Outcome, WriteStatus
from drumbeat.core.job import Failure, JobState, OutcomeKind
from drumbeat.core.transitions import is_fatal
from drumbeat.errors import InvalidArguments
from drumbeat.events import AttemptFailed, Events, JobFinished, JobsDone, ResultRefused
from drumbeat.ids import InstanceId, JobId
from drumbeat.worker.stats_recorder import SUCCEEDED, StatsRecorder, to_counter

SUMMARY_INTERVAL = 1.0
MAX_PROGRESS_BYTES = 4_096

_CHARGED = frozenset({OutcomeKind.RETRY, OutcomeKind.DEAD})


def encode_progress(value: Any) -> str:
    """
    Raises:
        InvalidArguments: it cannot be stored as JSON, or is too large.
    """
    try:
        return encode_result(value, limit=MAX_PROGRESS_BYTES)
    except Unstorable as error:
        raise InvalidArguments(f"progress cannot be kept: {error.reason}", "progress") from None


class OutcomeReporter:
    def __init__(self, clock: Clock, events: Events, recorder: StatsRecorder, on_outcome: Callable[[], None]) -> None:
        self._clock = clock
        self._events = events
        self._recorder = recorder
        self._on_outcome = on_outcome
        self._outbox: deque[Outcome] = deque()
        self._progress: dict[JobId, tuple[ClaimRef, str]] = {}
        self.held: dict[tuple[JobId, int], ClaimedJob] = {}
        """Claims, by id and token, whose outcome the store does not have yet: buffered, running, or in the outbox. Keyed by
        token too: one lane may claim a job again before the other lane has the answer to its report."""
        self.wake_threshold = 1
        """Number of outcomes that justifies a second concurrent call to the store."""
        self._counts = dict.fromkeys(("succeeded", "failed", "dead", "cancelled"), 0)
        self._summed_at = clock.monotonic()

    def __len__(self) -> int:
        return len(self._outbox)

    def hold(self, jobs: Iterable[ClaimedJob]) -> None:
        for job in jobs:
            self.held[job.id, job.token] = job

    def put(self, outcome: Outcome) -> None:
        self._outbox.append(outcome)
        waiting = len(self._outbox)
        if waiting == 1 or waiting == self.wake_threshold:  # a lane that empties it checks again before it waits
            self._on_outcome()

    def release(self, jobs: Iterable[ClaimedJob]) -> None:
        """Return claims that never started."""
        for job in jobs:
            self.put(Outcome(id=job.id, token=job.token, kind=OutcomeKind.RELEASED))

    def drop(self, job: ClaimedJob) -> None:
        """Forget a job that is no longer ours."""
        self.held.pop((job.id, job.token), None)
        self._progress.pop(job.id, None)

    def put_progress(self, job: ClaimedJob, value: Any) -> None:
        """Keep a job's progress; called by handlers, on the loop or in a thread."""
        self._progress[job.id] = (ClaimRef(job.id, job.token), encode_progress(value))

    def take(self, limit: int) -> list[Outcome]:
        outbox = self._outbox
        if len(outbox) <= limit:
            outcomes = list(outbox)
            outbox.clear()
            return outcomes
        return [outbox.popleft() for _ in range(limit)]

    def restore(self, outcomes: list[Outcome], *, at_end: bool = False) -> None:
        """Put back at the head, or at the end: whether the store has them is unknown. Reporting twice is harmless."""
        if at_end:
            self._outbox.extend(outcomes)
        else:
            self._outbox.extendleft(reversed(outcomes))

    def take_progress(self) -> list[tuple[ClaimRef, str]]:
        progress, self._progress = list(self._progress.values()), {}
        return progress

    def restore_progress(self, progress: list[tuple[ClaimRef, str]]) -> None:
        """The store did not take it. Newer values stay, and ended jobs need none."""
        for claim, text in progress:
            if (claim.id, claim.token) in self.held:
                self._progress.setdefault(claim.id, (claim, text))

    def apply_statuses(self, instance: InstanceId, outcomes: list[Outcome], statuses: list[WriteStatus]) -> None:
        """The store has answered a report."""
        emits_finished = self._events.has_subscribers(JobFinished)
        counts, count = self._counts, self._recorder.count
        self._recorder.begin()
        for outcome, status in zip(outcomes, statuses, strict=True):
            job = self.held.pop((outcome.id, outcome.token), None)
            if status is WriteStatus.STALE:
                self._emit_refused(instance, outcome, job)
            elif outcome.kind is OutcomeKind.SUCCEEDED:
                counts["succeeded"] += 1
                if job is not None:
                    count(job, outcome, SUCCEEDED)
                    if emits_finished:
                        self._emit_finished(instance, job, outcome, JobState.SUCCEEDED)
            elif job is not None:
                self._handle_unsuccessful(instance, job, outcome)

    def emit_summary(self, instance: InstanceId) -> None:
        """Emit JobsDone once a second, if any job has ended."""
        now = self._clock.monotonic()
        took = now - self._summed_at
        if took < SUMMARY_INTERVAL:
            return
        self._summed_at = now
        if any(self._counts.values()):
            self._events.emit(JobsDone(instance=instance, **self._counts, seconds=took))
            self._counts = dict.fromkeys(self._counts, 0)

    def _emit_refused(self, instance: InstanceId, outcome: Outcome, job: ClaimedJob | None) -> None:
        task = "" if job is None else job.task
        self._events.emit(ResultRefused(instance=instance, id=outcome.id, token=outcome.token, task=task))

    def _handle_unsuccessful(self, instance: InstanceId, job: ClaimedJob, outcome: Outcome) -> None:
        if outcome.kind is OutcomeKind.EXPIRED:  # no run: the store counts such jobs
            self._emit_finished(instance, job, outcome, JobState.EXPIRED)
            return
        dead = is_fatal(job, outcome.kind)
        self._recorder.count(job, outcome, to_counter(outcome.kind, dead))
        if outcome.kind in _CHARGED or dead:
            self._counts["failed"] += 1
            self._events.emit(
                AttemptFailed(
                    instance=instance,
                    job=job,
                    attempt=job.attempt,
                    error=outcome.error or Failure("Unknown", ""),
                    dead=dead,
                    retry_in=None if dead else outcome.delay / 1e6,
                )
            )
        if dead:
            self._counts["dead"] += 1
            self._emit_finished(instance, job, outcome, JobState.DEAD)
        elif outcome.kind is OutcomeKind.CANCELLED:
            self._counts["cancelled"] += 1
            self._emit_finished(instance, job, outcome, JobState.CANCELLED)

    def _emit_finished(self, instance: InstanceId, job: ClaimedJob, outcome: Outcome, state: JobState) -> None:
        took = ((outcome.finished_at or 0) - (outcome.started_at or 0)) / 1e6
        self._events.emit(JobFinished(instance=instance, job=job, state=state, took=took))
