"""The handlers that run now, and how a run is aborted or interrupted.

Aborting sets the run's signal, which the handler may check. Interrupting cancels the slot that awaits it, which ends an async
handler, abandons a thread and kills a child process.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from drumbeat.clock import Timer
from drumbeat.context import CURRENT_BATCH, CURRENT_JOB, AbortReason, RunningJob
from drumbeat.core.claim import ClaimedJob
from drumbeat.tracing import AttemptSpan
from drumbeat.worker.thread_pool import ThreadCall


@dataclass(slots=True, eq=False, repr=False)
class HandlerRun:
    """One call of a handler: for one job, or for the jobs of a batch."""

    jobs: list[ClaimedJob]
    task: str
    running: RunningJob
    slot: "asyncio.Task[Any]"
    started_us: int
    in_thread: bool
    """Runs in a thread: cancellation cannot end it, only its own check of the signal."""
    span: AttemptSpan | None = None
    """Its span, if the program traces."""
    cancels: int = 0
    """How often we cancelled the slot."""
    is_abandoned: bool = False
    """Its handler swallowed its cancellation: its outcome is reported, and its slot is replaced."""
    call: ThreadCall | None = None
    """The call in a thread, which records when it ended."""
    deadline: float | None = None
    """When it times out, by the monotonic clock."""
    bound_args: str | None = None
    """The arguments with results of its parents, for a child process; None: it gets none."""
    timer: Timer | None = None

    @property
    def is_interrupted(self) -> bool:
        return self.cancels > 0

    def abort(self, reason: AbortReason) -> None:
        """Signal the handler, and interrupt it where that leaves nothing behind."""
        self.running.aborted.set(reason)
        if reason is AbortReason.TIMED_OUT or (reason is not AbortReason.DRAINING and not self.in_thread):
            self.interrupt()

    @property
    def has_ended_in_time(self) -> bool:
        """It ended in its thread before its deadline, though the loop may learn of it only now."""
        ended_at = None if self.call is None else self.call.ended_at
        return ended_at is not None and (self.deadline is None or ended_at <= self.deadline)

    def time_out(self) -> None:
        if not self.has_ended_in_time:
            self.abort(AbortReason.TIMED_OUT)

    def interrupt(self) -> None:
        self.cancels += 1
        self.slot.cancel()


class ActiveRuns:
    """All runs in progress."""

    def __init__(self) -> None:
        self._runs: set[HandlerRun] = set()
        self.on_start: Callable[[int], None] | None = None
        """Called with the number of jobs of each run that starts."""

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def job_count(self) -> int:
        """The number of running jobs; a batch counts each of its jobs."""
        return sum(len(run.jobs) for run in self)

    def __iter__(self) -> Iterator[HandlerRun]:
        return iter(tuple(self._runs))

    def add(self, run: HandlerRun) -> None:
        self._runs.add(run)
        if self.on_start is not None:
            self.on_start(len(run.jobs))

    def remove(self, run: HandlerRun) -> None:
        self._runs.discard(run)
        if run.timer is not None:
            run.timer.cancel()

    def is_current_slot(self, task: "asyncio.Task[Any]") -> bool:
        """Whether this slot runs the job whose code is executing."""
        running, jobs = CURRENT_JOB.get(None), CURRENT_BATCH.get(None)
        return any(run.slot is task and (run.running is running or run.jobs is jobs) for run in self)

    def abort_all(self, reason: AbortReason) -> None:
        for run in self:
            run.abort(reason)

    def interrupt_all(self, reason: AbortReason) -> None:
        for run in self:
            run.running.aborted.set(reason)
            run.interrupt()
