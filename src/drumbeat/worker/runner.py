"""Run jobs: on the loop, in a thread, or in a child process.

`run` takes a group of jobs of one task and puts an outcome for each into the reporter. Task code is the only code that is not
trusted: whatever it raises becomes a failure of that attempt. A cancellation is one of three: ours (the run is interrupted),
the task's own (it failed), or that of the whole worker (`is_cancelled`), which alone propagates.
"""

import asyncio
import functools
from contextlib import suppress
from contextvars import Token
from typing import Any

from drumbeat import tracing
from drumbeat.codec import Undecodable
from drumbeat.context import CURRENT_BATCH, CURRENT_JOB, AbortReason, Completer, RunningJob
from drumbeat.core.claim import ClaimedJob, Outcome, WriteStatus
from drumbeat.core.job import OutcomeKind
from drumbeat.core.transitions import has_expired
from drumbeat.events import JobStarted, ThreadAbandoned
from drumbeat.worker import result as results
from drumbeat.worker.active_runs import HandlerRun
from drumbeat.worker.batch_call import build_calls, split_results
from drumbeat.worker.child_runner import ChildRunner
from drumbeat.worker.commit_check import CompletionVerifier, UnverifiedCompletion
from drumbeat.worker.core import WorkerCore
from drumbeat.worker.event_loop import yield_to_loop
from drumbeat.worker.fork_detector import FORKS
from drumbeat.worker.parent_results import DecodedJob, ParentResults
from drumbeat.worker.prefetch import Prefetch
from drumbeat.worker.reporter import OutcomeReporter
from drumbeat.worker.result import HandlerResult
from drumbeat.worker.task_spec import Arguments, TaskSpec, unknown_task_outcome
from drumbeat.worker.thread_pool import ThreadPool
from drumbeat.worker.trace_check import TraceCheck


class SlotAbandoned(Exception):
    """An abandoned handler has ended after all. Its slot was replaced before, and ends."""


