"""What this worker runs at this moment, and how a run is told to stop.

A run is soft-aborted by its signal, which the handler may look at; and interrupted by cancelling the slot that awaits it,
which ends an async handler, abandons a thread and kills a child process.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

from drumbeat.context import CURRENT_BATCH, CURRENT_JOB, AbortReason, RunningJob
from drumbeat.core.claim import ClaimedJob
from drumbeat.tracing import AttemptSpan
from drumbeat.worker.thread_pool import ThreadCall


class HandlerRun:
    """One call of a handler: for one job, or for the jobs of a batch."""

    __slots__ = (
        "call",
        "cancels",
        "deadline",
        "in_thread",
        "is_abandoned",
        "jobs",
        "running",
        "slot",
        "span",
        "started_us",
        "task",
    )

    def __init__(
        self,
        jobs: list[ClaimedJob],
        task: str,
        running: RunningJob,
        slot: "asyncio.Task[Any]",
        started_us: int,
        in_thread: bool,
    ) -> None:
        self.jobs = jobs
        self.task = task
        self.running = running
        self.slot = slot
        self.started_us = started_us
        self.in_thread = in_thread
        """Runs in a thread: a cancellation cannot end it, only its own look at the signal."""
        self.span: AttemptSpan | None = None
        """Its span, where the program traces."""
        self.cancels = 0
        """How often the slot was cancelled on our behalf."""
        self.is_abandoned = False
        """Its handler swallowed its cancellation: how it ended is told, and another slot has taken the place of its own."""
        self.call: ThreadCall | None = None
        """In a thread: knows when it ended there."""
        self.deadline: float | None = None
        """When its time is over, by the monotonic clock."""

    @property
    def is_interrupted(self) -> bool:
        return self.cancels > 0

    def abort(self, reason: AbortReason) -> None:
        """Tell the handler, and end it where that can be done without leaving anything behind."""
        self.running.aborted.set(reason)
        if reason is AbortReason.TIMED_OUT or (reason is not AbortReason.DRAINING and not self.in_thread):
            self.interrupt()

    @property
    def has_ended_in_time(self) -> bool:
        """It ended in its thread before its deadline, though the loop may hear of it only now."""
        ended_at = None if self.call is None else self.call.ended_at
        return ended_at is not None and (self.deadline is None or ended_at <= self.deadline)

    def time_out(self) -> None:
        if not self.has_ended_in_time:
            self.abort(AbortReason.TIMED_OUT)

    def interrupt(self) -> None:
        """End it now, whatever it takes."""
        self.cancels += 1
        self.slot.cancel()


class ActiveRuns:
    """All runs under way."""

    def __init__(self) -> None:
        self._runs: set[HandlerRun] = set()

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def job_count(self) -> int:
        """How many jobs run: a batch counts each of its own."""
        return sum(len(run.jobs) for run in self)

    def __iter__(self) -> Iterator[HandlerRun]:
        return iter(tuple(self._runs))

    def add(self, run: HandlerRun) -> None:
        self._runs.add(run)

    def remove(self, run: HandlerRun) -> None:
        self._runs.discard(run)

    def is_current_slot(self, task: "asyncio.Task[Any]") -> bool:
        """Whether the job whose code runs now runs in this slot."""
        running, jobs = CURRENT_JOB.get(None), CURRENT_BATCH.get(None)
        return any(run.slot is task and (run.running is running or run.jobs is jobs) for run in self)

    def abort_all(self, reason: AbortReason) -> None:
        for run in self:
            run.abort(reason)

    def interrupt_all(self, reason: AbortReason) -> None:
        """The end of patience: end them all."""
        for run in self:
            run.running.aborted.set(reason)
            run.interrupt()
