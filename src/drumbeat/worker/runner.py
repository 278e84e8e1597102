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
from drumbeat.context import CURRENT_BATCH, CURRENT_JOB, AbortReason, Completer, RunningJob
from drumbeat.core.claim import ClaimedJob, Outcome
from drumbeat.core.job import Failure, OutcomeKind
from drumbeat.durations import format_duration
from drumbeat.events import Events, JobStarted, ThreadAbandoned
from drumbeat.handle import TIMED_OUT
from drumbeat.ids import InstanceId
from drumbeat.worker.active_runs import ActiveRuns, HandlerRun
from drumbeat.worker.batch_call import build_calls, split_results
from drumbeat.worker.child_runner import ChildRunner
from drumbeat.worker.commit_check import CompletionVerifier, UnverifiedCompletion
from drumbeat.worker.crash_journal import CrashJournal, NullCrashJournal
from drumbeat.worker.fork_detector import FORKS
from drumbeat.worker.prefetch import Prefetch
from drumbeat.worker.reporter import OutcomeReporter
from drumbeat.worker.result import HandlerResult, ResultKind, describe_failure, from_exception, to_outcome
from drumbeat.worker.task_spec import Arguments, TaskSpec, unknown_task_outcome
from drumbeat.worker.thread_pool import ThreadPool

TRACE_CHECK_INTERVAL = 0.1
_RETURNED_NOTHING = HandlerResult(kind=ResultKind.RETURNED)
# The whole worker is being cancelled: what cannot be waited for is handed over.
_INTERRUPTED = HandlerResult(kind=ResultKind.ABORTED, reason=AbortReason.DRAINING)


class SlotAbandoned(Exception):
    """A handler that was given up has ended after all. Its slot has been replaced long ago, and ends."""


@coroutine
def yield_to_loop() -> Generator[None, None, None]:
    yield


