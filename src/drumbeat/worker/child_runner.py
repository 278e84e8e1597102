"""Run jobs in child processes: handlers with `pool="process"`, and crash suspects, which run alone.

Between the runner, which turns results into outcomes, and child_pool.py, which owns the children: this module applies the
timeout, and limits how many suspects run at once.
"""

import functools
from collections.abc import Callable

from drumbeat.clock import Timer
from drumbeat.context import Completion
from drumbeat.core.job import Failure
from drumbeat.worker.active_runs import HandlerRun
from drumbeat.worker.child_pool import ChildFailed, ChildPool, ChildRun
from drumbeat.worker.child_protocol import RunJob
from drumbeat.worker.core import WorkerCore
from drumbeat.worker.crash_suspects import CrashSuspectLimiter, NoChildFree
from drumbeat.worker.job_steps import StepPort
from drumbeat.worker.reporter import OutcomeReporter
from drumbeat.worker.result import HandlerResult, ResultKind, describe_failure
from drumbeat.worker.task_spec import TaskSpec

CHILD_FAILED_DELAY_US = 5_000_000
TIMEOUT_GRACE_TURNS, TURN_DELAY = 5, 0.01
"""How many turns of the loop a child that is out of time gets to report that it ended before: the loop may have been blocked
while its answer was in the socket."""


class ChildRunner:
    def __init__(self, core: WorkerCore, pool: ChildPool, reporter: OutcomeReporter, steps: StepPort) -> None:
        self._pool = pool
        self._suspects = CrashSuspectLimiter(core.settings.concurrency, core.clock)
        self._clock = core.clock
        self._identity = core.identity
        self._reporter = reporter
        self._steps = steps

    async def run(self, run: HandlerRun, spec: TaskSpec) -> HandlerResult:
        """Run a job in a child process. A crash suspect waits until few others run."""
        try:
            if spec.pool == "process":
                return await self._run_in_child(run, spec)
            async with self._suspects.acquire_child() as on_suspect_started:
                return await self._run_in_child(run, spec, on_suspect_started)
        except NoChildFree as error:
            return HandlerResult(kind=ResultKind.SNOOZED, delay=error.delay_us, error=Failure("Suspect", str(error)))
        except ChildFailed as error:
            # Not the job's fault: it is put off, uncharged. The log names the problem of the program.
            return HandlerResult(kind=ResultKind.SNOOZED, delay=CHILD_FAILED_DELAY_US, error=describe_failure(error))

    async def _run_in_child(
        self, run: HandlerRun, spec: TaskSpec, on_suspect_started: Callable[[], None] = lambda: None
    ) -> HandlerResult:
        """The timeout counts from the start of the handler, not of the child, to the handler's end there."""
        timers: list[Timer] = []
        limit = spec.timeout_for(run.jobs)

        def on_started() -> None:
            on_suspect_started()
            # Until the child reports the result, only the store knows whether the handler has completed the job.
            run.running.completion = Completion.UNCONFIRMED
            if limit is not None:
                timers.append(self._clock.call_later(limit, expire))

        def expire(turns: int = TIMEOUT_GRACE_TURNS) -> None:
            if turns:
                timers.append(self._clock.call_later(TURN_DELAY, functools.partial(expire, turns - 1)))
            else:
                run.time_out()

        def on_ended(took: float) -> None:
            if limit is None or took <= limit:
                stop_timers()

        def stop_timers() -> None:
            for timer in timers:
                timer.cancel()

        try:
            trace = None if run.span is None else run.span.trace
            result = await self._pool.run(
                ChildRun(
                    request=RunJob(run.jobs[0], self._identity(), run.started_us, trace, run.bound_args),
                    abort=run.running.aborted,
                    note=self._reporter.put_progress,
                    steps=self._steps,
                    on_started=on_started,
                    on_ended=on_ended,
                )
            )
            if result.kind is not ResultKind.CRASHED:
                run.running.completion = result.completion
            return result
        finally:
            stop_timers()
