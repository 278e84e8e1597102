"""Runs in child processes: handlers with `pool="process"`, and suspects, which run alone.

Between the runner, which knows what becomes of an ending, and processes.py, which knows the children: here is how a run's time
is limited, and who may have a child now.
"""

import functools
from collections.abc import Callable

from drumbeat.clock import Clock, Timer
from drumbeat.context import Completion
from drumbeat.ids import InstanceId
from drumbeat.model.job import Failure
from drumbeat.worker.ending import Ending, How, failure
from drumbeat.worker.plans import Plan
from drumbeat.worker.processes import ChildFailed, Processes
from drumbeat.worker.reporter import Reporter
from drumbeat.worker.runs import Run
from drumbeat.worker.suspects import NoChildFree, Suspects

CHILD_FAILED_PAUSE_US = 5_000_000
LAST_TURNS, TURN_DELAY = 5, 0.01
"""How many turns of the loop a child that is out of time has for saying that it had ended before: the loop may have been held
up while its answer lay in the socket."""


class Apart:
    def __init__(
        self,
        processes: Processes,
        suspects: Suspects,
        clock: Clock,
        reporter: Reporter,
        identity: Callable[[], InstanceId],
    ) -> None:
        self._processes = processes
        self._suspects = suspects
        self._clock = clock
        self._reporter = reporter
        self._identity = identity

    async def run(self, run: Run, plan: Plan) -> Ending:
        """Run a job in a child process; a suspect has to wait until few others do so."""
        try:
            if plan.pool == "process":
                return await self._in_child(run, plan)
            async with self._suspects.turn():
                return await self._in_child(run, plan)
        except NoChildFree as error:
            return Ending(how=How.SNOOZED, delay=error.delay_us, error=Failure("Suspect", str(error)))
        except ChildFailed as error:
            # Not the job's fault: it waits, uncharged, and whoever reads the log mends the program.
            return Ending(how=How.SNOOZED, delay=CHILD_FAILED_PAUSE_US, error=failure(error))

    async def _in_child(self, run: Run, plan: Plan) -> Ending:
        """The time-out counts from the start of the handler, not from that of the child; and to its end there."""
        timers: list[Timer] = []
        limit = plan.limit(run.jobs)

        def begun() -> None:
            # Until the child has said how its handler ended, only the store knows whether that has completed the job.
            run.running.completion = Completion.UNSURE
            if limit is not None:
                timers.append(self._clock.later(limit, expire))

        def expire(turns: int = LAST_TURNS) -> None:
            if turns:
                timers.append(self._clock.later(TURN_DELAY, functools.partial(expire, turns - 1)))
            else:
                run.time_out()

        def ended(took: float) -> None:
            if limit is None or took <= limit:
                stop_timers()

        def stop_timers() -> None:
            for timer in timers:
                timer.cancel()

        try:
            ending = await self._processes.run(
                run.jobs[0],
                abort=run.running.aborted,
                note=self._reporter.note,
                begun=begun,
                ended=ended,
                instance=self._identity(),
                started_us=run.started_us,
                trace=None if run.attempt is None else run.attempt.trace,
            )
            if ending.how is not How.CRASHED:
                run.running.completion = ending.completion
            return ending
        finally:
            stop_timers()
