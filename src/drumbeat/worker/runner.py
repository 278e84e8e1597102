"""Run jobs: on the loop, in a thread, in a child process; alone when a crash was blamed on them.

The seam is `run`: a group of jobs of one task goes in, an outcome for each goes to the reporter. Task code is the only code
we do not trust: whatever it raises ends here, as that attempt's failure. A cancellation is one of three: ours (the run is
interrupted), the task's own (it failed), or that of the whole worker (`is_over`), which alone goes on from here.
"""

import asyncio
import functools
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from contextvars import Token
from sys import modules
from types import coroutine
from typing import Any

from drumbeat import tracing
from drumbeat.clock import Clock, Timer
from drumbeat.codec import Undecodable, Unstorable, encode_result
from drumbeat.context import BATCH, CURRENT, AbortReason, Completer, RunningJob
from drumbeat.durations import text
from drumbeat.events import Events, JobStarted, ThreadAbandoned
from drumbeat.handle import TIMED_OUT
from drumbeat.ids import InstanceId
from drumbeat.model.job import Claimed, Failure, Outcome, OutcomeKind
from drumbeat.worker.apart import Apart
from drumbeat.worker.bulk import calls_of, endings_of
from drumbeat.worker.doubts import Doubt, Doubts
from drumbeat.worker.ending import Ending, How, failure, from_exception, judge
from drumbeat.worker.forks import FORKS
from drumbeat.worker.marks import Marks, NoMarks
from drumbeat.worker.pace import Pace
from drumbeat.worker.plans import Arguments, Plan, parked_unknown
from drumbeat.worker.reporter import Reporter
from drumbeat.worker.runs import Run, Runs
from drumbeat.worker.threads import Threads

LOOK_EVERY = 0.1
_RETURNED_NOTHING = Ending(how=How.RETURNED)
# The whole worker is being cancelled: what cannot be waited for is handed over.
_INTERRUPTED = Ending(how=How.ABORTED, reason=AbortReason.DRAINING)


class SlotAbandoned(Exception):
    """A handler that was given up has ended after all. Its slot has been replaced long ago, and ends."""


@coroutine
def yield_to_loop() -> Generator[None, None, None]:
    yield


