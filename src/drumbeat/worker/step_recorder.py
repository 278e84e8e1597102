"""Records the steps of all runs of a worker: those that come while a call to the store is under way go together in the next.

One call at a time, beside the lanes of claims and outcomes: a step waits for nothing but the store. While the store is away or
full, calls are repeated; a run that is ended meanwhile does not wait any longer.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from msgspec.structs import replace

from drumbeat.context import Aborted, AbortReason
from drumbeat.core.claim import WriteStatus
from drumbeat.core.dependencies import GraphAnswer, NewGraph, ParentResult
from drumbeat.core.signals import SignalWait, TakenSignal
from drumbeat.core.step import NewStep, StepRecord
from drumbeat.errors import StoreError
from drumbeat.ids import JobId
from drumbeat.outage import FullStoreReporter
from drumbeat.service import OutageBackoff
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from drumbeat.worker.core import WorkerCore
from drumbeat.worker.thread_pool import ThreadPool

T = TypeVar("T")
MAX_BATCH = 500
MAX_BATCH_BYTES = 4 * 1024 * 1024


class StepRecorder:
    """A `job_steps.StepPort`, on the worker's loop."""

    name = "steps"

    def __init__(self, core: WorkerCore, store: Store, threads: ThreadPool) -> None:
        self._whole_store = store
        self._store = store.steps
        self._identity = core.identity
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._write_backoff = OutageBackoff(core.clock, FullStoreReporter(core.outage_reporter))
        self._read_backoff = OutageBackoff(core.clock, core.outage_reporter)
        self._waiting: list[tuple[NewStep, asyncio.Future[bool]]] = []
        self._wakeup = asyncio.Event()
        self._is_closed = False

    async def load(self, job: JobId) -> list[StepRecord]:
        return await self._on_loop(self._load(job))

    async def _load(self, job: JobId) -> list[StepRecord]:
        return (await self._read_backoff.retry(lambda: self._store.load([job])))[job]

    async def record(self, step: NewStep) -> bool:
        return await self._on_loop(self._record(step))

    async def _record(self, step: NewStep) -> bool:
        if self._is_closed:
            raise Aborted(AbortReason.DRAINING)  # a thread that outlived its worker
        recorded: asyncio.Future[bool] = self._loop.create_future()
        self._waiting.append((step, recorded))
        self._wakeup.set()
        return await recorded

    async def take_signal(self, wait: SignalWait) -> TakenSignal:
        return await self._on_loop(self._take_signal(wait))

    async def _take_signal(self, wait: SignalWait) -> TakenSignal:
        return await self._write_backoff.retry(lambda: self._store.take_signal(self._identity(), wait))

    def take_signal_sync(self, wait: SignalWait) -> TakenSignal:
        return self._call_from_thread(self._take_signal(wait))

    def load_sync(self, job: JobId) -> list[StepRecord]:
        return self._call_from_thread(self._load(job))

    def record_sync(self, step: NewStep) -> bool:
        return self._call_from_thread(self._record(step))

    async def page_results(self, job: JobId, argument: str, after: int, limit: int) -> list[ParentResult]:
        read = self._whole_store.dependencies.page_results
        return await self._on_loop(self._read_backoff.retry(lambda: read(job, argument, after, limit)))

    def page_results_sync(self, job: JobId, argument: str, after: int, limit: int) -> list[ParentResult]:
        return self._call_from_thread(self.page_results(job, argument, after, limit))

    async def add_graph(self, graph: NewGraph) -> GraphAnswer:
        """Store what a running job adds, in its own workflow."""
        return await self._on_loop(self._add_graph(graph))

    async def _add_graph(self, graph: NewGraph) -> GraphAnswer:
        assert graph.step is not None
        store, job = self._whole_store, graph.step.claim.id
        workflow = (await self._read_backoff.retry(lambda: get_job(store, job))).workflow
        jobs = [replace(each, workflow=workflow) for each in graph.jobs]
        added = replace(graph, jobs=jobs, instance=self._identity())
        return await self._write_backoff.retry(lambda: store.dependencies.add(added))

    def add_graph_sync(self, graph: NewGraph) -> GraphAnswer:
        return self._call_from_thread(self._add_graph(graph))

    async def run_in_thread(self, call: Callable[[], Any]) -> Any:
        return await self._threads.run(call)

    def close(self) -> None:
        """Return from `run` once everything is recorded."""
        self._is_closed = True
        self._wakeup.set()

    async def run(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            while batch := self._take_batch():
                await self._record_batch(batch)
            if self._is_closed:
                return

    def _take_batch(self) -> list[tuple[NewStep, "asyncio.Future[bool]"]]:
        """Without those whose run has been ended."""
        count = size = 0
        for step, _ in self._waiting[:MAX_BATCH]:
            size += len(step.result)
            if count and size > MAX_BATCH_BYTES:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        wanted = [each for each in batch if not each[1].done()]
        return wanted or (self._take_batch() if batch else [])

    async def _record_batch(self, batch: list[tuple[NewStep, "asyncio.Future[bool]"]]) -> None:
        steps = [step for step, _ in batch]
        try:
            statuses = await self._write_backoff.retry(lambda: self._store.record(self._identity(), steps))
        except StoreError as error:  # not an outage: it concerns these steps
            for _, recorded in batch:
                if not recorded.done():
                    recorded.set_exception(error)
            return
        for (_, recorded), status in zip(batch, statuses, strict=True):
            if not recorded.done():
                recorded.set_result(status is WriteStatus.APPLIED)

    async def _on_loop(self, call: Coroutine[Any, Any, T]) -> T:
        """Handlers in threads may run a loop of their own, as by `asyncio.run`."""
        if asyncio.get_running_loop() is self._loop:
            return await call
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    def _call_from_thread(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()
