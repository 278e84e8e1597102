"""The client of the store in a program: enqueue, cancel, and wait for results, on any event loop.

Tasks (`tasks.Enqueuer`), rooms and handles (`handle.JobClient`) use it. It runs no jobs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, assert_never

from drumbeat import tracing
from drumbeat.clock import SYSTEM, Clock
from drumbeat.codec import JsonCodec, Undecodable, decode_result
from drumbeat.core.dependencies import NewWorkflow
from drumbeat.core.job import CancelAnswer, Cancelled, EndedJob, Job, JobState, NewJob
from drumbeat.durations import Duration, seconds
from drumbeat.errors import InvalidArguments, ResultNotKept
from drumbeat.handle import JobHandle, SyncJobHandle, job_error
from drumbeat.ids import JobId
from drumbeat.settings import Settings
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store, Transactional
from drumbeat.store.urls import open_store, transactional_for
from drumbeat.sync_loop import SYNC_LOOP
from drumbeat.tasks import Registry, Task
from drumbeat.tasks.options import has_parents
from drumbeat.workflow_handle import WorkflowHandle

from .loop_stores import LoopStores
from .room_sender import RoomSender
from .signals import build_signal, check_answer, check_sent, find_job_of_key
from .workflows import WorkflowClient

__all__ = ["Client"]

MAX_KEYS_PER_BATCH = 500
"""How many keys one transaction cancels: others can write between two of them."""


def _trace_send(jobs: Sequence[NewJob[Any]]) -> AbstractContextManager[Sequence[NewJob[Any]]]:
    """The jobs to store: in a `send` span and with its trace context, if the program traces."""
    spans = tracing.get_span_factory() if jobs else None
    return nullcontext(jobs) if spans is None else spans.start_send(jobs)


class Client(WorkflowClient):
    """One for each app. It opens nothing before the first call."""

    def __init__(self, load_settings: Callable[[], Settings], registry: Registry, clock: Clock = SYSTEM) -> None:
        self._load_settings = load_settings
        self.clock = clock
        self.registry = registry
        self.queue_policies = registry.queue_policies
        self.loop_stores = LoopStores(self._open_first_store)
        self.opened_settings: Settings | None = None
        """The settings by which the first store was opened; None: none was."""
        self._transactional: tuple[Settings, Transactional] | None = None
        self.wrap_transactional: Callable[[Transactional], Transactional] = lambda inside: inside
        """How the app puts an outbox before it."""
        self.wrap_store: Callable[[Store], Store] = lambda store: store
        """What tests put before every store that is opened."""

    @cached_property
    def settings(self) -> Settings:
        """Loaded at the first use; `Drumbeat.configure` sets it anew."""
        return self._load_settings()

    @property
    def codec(self) -> JsonCodec:
        return self.registry.codec

    def register(self, task: Task[..., Any]) -> None:
        self.registry.add(task)

    def declared_queues(self) -> frozenset[str]:
        """Every queue that a worker of this program may serve."""
        return self.registry.queues() | self.settings.declared_queues

    async def store(self) -> Store:
        """The store of the running loop, opened if it is not open."""
        opened = self.loop_stores.open_stores.get(asyncio.get_running_loop())
        return await self.loop_stores.current().store() if opened is None else opened

    async def open_store(self) -> Store:
        """A store for the running loop, which the caller closes."""
        settings = self.settings
        return self.wrap_store(
            await open_store(
                settings.url, coordination=settings.coordination, namespace=settings.namespace, clock=self.clock
            )
        )

    async def _open_first_store(self) -> Store:
        settings = self.settings
        store = await self.open_store()
        self.opened_settings = self.opened_settings or settings
        return store

    async def enqueue(self, job: NewJob[Any]) -> JobHandle[Any]:
        if tracing.get_span_factory() is not None:
            return (await self.enqueue_many([job]))[0]
        store = await self.store()
        (added,) = await (self.add_graph([job]) if job.after else store.jobs.add([job]))
        return JobHandle(self, added.id, added.created)

    def enqueue_sync(self, api_name: str, job: NewJob[Any]) -> SyncJobHandle[Any]:
        return SyncJobHandle(SYNC_LOOP.run(api_name, self.enqueue(job)))

    async def enqueue_many(self, jobs: Sequence[NewJob[Any]]) -> list[JobHandle[Any]]:
        with _trace_send(jobs) as traced:
            store = await self.store()
            adding = self.add_graph(traced) if has_parents(traced) else store.jobs.add(traced)
            return [JobHandle(self, added.id, added.created) for added in await adding]

    async def enqueue_workflow(self, workflow: NewWorkflow, jobs: Sequence[NewJob[Any]]) -> WorkflowHandle:
        """Store a workflow, all or none."""
        with _trace_send(jobs) as traced:
            added = await self.add_graph(traced, workflow)
        return WorkflowHandle(self, workflow.id, [JobHandle(self, each.id, each.created) for each in added])

    async def enqueue_in_transaction(
        self, conn: Any, jobs: Sequence[NewJob[Any]], notify: bool = True
    ) -> list[JobHandle[Any]]:
        """Store jobs in the transaction of the caller's own connection. This opens no store."""
        with _trace_send(jobs) as traced:
            added = await self.transactional.add(conn, traced, notify=notify)
        return [JobHandle(self, each.id, each.created) for each in added]

    def enqueue_in_transaction_sync(
        self, conn: Any, jobs: Sequence[NewJob[Any]], notify: bool = True
    ) -> list[SyncJobHandle[Any]]:
        """As `enqueue_in_transaction`, on the calling thread, to which the connection may belong."""
        with _trace_send(jobs) as traced:
            added = self.transactional.add_sync(conn, traced, notify=notify)
        return [SyncJobHandle(JobHandle(self, each.id, each.created)) for each in added]

    @property
    def transactional(self) -> Transactional:
        settings = self.settings
        if self._transactional is None or self._transactional[0] is not settings:
            inside = transactional_for(settings.url, namespace=settings.namespace, clock=self.clock)
            self._transactional = settings, self.wrap_transactional(inside)
        return self._transactional[1]

    async def cancel_job(self, id: JobId) -> CancelAnswer:
        store = await self.store()
        (answer,) = await store.jobs.cancel([id])
        return answer

    async def cancel_keys(self, task: str, keys: Sequence[str]) -> Cancelled:
        """Cancel all live jobs of this task with one of these keys, MAX_KEYS_PER_BATCH keys in a transaction."""
        store = await self.store()
        counts: Counter[CancelAnswer] = Counter()
        for start in range(0, len(keys), MAX_KEYS_PER_BATCH):
            counts.update(await store.jobs.cancel_keys(task, keys[start : start + MAX_KEYS_PER_BATCH]))
        return Cancelled(counts[CancelAnswer.CANCELLED], counts[CancelAnswer.REQUESTED])

    async def send_signal(
        self,
        job: JobId | None,
        name: str,
        payload: Any,
        *,
        task: str | None,
        key: str | None,
        id: str | None,
        conn: Any,
    ) -> str:
        """Send a signal to a job, named by its id or by task and key; in the caller's own transaction with `conn`. Returns
        its id."""
        store = await self.store() if conn is None or job is None else None
        if job is None:
            assert store is not None and task is not None and key is not None
            job = await find_job_of_key(store, task, key)
        signal = build_signal(job, name, payload, id, self.codec)
        if conn is not None:
            check_sent(await self.transactional.send_signal(conn, signal), signal)
        else:
            assert store is not None
            await check_answer(await store.steps.send_signal(signal), signal, store)
        return signal.id

    async def find_job_of_key(self, task: str, key: str) -> JobId:
        return await find_job_of_key(await self.store(), task, key)

    def send_signal_in_transaction_sync(self, conn: Any, job: JobId, name: str, payload: Any, id: str | None) -> str:
        """On the calling thread, to which the connection may belong."""
        signal = build_signal(job, name, payload, id, self.codec)
        check_sent(self.transactional.send_signal_sync(conn, signal), signal)
        return signal.id

    async def broadcast(self, room: str, signature: str, args: str) -> int:
        return await (await self._room_sender(room, signature)).broadcast(args)

    async def fan_out(self, room: str, signature: str, encode_shares: Callable[[int], Sequence[str]]) -> int:
        return await (await self._room_sender(room, signature)).fan_out(encode_shares)

    async def _room_sender(self, room: str, signature: str) -> RoomSender:
        return RoomSender(await self.store(), self.clock, room, signature, heartbeat=self.settings.heartbeat)

    async def get_job(self, id: JobId) -> Job:
        store = await self.store()
        return await get_job(store, id)

    async def result(self, id: JobId, timeout: Duration | None) -> Any:
        limit = None if timeout is None else seconds(timeout, name="timeout", error=InvalidArguments)
        return self._to_result(await self.wait_for_end(id, limit))

    async def wait_for_end(self, id: JobId, limit: float | None) -> EndedJob:
        """Wait until the job has ended, at most `limit` seconds; 0 means to check just once."""
        if limit == 0:
            store = await self.store()
            (ended,) = await store.jobs.get_results([id])
            if ended is None:
                raise TimeoutError(f"job {id} has not ended")
            return ended
        try:
            async with asyncio.timeout(limit):
                poller = await self.loop_stores.current().poller()
                return await poller.wait(id)
        except TimeoutError as error:
            raise TimeoutError(f"job {id} had not ended after {limit:g} s") from error

    def _to_result(self, ended: EndedJob) -> Any:
        match ended.state:
            case JobState.SUCCEEDED:
                if ended.result_error is not None:
                    raise ResultNotKept(ended.id, ended.task, message=ended.result_error)
                return self._decode_result(ended)
            case JobState.DEAD | JobState.CANCELLED | JobState.EXPIRED:
                raise job_error(ended.id, ended.task, ended.state, ended.error)
            case JobState.PENDING | JobState.RUNNING:
                raise AssertionError(f"job {ended.id} has not ended: {ended.state}")
            case _:
                assert_never(ended.state)

    def _decode_result(self, ended: EndedJob) -> Any:
        if ended.result is None:
            return None
        task = self.registry.find(ended.task)
        try:
            return decode_result(ended.result, None if task is None else task.returns, self.codec)
        except Undecodable:
            # The function returned something else than its annotation says.
            return decode_result(ended.result)

    async def close(self) -> None:
        """Close the store of the running loop. The next call opens it again."""
        self._transactional = None
        await self.loop_stores.current().close()