class Runner:
    def __init__(
        self,
        plans: Mapping[str, Plan],
        clock: Clock,
        events: Events,
        reporter: Reporter,
        runs: Runs,
        pace: Pace,
        marks: Marks | NoMarks,
        threads: Threads,
        apart: Apart | None,
        doubts: Doubts,
        completer: Completer,
        *,
        payload_limit: int,
        store_now: Callable[[], int],
        identity: Callable[[], InstanceId],
    ) -> None:
        self._plans = plans
        self._clock = clock
        self._events = events
        self._reporter = reporter
        self._runs = runs
        self._pace = pace
        self._marks = marks
        self._threads = threads
        self._apart = apart
        self._doubts = doubts
        self._completer = completer
        self._payload_limit = payload_limit
        self._store_now = store_now
        self._identity = identity
        self.is_over = False
        """The whole worker is being cancelled: what runs is handed over, and no slot goes on."""
        self.given_up: list[Claimed] = []
        """What ran at that moment."""
        self._forks = FORKS.count
        self._loud = events.wanted(JobStarted)
        self._traced, self._look_again_at = False, float("-inf")

    def group_size(self, job: Claimed) -> int:
        """How many jobs of this task may go in together. A suspect runs alone, and so does what runs in a child process."""
        plan = self._plans.get(job.task)
        if plan is None or plan.batch is None or plan.pool == "process" or job.crashes:
            return 1
        return plan.batch

    async def run_one(self, slot: int, me: "asyncio.Task[Any]", job: Claimed) -> None:
        """The same as `run` for one job; short, because at full speed this is most of what a worker does."""
        plan = self._plans.get(job.task)
        if plan is None or not plan.is_plain or job.crashes or self._loud or self._is_traced():
            await self.run(slot, me, [job])
            return
        try:
            args, kwargs = plan.decode(job.args)
        except Undecodable:
            await self.run(slot, me, [job])
            return
        started = self._store_now()
        running = RunningJob(job, self._reporter.note, self._completer, started)
        run = Run([job], plan.name, running, me, started, False)
        self._runs.add(run)
        self._marks.start(slot, run.jobs)
        limit = job.timeout or plan.timeout_us
        timer = None if limit is None else self._clock.later(limit / 1e6, run.time_out)
        token = CURRENT.set(running)
        ending: Ending | None = None
        try:
            value = await plan.function(*args, **kwargs)
            if me.cancelling():
                await yield_to_loop()  # the handler has cancelled itself just before it returned: that comes here
            ending = _RETURNED_NOTHING if value is None else self._returned(value)
        except asyncio.CancelledError as error:
            ending = self._cancelled(run, plan, error)
            if ending is None:
                raise
        except BaseException as error:  # the handler's own, whatever it is
            ending = self._raised(run, error)
        finally:
            if FORKS.count != self._forks:
                FORKS.leave_copy()
            CURRENT.reset(token)
            if timer is not None:
                timer.cancel()
            if run.is_abandoned:
                raise SlotAbandoned
            self._marks.clear(slot)
            self._runs.remove(run)
            if ending is _RETURNED_NOTHING and not me.cancelling() and running.completion is None:
                finished = self._store_now()
                self._pace.ran(finished - started)
                self._reporter.put(
                    Outcome(
                        id=job.id,
                        token=job.token,
                        kind=OutcomeKind.SUCCEEDED,
                        started_at=started,
                        finished_at=finished,
                    )
                )
            else:
                self._ended(run, plan, _INTERRUPTED if ending is None else ending)

    async def run(self, slot: int, me: "asyncio.Task[Any]", group: list[Claimed]) -> None:
        """Run jobs of one task, in a slot whose task is `me`; each one's outcome is put when this returns or raises."""
        plan = self._plans.get(group[0].task)
        if plan is None:
            for job in group:
                self._reporter.put(parked_unknown(job))
            return
        ready: list[Claimed] = []
        arguments: list[Arguments] = []
        for job in group:
            decoded = plan.arguments(job)
            if isinstance(decoded, tuple):
                ready.append(job)
                arguments.append(decoded)
            else:
                self._not_run(job, plan, decoded)
        if ready:
            await self._run(slot, me, plan, ready, arguments)

    def _is_traced(self) -> bool:
        """Looked at ten times a second: where OpenTelemetry is there and unused, a look takes a tenth of a short job."""
        if tracing.API not in modules:
            return False
        now = self._clock.monotonic()
        if now >= self._look_again_at:
            self._traced, self._look_again_at = tracing.spans() is not None, now + LOOK_EVERY
        return self._traced

    def _not_run(self, job: Claimed, plan: Plan, decoded: Ending | Outcome) -> None:
        if isinstance(decoded, Outcome):
            self._reporter.put(decoded)
        else:
            now = self._store_now()
            self._put(job, plan, decoded, now, now)

    async def _run(
        self, slot: int, me: "asyncio.Task[Any]", plan: Plan, jobs: list[Claimed], arguments: list[Arguments]
    ) -> None:
        started = self._store_now()
        running = RunningJob(jobs[0], self._reporter.note, self._completer, started)
        # A job that is only sent is not to blame for the death of its process, and is not worth another.
        is_suspect = bool(jobs[0].crashes) and plan.runs_own_code
        apart = self._apart if plan.pool == "process" or is_suspect else None
        run = Run(jobs, plan.name, running, me, started, plan.pool == "thread" and apart is None)
        self._runs.add(run)
        self._marks.start(slot, jobs)
        if self._loud:
            for job in jobs:
                self._events.emit(JobStarted(instance=self._identity(), job=job))
        timer = None if apart is not None else self._timer(plan, run)
        token: Token[Any] = BATCH.set(jobs) if plan.batch else CURRENT.set(running)
        attempt = run.attempt = tracing.begin(jobs, is_batch=plan.batch is not None)
        ending: Ending | list[Ending] | None = None
        try:
            if apart is not None:
                ending = await apart.run(run, plan)
            else:
                ending = await self._called(run, plan, arguments)
            if me.cancelling():
                await yield_to_loop()
        except asyncio.CancelledError as error:
            ending = self._cancelled(run, plan, error)
            if ending is None:
                raise
        except BaseException as error:  # the handler's own, whatever it is
            ending = self._raised(run, error)
        finally:
            if FORKS.count != self._forks:
                FORKS.leave_copy()
            token.var.reset(token)
            if attempt is not None:
                attempt.leave()
            if timer is not None:
                timer.cancel()
            if run.is_abandoned:
                raise SlotAbandoned
            self._marks.clear(slot)
            self._runs.remove(run)
            self._ended(run, plan, _INTERRUPTED if ending is None else ending)

    async def _called(self, run: Run, plan: Plan, arguments: list[Arguments]) -> Ending | list[Ending]:
        """Call the handler, on the loop or in a thread."""
        if plan.batch:
            call = functools.partial(plan.function, calls_of(run.jobs, arguments))
        else:
            call = functools.partial(plan.function, *arguments[0][0], **arguments[0][1])
        if plan.is_async:
            value = await call()
        else:
            made = run.call = self._threads.begin(call)
            await self._threads.wait(made)
            if made.error is not None:
                return self._raised(run, made.error)
            value = made.value
        if plan.batch:
            return endings_of(plan.name, len(run.jobs), value, self._returned)
        return _RETURNED_NOTHING if value is None else self._returned(value)

    def abandon(self, slot: int, run: Run) -> None:
        """The handler of an interrupted run will not end: tell how it ended all the same, and leave it behind."""
        plan, reason = self._plans[run.task], run.running.aborted.reason
        run.is_abandoned = True
        self._marks.clear(slot)
        self._runs.remove(run)
        error = Failure("Aborted", f"the run was ended: {reason}")
        self._ended(run, plan, Ending(how=How.ABORTED, reason=reason, error=error))

    def _ended(self, run: Run, plan: Plan, ending: Ending | list[Ending]) -> None:
        finished = self._store_now()
        reason = run.running.aborted.reason
        if run.interrupted and reason is AbortReason.TIMED_OUT and not run.ended_in_time:
            ending = self._timed_out(plan, run.jobs[0])  # also when the handler swallowed its cancellation
        if not self.is_over and not run.is_abandoned:
            # Ours, and what the handler has left behind: the next job in this slot must not be told that it is cancelled.
            while run.slot.cancelling():
                run.slot.uncancel()
        self._pace.ran(finished - run.started_us, len(run.jobs))
        if (completion := run.running.completion) is not None and isinstance(ending, Ending):
            job, started, known = run.jobs[0], run.started_us, ending
            self._doubts.put(
                Doubt(
                    *(job, known, completion, started, finished),
                    otherwise=lambda end: self._put(job, plan, end, started, finished),
                    settled=lambda outcome: _trace(run, [outcome]),
                )
            )
            return
        endings = ending if isinstance(ending, list) else [ending] * len(run.jobs)
        outcomes = [
            self._put(job, plan, each, run.started_us, finished) for job, each in zip(run.jobs, endings, strict=True)
        ]
        _trace(run, outcomes)

    def _put(self, job: Claimed, plan: Plan, ending: Ending, started: int, finished: int) -> Outcome | None:
        if ending.how is How.RETURNED:
            outcome: Outcome | None = Outcome(
                id=job.id,
                token=job.token,
                kind=OutcomeKind.SUCCEEDED,
                started_at=started,
                finished_at=finished,
                result=ending.result,
                result_error=ending.result_error,
            )
        else:
            outcome = judge(job, plan, ending, instance=self._identity(), started_at=started, finished_at=finished)
        if outcome is None:
            self._reporter.drop(job)
        else:
            self._reporter.put(outcome)
        return outcome

    def _returned(self, value: Any) -> Ending:
        try:
            return Ending(how=How.RETURNED, result=encode_result(value, limit=self._payload_limit))
        except Unstorable as error:
            return Ending(how=How.RETURNED, result_error=error.reason)

    def _cancelled(self, run: Run, plan: Plan, error: asyncio.CancelledError) -> Ending | None:
        """A CancelledError came out of the handler: ours, its own, or (None) that of whoever cancels the worker."""
        reason = run.running.aborted.reason
        if run.interrupted:
            assert reason is not None
            if plan.pool == "thread" and run.outside and self._events.wanted(ThreadAbandoned):
                self._events.emit(
                    ThreadAbandoned(
                        instance=self._identity(), id=run.jobs[0].id, task=plan.name, abandoned=self._threads.abandoned
                    )
                )
            return Ending(how=How.ABORTED, reason=reason, error=Failure("Aborted", f"the run was ended: {reason}"))
        if self.is_over:
            self.given_up.extend(run.jobs)
            return None
        return Ending(how=How.RAISED, error=failure(error))

    def _raised(self, run: Run, error: BaseException) -> Ending:
        ending = from_exception(error, run.running.aborted.reason)
        # One object may be raised again and again: its traceback, with all the frames in it, would grow each time.
        with suppress(BaseException):
            error.__traceback__ = None
        return ending

    def _timer(self, plan: Plan, run: Run) -> Timer | None:
        limit = plan.limit(run.jobs)
        if limit is None:
            return None
        run.deadline = self._clock.monotonic() + limit
        return self._clock.later(limit, run.time_out)

    def _timed_out(self, plan: Plan, job: Claimed) -> Ending:
        limit = job.timeout or plan.timeout_us or 0
        return Ending(
            how=How.ABORTED,
            reason=AbortReason.TIMED_OUT,
            error=Failure(TIMED_OUT, f"timed out after {text(limit)}"),
        )


def _trace(run: Run, outcomes: list[Outcome | None]) -> None:
    if run.attempt is not None:
        tracing.end(run.attempt, [tracing.ended(outcome) for outcome in outcomes])
