"""Call a handler as a worker would, without a store: arguments and result pass through their real encoding."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from typing import Any, NoReturn

from drumbeat.codec import decode_result, encode_result
from drumbeat.context import CURRENT_JOB, RunningJob
from drumbeat.core.claim import ClaimedJob
from drumbeat.core.dependencies import NewGraph, ParentResult
from drumbeat.core.job import NewJob
from drumbeat.core.signals import STILL_WAITING, SignalWait, TakenSignal
from drumbeat.core.step import NewStep, StepRecord
from drumbeat.errors import InvalidArguments
from drumbeat.ids import InstanceId, JobId
from drumbeat.internals import AppInternals
from drumbeat.step_calls import Suspended
from drumbeat.worker.around_call import surround
from drumbeat.worker.job_steps import JobSteps, StepContext
from drumbeat.worker.reporter import encode_progress


async def perform(internals: AppInternals, job: NewJob) -> Any:
    task = internals.registry[job.task]
    if task.options.batch is not None:
        raise InvalidArguments(f"task {task.name!r} takes batches: enqueue its jobs and run_until_idle()", "job")
    if any(edge.binding for edge in job.after):
        problem = (
            "perform() has no parents whose results it could pass: bind values, or enqueue all and run_until_idle()"
        )
        raise InvalidArguments(f"{job.task}: {problem}", "job")
    args, kwargs = task.signature.decode(job.args)
    now_us = internals.clock.now_us
    running = RunningJob(_claim(job, now_us()), _check_progress, _NoCompleter(internals), now_us, now_us())
    function = surround(task, internals.registry.arounds)
    # In a context of its own, as in a worker: the test must not see what the handler sets.
    context = contextvars.copy_context()
    context.run(CURRENT_JOB.set, running)
    try:
        if task.is_async:
            value = await asyncio.get_running_loop().create_task(function(*args, **kwargs), context=context)
        else:
            value = await asyncio.to_thread(context.run, function, *args, **kwargs)
    except Suspended as suspended:
        problem = (
            f"{job.task}: perform() runs a job once, and cannot suspend it ({suspended}): enqueue it and advance()"
        )
        raise InvalidArguments(problem, "job") from suspended
    codec = internals.registry.codec
    stored = encode_result(value, limit=internals.settings.payload_limit, codec=codec)
    return decode_result(stored, task.returns, codec)


def _claim(job: NewJob, now: int) -> ClaimedJob:
    return ClaimedJob(
        id=job.id,
        token=now,
        args=job.args,
        run_at=now,
        failures=0,
        crashes=0,
        replays=0,
        blocked_since=None,
        task=job.task,
        queue=job.queue,
        priority=job.priority,
        key=job.key,
        signature=job.signature,
        created_at=now,
        due_at=now,
        retries=job.retries,
        timeout=job.timeout,
        crash_limit=job.crash_limit,
        on_dead=job.on_dead,
    )


def _check_progress(_: ClaimedJob, value: Any) -> None:
    encode_progress(value)


class _NoCompleter:
    """There is no job in the store that could be completed. Steps are called, and their results encoded and decoded."""

    instance = InstanceId("perform")

    def __init__(self, internals: AppInternals) -> None:
        self._internals = internals

    async def complete(self, job: RunningJob, conn: Any, result: Any) -> None:
        self.transaction(job)

    def complete_sync(self, job: RunningJob, conn: Any, result: Any) -> None:
        self.transaction(job)

    def open_steps(self, job: RunningJob) -> JobSteps:
        internals = self._internals
        codec = internals.registry.codec
        encode = functools.partial(encode_result, limit=internals.settings.payload_limit, codec=codec)
        transactional = internals.client.transactional
        context = StepContext(
            _NoStore(), transactional, lambda: self.instance, internals.clock.now_us, encode, codec, internals.client
        )
        return JobSteps(job, context)

    def transaction(self, job: RunningJob) -> NoReturn:
        raise InvalidArguments(
            f"{job.task}: perform() has no job that could be completed: enqueue it and run_until_idle()", "job"
        )


class _NoStore:
    """A `job_steps.StepPort` of a job that is run once."""

    async def load(self, job: JobId) -> list[StepRecord]:
        return []

    def load_sync(self, job: JobId) -> list[StepRecord]:
        return []

    async def record(self, step: NewStep) -> bool:
        return True

    def record_sync(self, step: NewStep) -> bool:
        return True

    async def take_signal(self, wait: SignalWait) -> TakenSignal:
        return STILL_WAITING

    def take_signal_sync(self, wait: SignalWait) -> TakenSignal:
        return STILL_WAITING

    async def page_results(self, job: JobId, argument: str, after: int, limit: int) -> list[ParentResult]:
        return []

    def page_results_sync(self, job: JobId, argument: str, after: int, limit: int) -> list[ParentResult]:
        return []

    async def add_graph(self, graph: NewGraph) -> NoReturn:
        self.add_graph_sync(graph)

    def add_graph_sync(self, graph: NewGraph) -> NoReturn:
        raise InvalidArguments("perform() runs one job, and stores none: enqueue it and run_until_idle()", "job")

    async def run_in_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(call)
