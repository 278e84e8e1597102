"""Runs in child processes: handlers with `pool="process"`, and suspects, which run alone.

Between the runner, which knows what becomes of an ending, and processes.py, which knows the children: here is how a run's time
is limited, and who may have a child now.
"""

import functools
from collections.abc import Callable

from drumbeat.clock import Clock, Timer
from drumbeat.context import Completion
from drumbeat.core.job import Failure
from drumbeat.ids import InstanceId
from drumbeat.worker.active_runs import HandlerRun
from drumbeat.worker.child_pool import ChildFailed, ChildPool
from drumbeat.worker.crash_suspects import CrashSuspectLimiter, NoChildFree
from drumbeat.worker.reporter import OutcomeReporter
from drumbeat.worker.result import HandlerResult, ResultKind, describe_failure
from drumbeat.worker.task_spec import TaskSpec

CHILD_FAILED_DELAY_US = 5_000_000
TIMEOUT_GRACE_TURNS, TURN_DELAY = 5, 0.01
"""How many turns of the loop a child that is out of time has for saying that it had ended before: the loop may have been held
up while its answer lay in the socket."""


class ChildRunner:
    def __init__(
        self,
        pool: ChildPool,
        suspects: CrashSuspectLimiter,
        clock: Clock,
        reporter: OutcomeReporter,
        identity: Callable[[], InstanceId],
    ) -> None:
        self._pool = pool
        self._suspects = suspects
        self._clock = clock
        self._reporter = reporter
        self._identity = identity

    async def run(self, run: HandlerRun, plan: TaskSpec) -> HandlerResult:
        """Run a job in a child process; a suspect has to wait until few others do so."""
        try:
            if plan.pool == "process":
                return await self._run_in_child(run, plan)
            async with self._suspects.acquire_child():
                return await self._run_in_child(run, plan)
        except NoChildFree as error:
            return HandlerResult(kind=ResultKind.SNOOZED, delay=error.delay_us, error=Failure("Suspect", str(error)))
        except ChildFailed as error:
            # Not the job's fault: it waits, uncharged, and whoever reads the log mends the program.
            return HandlerResult(kind=ResultKind.SNOOZED, delay=CHILD_FAILED_DELAY_US, error=describe_failure(error))

    async def _run_in_child(self, run: HandlerRun, plan: TaskSpec) -> HandlerResult:
        """The time-out counts from the start of the handler, not from that of the child; and to its end there."""
        timers: list[Timer] = []
        limit = plan.timeout_for(run.jobs)

        def begun() -> None:
            # Until the child has said how its handler ended, only the store knows whether that has completed the job.
            run.running.completion = Completion.UNCONFIRMED
            if limit is not None:
                timers.append(self._clock.call_later(limit, expire))

        def expire(turns: int = TIMEOUT_GRACE_TURNS) -> None:
            if turns:
                timers.append(self._clock.call_later(TURN_DELAY, functools.partial(expire, turns - 1)))
            else:
                run.time_out()

        def ended(took: float) -> None:
            if limit is None or took <= limit:
                stop_timers()

        def stop_timers() -> None:
            for timer in timers:
                timer.cancel()

        try:
            ending = await self._pool.run(
                run.jobs[0],
                abort=run.running.aborted,
                note=self._reporter.put_progress,
                on_started=begun,
                on_ended=ended,
                instance=self._identity(),
                started_us=run.started_us,
                trace=None if run.span is None else run.span.trace,
            )
            if ending.kind is not ResultKind.CRASHED:
                run.running.completion = ending.completion
            return ending
        finally:
            stop_timers()