class JobRunner:
    def __init__(
        self,
        core: WorkerCore,
        prefetch: Prefetch,
        reporter: OutcomeReporter,
        threads: ThreadPool,
        child_runner: ChildRunner | None,
        verifier: CompletionVerifier,
        completer: Completer,
        parents: ParentResults,
    ) -> None:
        self._task_specs = core.task_specs
        self.batch_tasks = frozenset(name for name, spec in core.task_specs.items() if spec.batch is not None)
        self._clock = core.clock
        self._events = core.events
        self._runs = core.runs
        self._journal = core.journal
        self._store_now = core.store_now
        self._identity = core.identity
        self._stuck = core.stuck
        self._encode_result = core.encode_result
        self._prefetch = prefetch
        self._reporter = reporter
        self._threads = threads
        self._child_runner = child_runner
        self._verifier = verifier
        self._completer = completer
        self._parents = parents
        self.is_cancelled = False
        """The whole worker is being cancelled: running jobs are handed over, and no slot goes on."""
        self.abandoned_jobs: list[ClaimedJob] = []
        """The jobs that ran at that time."""
        self._forks = FORKS.count
        self._emits_started = core.events.has_subscribers(JobStarted)
        self._is_traced = TraceCheck(core.clock).is_traced

    def group_size(self, job: ClaimedJob) -> int:
        """How many jobs of this batch task may run in one call. Crash suspects, and jobs in child processes, run alone."""
        spec = self._task_specs[job.task]
        return 1 if spec.batch is None or spec.pool == "process" or job.crashes else spec.batch

    async def run_one(self, slot: int, me: "asyncio.Task[Any]", job: ClaimedJob) -> None:
        """`run` for one job; short, because at full speed this is most of what a worker does."""
        spec = self._task_specs.get(job.task)
        is_plain = spec is not None and spec.is_plain and not job.crashes and job.expires_at is None
        if spec is None or not is_plain or self._emits_started or self._is_traced():
            await self.run(slot, me, [job])
            return
        text = self._parents.take_bound(job) if job.binds else job.args
        if text is None:
            await self.run(slot, me, [job])
            return
        try:
            args, kwargs = spec.decode(text)
        except Undecodable:
            await self.run(slot, me, [job])
            return
        started = self._store_now()
        running = RunningJob(job, self._reporter.put_progress, self._completer, self._clock.now_us, started)
        run = HandlerRun([job], spec.name, running, me, started, False)
        self._runs.add(run)
        self._journal.record_start(slot, run.jobs)
        limit = job.timeout or spec.timeout_us
        if limit is not None:
            run.timer = self._clock.call_later(limit / 1e6, run.time_out)
        token = CURRENT_JOB.set(running)
        result: HandlerResult | None = None
        try:
            value = await spec.function(*args, **kwargs)
            if me.cancelling():
                await yield_to_loop()  # the handler cancelled itself just before it returned: that arrives here
            result = results.RETURNED_NOTHING if value is None else results.from_value(value, self._encode_result)
        except BaseException as error:  # the handler's own
            result = self._from_error(run, spec, error)
        finally:
            if FORKS.count != self._forks:
                FORKS.exit_forked_copy()
            CURRENT_JOB.reset(token)
            if run.is_abandoned:
                raise SlotAbandoned
            self._journal.clear(slot)
            self._runs.remove(run)
            if result is results.RETURNED_NOTHING and not me.cancelling() and running.is_plain:
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
                self._handle_result(run, spec, results.INTERRUPTED if result is None else result)

    async def run(self, slot: int, me: "asyncio.Task[Any]", group: list[ClaimedJob]) -> None:
        """Run jobs of one task in a slot whose task is `me`; each outcome is put when this returns or raises."""
        group = self._drop_expired(group)
        if not group:
            return
        spec = self._task_specs.get(group[0].task)
        if spec is None:
            for job in group:
                self._reporter.put(unknown_task_outcome(job))
            return
        ready: list[ClaimedJob] = []
        arguments: list[Arguments] = []
        bound_args: str | None = None
        for job in group:
            bound_args, decoded = (
                await self._decode_bound(job, spec) if job.binds else (None, spec.decode_arguments(job))
            )
            if isinstance(decoded, tuple):
                ready.append(job)
                arguments.append(decoded)
            else:
                self._put_undecoded(job, spec, decoded)
        if ready:
            await self._run(slot, me, spec, ready, arguments, bound_args)

    async def _decode_bound(self, job: ClaimedJob, spec: TaskSpec) -> DecodedJob:
        try:
            return await self._parents.decode(job, spec)
        except asyncio.CancelledError:
            if not self.is_cancelled:  # this slot goes on, without this job
                self._reporter.release([job])
            raise

    def _drop_expired(self, group: list[ClaimedJob]) -> list[ClaimedJob]:
        """End the jobs that must not start any more. `store_now` is never before the claim, so what had expired when it was
        claimed is found here."""
        if all(job.expires_at is None for job in group):
            return group
        now = self._store_now()
        for job in group:
            if has_expired(job, now):
                self._reporter.put(Outcome(id=job.id, token=job.token, kind=OutcomeKind.EXPIRED))
        return [job for job in group if not has_expired(job, now)]

    def _put_undecoded(self, job: ClaimedJob, spec: TaskSpec, decoded: HandlerResult | Outcome) -> None:
        if isinstance(decoded, Outcome):
            self._reporter.put(decoded)
        else:
            now = self._store_now()
            self._put_outcome(job, spec, decoded, now, now)

    async def _run(
        self,
        slot: int,
        me: "asyncio.Task[Any]",
        spec: TaskSpec,
        jobs: list[ClaimedJob],
        arguments: list[Arguments],
        bound_args: str | None,
    ) -> None:
        started = self._store_now()
        running = RunningJob(jobs[0], self._reporter.put_progress, self._completer, self._clock.now_us, started)
        # A job that runs no user code is not to blame for a crash, and is not worth a child process.
        is_suspect = bool(jobs[0].crashes) and spec.runs_own_code
        child_runner = self._child_runner if spec.pool == "process" or is_suspect else None
        run = HandlerRun(jobs, spec.name, running, me, started, spec.pool == "thread" and child_runner is None)
        run.bound_args = bound_args
        self._runs.add(run)
        self._journal.record_start(slot, jobs)
        if self._emits_started:
            for job in jobs:
                self._events.emit(JobStarted(instance=self._identity(), job=job))
        if child_runner is None and (timeout := spec.timeout_for(jobs)) is not None:
            run.deadline = self._clock.monotonic() + timeout
            run.timer = self._clock.call_later(timeout, run.time_out)
        token: Token[Any] = CURRENT_BATCH.set(jobs) if spec.batch else CURRENT_JOB.set(running)
        attempt = run.span = tracing.start_attempt_span(jobs, is_batch=spec.batch is not None)
        result: HandlerResult | list[HandlerResult] | None = None
        try:
            if child_runner is not None:
                result = await child_runner.run(run, spec)
            else:
                result = await self._call_handler(run, spec, arguments)
            if me.cancelling():
                await yield_to_loop()
        except BaseException as error:  # the handler's own
            result = self._from_error(run, spec, error)
        finally:
            if FORKS.count != self._forks:
                FORKS.exit_forked_copy()
            token.var.reset(token)
            if attempt is not None:
                attempt.detach()
            if run.is_abandoned:
                raise SlotAbandoned
            self._journal.clear(slot)
            self._runs.remove(run)
            self._handle_result(run, spec, results.INTERRUPTED if result is None else result)

    async def _call_handler(
        self, run: HandlerRun, spec: TaskSpec, arguments: list[Arguments]
    ) -> HandlerResult | list[HandlerResult]:
        if spec.batch:
            call = functools.partial(spec.function, build_calls(run.jobs, arguments))
        else:
            call = functools.partial(spec.function, *arguments[0][0], **arguments[0][1])
        if spec.is_async:
            value = await call()
        else:
            submitted = run.call = self._threads.submit(call)
            await self._threads.wait(submitted)
            if submitted.error is not None:
                return self._from_exception(run, spec, submitted.error)
            value = submitted.value
        if spec.batch:
            return split_results(spec.name, len(run.jobs), value, self._encode_result, spec.retry_filter)
        return results.from_value(value, self._encode_result)

    def abandon(self, slot: int, run: HandlerRun) -> None:
        """The handler of an interrupted run does not end: report the run as aborted, and leave the handler behind."""
        spec, reason = self._task_specs[run.task], run.running.aborted.reason
        run.is_abandoned = True
        self._journal.clear(slot)
        self._runs.remove(run)
        self._handle_result(run, spec, results.from_abort(reason))

    def _handle_result(self, run: HandlerRun, spec: TaskSpec, result: HandlerResult | list[HandlerResult]) -> None:
        finished = self._store_now()
        reason = run.running.aborted.reason
        if run.is_interrupted and reason is AbortReason.TIMED_OUT and not run.has_ended_in_time:
            # Even if the handler swallowed its cancellation.
            result = results.from_timeout(run.jobs[0].timeout or spec.timeout_us or 0)
        if not self.is_cancelled and not run.is_abandoned:
            # Our cancellation, and any that the handler left behind: the next job in this slot must not see them.
            while run.slot.cancelling():
                run.slot.uncancel()
        self._prefetch.record_run(finished - run.started_us, len(run.jobs))
        if (steps := run.running.steps) is not None and isinstance(result, HandlerResult):
            result = results.settle_steps(result, steps)
        if (completion := run.running.completion) is not None and isinstance(result, HandlerResult):
            settle = functools.partial(self._put_outcomes, run, spec, finished)
            self._verifier.put(UnverifiedCompletion(run.jobs[0], result, completion, settle, run.running.is_parent))
        else:
            self._put_outcomes(run, spec, finished, result)

    def _put_outcomes(
        self,
        run: HandlerRun,
        spec: TaskSpec,
        finished: int,
        result: HandlerResult | list[HandlerResult],
        is_stored: bool = False,
    ) -> None:
        each_result = result if isinstance(result, list) else [result] * len(run.jobs)
        outcomes = [
            self._put_outcome(job, spec, each, run.started_us, finished, is_stored)
            for job, each in zip(run.jobs, each_result, strict=True)
        ]
        if run.span is not None:
            tracing.finish_attempt_span(run.span, [tracing.to_span_result(outcome) for outcome in outcomes])

    def _put_outcome(
        self,
        job: ClaimedJob,
        spec: TaskSpec,
        result: HandlerResult,
        started: int,
        finished: int,
        is_stored: bool = False,
    ) -> Outcome | None:
        outcome = results.to_outcome(
            job, spec, result, instance=self._identity(), started_at=started, finished_at=finished
        )
        if outcome is None:
            self._reporter.drop(job)
        elif is_stored:  # by the handler's own transaction
            self._reporter.apply_statuses(self._identity(), [outcome], [WriteStatus.DUPLICATE])
        else:
            self._reporter.put(outcome)
        return outcome

    def _from_error(self, run: HandlerRun, spec: TaskSpec, error: BaseException) -> HandlerResult:
        """What the handler raised. A cancellation is ours, its own, or that of the whole worker, which propagates."""
        # Not isinstance: it would read error.__class__, which may raise.
        if not issubclass(type(error), asyncio.CancelledError):
            return self._from_exception(run, spec, error)
        reason = run.running.aborted.reason
        if run.is_interrupted:
            assert reason is not None
            if spec.pool == "thread" and run.in_thread and self._events.has_subscribers(ThreadAbandoned):
                self._events.emit(
                    ThreadAbandoned(
                        instance=self._identity(), id=run.jobs[0].id, task=spec.name, abandoned=self._stuck.in_threads
                    )
                )
            return results.from_abort(reason)
        if self.is_cancelled:
            self.abandoned_jobs.extend(run.jobs)
            raise error
        return results.from_exception(error, None, spec.retry_filter)

    def _from_exception(self, run: HandlerRun, spec: TaskSpec, error: BaseException) -> HandlerResult:
        result = results.from_exception(error, run.running.aborted.reason, spec.retry_filter)
        # One exception object may be raised repeatedly: its traceback, with all its frames, would grow each time.
        with suppress(BaseException):
            error.__traceback__ = None
        return result
