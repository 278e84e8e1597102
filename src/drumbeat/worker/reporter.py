"""What this worker has to tell the store: outcomes of runs, and progress; and what it tells others once the store knows.

`put` cannot wait and cannot fail, so that a cancelled slot can still hand over how its job ended. Nothing here talks to the
store: exchange.py carries the outcomes there and brings the verdicts back.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from drumbeat.clock import Clock
from drumbeat.codec import Unstorable, encode_result
from drumbeat.core.claim import ClaimedJob, ClaimRef, Outcome, WriteStatus
from drumbeat.core.job import Failure, JobState, OutcomeKind
from drumbeat.errors import InvalidArguments
from drumbeat.events import AttemptFailed, Events, JobFinished, JobsDone, ResultRefused
from drumbeat.ids import InstanceId, JobId
from drumbeat.worker.stats_recorder import SUCCEEDED, StatsRecorder, to_counter

SUMMARY_INTERVAL = 1.0
MAX_PROGRESS_BYTES = 4_096

_CHARGED = frozenset({OutcomeKind.RETRY, OutcomeKind.DEAD})
_FINAL = {
    OutcomeKind.SUCCEEDED: JobState.SUCCEEDED,
    OutcomeKind.DEAD: JobState.DEAD,
    OutcomeKind.CANCELLED: JobState.CANCELLED,
}


class OutcomeReporter:
    def __init__(self, clock: Clock, events: Events, recorder: StatsRecorder, on_outcome: Callable[[], None]) -> None:
        self._clock = clock
        self._events = events
        self._recorder = recorder
        self._on_outcome = on_outcome
        self._outbox: deque[Outcome] = deque()
        self._progress: dict[JobId, tuple[ClaimRef, str]] = {}
        self.held: dict[tuple[JobId, int], ClaimedJob] = {}
        """Every claim, by id and token, that is ours until the store has its outcome: buffered, running, or in the outbox. One
        lane may claim a job again before the other has its answer to the claim before."""
        self.wake_threshold = 1
        """At so many outcomes a second call to the store is worth while beside one that is under way."""
        self.refused = 0
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
        if waiting == 1 or waiting == self.wake_threshold:  # whoever empties it looks again before it waits
            self._on_outcome()

    def release(self, jobs: Iterable[ClaimedJob]) -> None:
        """Return claims that never started."""
        for job in jobs:
            self.put(Outcome(id=job.id, token=job.token, kind=OutcomeKind.RELEASED))

    def drop(self, job: ClaimedJob) -> None:
        """Forget a job that belongs to somebody else now."""
        self.held.pop((job.id, job.token), None)
        self._progress.pop(job.id, None)

    def put_progress(self, job: ClaimedJob, value: Any) -> None:
        """Remember a job's progress; called by handlers, on the loop or in a thread."""
        try:
            text = encode_result(value, limit=MAX_PROGRESS_BYTES)
        except Unstorable as error:
            raise InvalidArguments(f"progress cannot be kept: {error.reason}", "progress") from None
        self._progress[job.id] = (ClaimRef(job.id, job.token), text)

    def take(self, limit: int) -> list[Outcome]:
        outbox = self._outbox
        if len(outbox) <= limit:
            outcomes = list(outbox)
            outbox.clear()
            return outcomes
        return [outbox.popleft() for _ in range(limit)]

    def restore(self, outcomes: list[Outcome], *, at_end: bool = False) -> None:
        """Back to the head of the line, or to its end: it is unknown whether the store has them. Telling twice is harmless."""
        if at_end:
            self._outbox.extend(outcomes)
        else:
            self._outbox.extendleft(reversed(outcomes))

    def take_progress(self) -> list[tuple[ClaimRef, str]]:
        notes, self._progress = list(self._progress.values()), {}
        return notes

    def restore_progress(self, notes: list[tuple[ClaimRef, str]]) -> None:
        """The store does not have them; what is newer stays, and what has ended needs none."""
        for hold, text in notes:
            if (hold.id, hold.token) in self.held:
                self._progress.setdefault(hold.id, (hold, text))

    def apply_statuses(self, instance: InstanceId, outcomes: list[Outcome], verdicts: list[WriteStatus]) -> None:
        """The store has answered."""
        loud = self._events.has_subscribers(JobFinished)
        counts, count = self._counts, self._recorder.count
        self._recorder.begin()
        for outcome, verdict in zip(outcomes, verdicts, strict=True):
            job = self.held.pop((outcome.id, outcome.token), None)
            if verdict is WriteStatus.STALE:
                self._emit_refused(instance, outcome, job)
            elif outcome.kind is OutcomeKind.SUCCEEDED:
                counts["succeeded"] += 1
                if job is not None:
                    count(job, outcome, SUCCEEDED)
                    if loud:
                        self._emit_finished(instance, job, outcome, JobState.SUCCEEDED)
            elif job is not None:
                self._handle_unsuccessful(instance, job, outcome)

    def emit_summary(self, instance: InstanceId) -> None:
        """Tell once a second how much was done, if anything was."""
        now = self._clock.monotonic()
        took = now - self._summed_at
        if took < SUMMARY_INTERVAL:
            return
        self._summed_at = now
        if any(self._counts.values()):
            self._events.emit(JobsDone(instance=instance, **self._counts, seconds=took))
            self._counts = dict.fromkeys(self._counts, 0)

    def _emit_refused(self, instance: InstanceId, outcome: Outcome, job: ClaimedJob | None) -> None:
        self.refused += 1
        task = "" if job is None else job.task
        self._events.emit(ResultRefused(instance=instance, id=outcome.id, token=outcome.token, task=task))

    def _handle_unsuccessful(self, instance: InstanceId, job: ClaimedJob, outcome: Outcome) -> None:
        dead = outcome.kind is OutcomeKind.DEAD or (
            outcome.kind is OutcomeKind.CRASHED and job.crashes + 1 >= job.crash_limit
        )
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
        elif outcome.kind is OutcomeKind.CANCELLED:
            self._counts["cancelled"] += 1
        state = JobState.DEAD if dead else _FINAL.get(outcome.kind)
        if state is not None:
            self._emit_finished(instance, job, outcome, state)

    def _emit_finished(self, instance: InstanceId, job: ClaimedJob, outcome: Outcome, state: JobState) -> None:
        took = ((outcome.finished_at or 0) - (outcome.started_at or 0)) / 1e6
        self._events.emit(JobFinished(instance=instance, job=job, state=state, took=took))