class JobRunner:
    def __init__(
        self,
        task_specs: Mapping[str, TaskSpec],
        clock: Clock,
        events: Events,
        reporter: OutcomeReporter,
        runs: ActiveRuns,
        prefetch: Prefetch,
        journal: CrashJournal | NullCrashJournal,
        threads: ThreadPool,
        child_runner: ChildRunner | None,
        verifier: CompletionVerifier,
        completer: Completer,
        *,
        payload_limit: int,
        store_now: Callable[[], int],
        identity: Callable[[], InstanceId],
    ) -> None:
        self._task_specs = task_specs
        self._clock = clock
        self._events = events
        self._reporter = reporter
        self._runs = runs
        self._prefetch = prefetch
        self._journal = journal
        self._threads = threads
        self._child_runner = child_runner
        self._verifier = verifier
        self._completer = completer
        self._payload_limit = payload_limit
        self._store_now = store_now
        self._identity = identity
        self.is_cancelled = False
        """The whole worker is being cancelled: what runs is handed over, and no slot goes on."""
        self.abandoned_jobs: list[ClaimedJob] = []
        """What ran at that moment."""
        self._forks = FORKS.count
        self._emits_started = events.has_subscribers(JobStarted)
        self._traced, self._trace_check_at = False, float("-inf")

    def group_size(self, job: ClaimedJob) -> int:
        """How many jobs of this task may go in together. A suspect runs alone, and so does what runs in a child process."""
        plan = self._task_specs.get(job.task)
        if plan is None or plan.batch is None or plan.pool == "process" or job.crashes:
            return 1
        return plan.batch

    async def run_one(self, slot: int, me: "asyncio.Task[Any]", job: ClaimedJob) -> None:
        """The same as `run` for one job; short, because at full speed this is most of what a worker does."""
        plan = self._task_specs.get(job.task)
        if plan is None or not plan.is_plain or job.crashes or self._emits_started or self._is_traced():
            await self.run(slot, me, [job])
            return
        try:
            args, kwargs = plan.decode(job.args)
        except Undecodable:
            await self.run(slot, me, [job])
            return
        started = self._store_now()
        running = RunningJob(job, self._reporter.put_progress, self._completer, started)
        run = HandlerRun([job], plan.name, running, me, started, False)
        self._runs.add(run)
        self._journal.record_start(slot, run.jobs)
        limit = job.timeout or plan.timeout_us
        timer = None if limit is None else self._clock.call_later(limit / 1e6, run.time_out)
        token = CURRENT_JOB.set(running)
        ending: HandlerResult | None = None
        try:
            value = await plan.function(*args, **kwargs)
            if me.cancelling():
                await yield_to_loop()  # the handler has cancelled itself just before it returned: that comes here
            ending = _RETURNED_NOTHING if value is None else self._from_value(value)
        except asyncio.CancelledError as error:
            ending = self._from_cancellation(run, plan, error)
            if ending is None:
                raise
        except BaseException as error:  # the handler's own, whatever it is
            ending = self._from_exception(run, error)
        finally:
            if FORKS.count != self._forks:
                FORKS.exit_forked_copy()
            CURRENT_JOB.reset(token)
            if timer is not None:
                timer.cancel()
            if run.is_abandoned:
                raise SlotAbandoned
            self._journal.clear(slot)
            self._runs.remove(run)
            if ending is _RETURNED_NOTHING and not me.cancelling() and running.completion is None:
                finished = self._store_now()
                self._prefetch.record_run(finished - started)
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
                self._handle_result(run, plan, _INTERRUPTED if ending is None else ending)

    async def run(self, slot: int, me: "asyncio.Task[Any]", group: list[ClaimedJob]) -> None:
        """Run jobs of one task, in a slot whose task is `me`; each one's outcome is put when this returns or raises."""
        plan = self._task_specs.get(group[0].task)
        if plan is None:
            for job in group:
                self._reporter.put(unknown_task_outcome(job))
            return
        ready: list[ClaimedJob] = []
        arguments: list[Arguments] = []
        for job in group:
            decoded = plan.decode_arguments(job)
            if isinstance(decoded, tuple):
                ready.append(job)
                arguments.append(decoded)
            else:
                self._put_undecoded(job, plan, decoded)
        if ready:
            await self._run(slot, me, plan, ready, arguments)

    def _is_traced(self) -> bool:
        """Looked at ten times a second: where OpenTelemetry is there and unused, a look takes a tenth of a short job."""
        if tracing.API not in modules:
            return False
        now = self._clock.monotonic()
        if now >= self._trace_check_at:
            self._traced, self._trace_check_at = tracing.get_span_factory() is not None, now + TRACE_CHECK_INTERVAL
        return self._traced

    def _put_undecoded(self, job: ClaimedJob, plan: TaskSpec, decoded: HandlerResult | Outcome) -> None:
        if isinstance(decoded, Outcome):
            self._reporter.put(decoded)
        else:
            now = self._store_now()
            self._put_outcome(job, plan, decoded, now, now)

    async def _run(
        self, slot: int, me: "asyncio.Task[Any]", plan: TaskSpec, jobs: list[ClaimedJob], arguments: list[Arguments]
    ) -> None:
        started = self._store_now()
        running = RunningJob(jobs[0], self._reporter.put_progress, self._completer, started)
        # A job that is only sent is not to blame for the death of its process, and is not worth another.
        is_suspect = bool(jobs[0].crashes) and plan.runs_own_code
        apart = self._child_runner if plan.pool == "process" or is_suspect else None
        run = HandlerRun(jobs, plan.name, running, me, started, plan.pool == "thread" and apart is None)
        self._runs.add(run)
        self._journal.record_start(slot, jobs)
        if self._emits_started:
            for job in jobs:
                self._events.emit(JobStarted(instance=self._identity(), job=job))
        timer = None if apart is not None else self._start_timer(plan, run)
        token: Token[Any] = CURRENT_BATCH.set(jobs) if plan.batch else CURRENT_JOB.set(running)
        attempt = run.span = tracing.start_attempt_span(jobs, is_batch=plan.batch is not None)
        ending: HandlerResult | list[HandlerResult] | None = None
        try:
            if apart is not None:
                ending = await apart.run(run, plan)
            else:
                ending = await self._call_handler(run, plan, arguments)
            if me.cancelling():
                await yield_to_loop()
        except asyncio.CancelledError as error:
            ending = self._from_cancellation(run, plan, error)
            if ending is None:
                raise
        except BaseException as error:  # the handler's own, whatever it is
            ending = self._from_exception(run, error)
        finally:
            if FORKS.count != self._forks:
                FORKS.exit_forked_copy()
            token.var.reset(token)
            if attempt is not None:
                attempt.detach()
            if timer is not None:
                timer.cancel()
            if run.is_abandoned:
                raise SlotAbandoned
            self._journal.clear(slot)
            self._runs.remove(run)
            self._handle_result(run, plan, _INTERRUPTED if ending is None else ending)

    async def _call_handler(
        self, run: HandlerRun, plan: TaskSpec, arguments: list[Arguments]
    ) -> HandlerResult | list[HandlerResult]:
        """Call the handler, on the loop or in a thread."""
        if plan.batch:
            call = functools.partial(plan.function, build_calls(run.jobs, arguments))
        else:
            call = functools.partial(plan.function, *arguments[0][0], **arguments[0][1])
        if plan.is_async:
            value = await call()
        else:
            made = run.call = self._threads.submit(call)
            await self._threads.wait(made)
            if made.error is not None:
                return self._from_exception(run, made.error)
            value = made.value
        if plan.batch:
            return split_results(plan.name, len(run.jobs), value, self._from_value)
        return _RETURNED_NOTHING if value is None else self._from_value(value)

    def abandon(self, slot: int, run: HandlerRun) -> None:
        """The handler of an interrupted run will not end: tell how it ended all the same, and leave it behind."""
        plan, reason = self._task_specs[run.task], run.running.aborted.reason
        run.is_abandoned = True
        self._journal.clear(slot)
        self._runs.remove(run)
        error = Failure("Aborted", f"the run was ended: {reason}")
        self._handle_result(run, plan, HandlerResult(kind=ResultKind.ABORTED, reason=reason, error=error))

    def _handle_result(self, run: HandlerRun, plan: TaskSpec, ending: HandlerResult | list[HandlerResult]) -> None:
        finished = self._store_now()
        reason = run.running.aborted.reason
        if run.is_interrupted and reason is AbortReason.TIMED_OUT and not run.has_ended_in_time:
            ending = self._timeout_result(plan, run.jobs[0])  # also when the handler swallowed its cancellation
        if not self.is_cancelled and not run.is_abandoned:
            # Ours, and what the handler has left behind: the next job in this slot must not be told that it is cancelled.
            while run.slot.cancelling():
                run.slot.uncancel()
        self._prefetch.record_run(finished - run.started_us, len(run.jobs))
        if (completion := run.running.completion) is not None and isinstance(ending, HandlerResult):
            job, started, known = run.jobs[0], run.started_us, ending
            self._verifier.put(
                UnverifiedCompletion(
                    *(job, known, completion, started, finished),
                    put_result=lambda end: self._put_outcome(job, plan, end, started, finished),
                    on_settled=lambda outcome: _finish_span(run, [outcome]),
                )
            )
            return
        endings = ending if isinstance(ending, list) else [ending] * len(run.jobs)
        outcomes = [
            self._put_outcome(job, plan, each, run.started_us, finished)
            for job, each in zip(run.jobs, endings, strict=True)
        ]
        _finish_span(run, outcomes)

    def _put_outcome(
        self, job: ClaimedJob, plan: TaskSpec, ending: HandlerResult, started: int, finished: int
    ) -> Outcome | None:
        if ending.kind is ResultKind.RETURNED:
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
            outcome = to_outcome(job, plan, ending, instance=self._identity(), started_at=started, finished_at=finished)
        if outcome is None:
            self._reporter.drop(job)
        else:
            self._reporter.put(outcome)
        return outcome

    def _from_value(self, value: Any) -> HandlerResult:
        try:
            return HandlerResult(kind=ResultKind.RETURNED, result=encode_result(value, limit=self._payload_limit))
        except Unstorable as error:
            return HandlerResult(kind=ResultKind.RETURNED, result_error=error.reason)

    def _from_cancellation(
        self, run: HandlerRun, plan: TaskSpec, error: asyncio.CancelledError
    ) -> HandlerResult | None:
        """A CancelledError came out of the handler: ours, its own, or (None) that of whoever cancels the worker."""
        reason = run.running.aborted.reason
        if run.is_interrupted:
            assert reason is not None
            if plan.pool == "thread" and run.in_thread and self._events.has_subscribers(ThreadAbandoned):
                self._events.emit(
                    ThreadAbandoned(
                        instance=self._identity(), id=run.jobs[0].id, task=plan.name, abandoned=self._threads.abandoned
                    )
                )
            return HandlerResult(
                kind=ResultKind.ABORTED, reason=reason, error=Failure("Aborted", f"the run was ended: {reason}")
            )
        if self.is_cancelled:
            self.abandoned_jobs.extend(run.jobs)
            return None
        return HandlerResult(kind=ResultKind.RAISED, error=describe_failure(error))

    def _from_exception(self, run: HandlerRun, error: BaseException) -> HandlerResult:
        ending = from_exception(error, run.running.aborted.reason)
        # One object may be raised again and again: its traceback, with all the frames in it, would grow each time.
        with suppress(BaseException):
            error.__traceback__ = None
        return ending

    def _start_timer(self, plan: TaskSpec, run: HandlerRun) -> Timer | None:
        limit = plan.timeout_for(run.jobs)
        if limit is None:
            return None
        run.deadline = self._clock.monotonic() + limit
        return self._clock.call_later(limit, run.time_out)

    def _timeout_result(self, plan: TaskSpec, job: ClaimedJob) -> HandlerResult:
        limit = job.timeout or plan.timeout_us or 0
        return HandlerResult(
            kind=ResultKind.ABORTED,
            reason=AbortReason.TIMED_OUT,
            error=Failure(TIMED_OUT, f"timed out after {format_duration(limit)}"),
        )


def _finish_span(run: HandlerRun, outcomes: list[Outcome | None]) -> None:
    if run.span is not None:
        tracing.finish_attempt_span(run.span, [tracing.to_span_result(outcome) for outcome in outcomes])
