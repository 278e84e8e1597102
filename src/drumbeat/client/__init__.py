"""A program's side of the store: enqueue, cancel, and wait for results, on whatever loop it is asked.

It is what tasks (`tasks.Home`) and handles (`handle.Client`) stand on. It runs no jobs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, assert_never

from drumbeat import tracing
from drumbeat.clock import SYSTEM, Clock
from drumbeat.codec import Undecodable, decode_result
from drumbeat.durations import Duration, seconds
from drumbeat.errors import InvalidArguments, ResultNotKept
from drumbeat.handle import JobHandle, SyncJobHandle, job_error
from drumbeat.ids import JobId
from drumbeat.model.job import CancelAnswer, Cancelled, Ended, Job, JobState, NewJob
from drumbeat.settings import Settings
from drumbeat.store.protocol import Inside, Store
from drumbeat.store.urls import inside_of, open_store
from drumbeat.sync import THREAD
from drumbeat.tasks import Registry, Task

from .connections import Connections
from .rooms import RoomSender

__all__ = ["Client"]

T = TypeVar("T")

MAX_KEYS_IN_A_STEP = 500
"""So many keys are cancelled in one transaction: beside it others have their turn."""


def _sent(jobs: Sequence[NewJob]) -> AbstractContextManager[Sequence[NewJob]]:
    """Around what stores these jobs: the same, in a span and with its context where the program traces."""
    spans = tracing.spans() if jobs else None
    return nullcontext(jobs) if spans is None else spans.sending(jobs)


class Client:
    """One for each app. It does nothing before the first call."""

    def __init__(self, settings: Callable[[], Settings], registry: Registry, clock: Clock = SYSTEM) -> None:
        self._settings = settings
        self._clock = clock
        self.registry = registry
        self.connections = Connections(self._open)
        self.opened_with: Settings | None = None
        """What the first store was opened with; None: none was."""
        self._inside: tuple[Settings, Inside] | None = None
        self.wrap_inside: Callable[[Inside], Inside] = lambda inside: inside
        """The app's way to put an outbox before it."""

    @property
    def settings(self) -> Settings:
        return self._settings()

    def register(self, task: Task[..., Any]) -> None:
        self.registry.add(task)

    def declared_queues(self) -> frozenset[str]:
        """Every queue that some worker of this program may take."""
        return self.registry.queues() | self.settings.declared_queues

    async def store(self) -> Store:
        """The store of the running loop, opened if need be."""
        return await self.connections.here().store()

    async def _open(self) -> Store:
        settings = self.settings
        store = await open_store(
            settings.url, coordination=settings.coordination, namespace=settings.namespace, clock=self._clock
        )
        self.opened_with = self.opened_with or settings
        return store

    async def enqueue(self, job: NewJob) -> JobHandle[Any]:
        with _sent([job]) as traced:
            store = await self.store()
            (added,) = await store.jobs.add(traced)
        return JobHandle(self, added.id, added.created)

    def enqueue_sync(self, called: str, job: NewJob) -> SyncJobHandle[Any]:
        return SyncJobHandle(self, self.call_sync(called, self.enqueue(job)))

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> list[JobHandle[Any]]:
        with _sent(jobs) as traced:
            store = await self.store()
            return [JobHandle(self, added.id, added.created) for added in await store.jobs.add(traced)]

    async def enqueue_inside(self, conn: Any, jobs: Sequence[NewJob], notify: bool = True) -> list[JobHandle[Any]]:
        """Store jobs in the transaction of the caller's own connection. No store is opened for it."""
        with _sent(jobs) as traced:
            added = await self.inside.add(conn, traced, notify=notify)
        return [JobHandle(self, each.id, each.created) for each in added]

    def enqueue_inside_sync(self, conn: Any, jobs: Sequence[NewJob], notify: bool = True) -> list[SyncJobHandle[Any]]:
        """The same on the calling thread, to which the connection may belong."""
        with _sent(jobs) as traced:
            added = self.inside.add_sync(conn, traced, notify=notify)
        return [SyncJobHandle(self, JobHandle(self, each.id, each.created)) for each in added]

    @property
    def inside(self) -> Inside:
        settings = self.settings
        if self._inside is None or self._inside[0] is not settings:
            inside = inside_of(settings.url, namespace=settings.namespace, clock=self._clock)
            self._inside = settings, self.wrap_inside(inside)
        return self._inside[1]

    async def cancel_job(self, id: JobId) -> CancelAnswer:
        store = await self.store()
        (answer,) = await store.jobs.cancel([id])
        return answer

    async def cancel_keys(self, task: str, keys: Sequence[str]) -> Cancelled:
        """Cancel all live jobs of this task with one of these keys, a few hundred keys in one step."""
        store = await self.store()
        counts: Counter[CancelAnswer] = Counter()
        for start in range(0, len(keys), MAX_KEYS_IN_A_STEP):
            counts.update(await store.jobs.cancel_keys(task, keys[start : start + MAX_KEYS_IN_A_STEP]))
        return Cancelled(counts[CancelAnswer.CANCELLED], counts[CancelAnswer.REQUESTED])

    async def broadcast(self, room: str, signature: str, args: str) -> int:
        return await (await self._sender(room, signature)).broadcast(args)

    async def share(self, room: str, signature: str, write: Callable[[int], Sequence[str]]) -> int:
        return await (await self._sender(room, signature)).share(write)

    async def _sender(self, room: str, signature: str) -> RoomSender:
        return RoomSender(await self.store(), self._clock, room, signature, heartbeat=self.settings.heartbeat)

    async def show_job(self, id: JobId) -> Job:
        store = await self.store()
        return await store.inspect.job(id)

    async def result(self, id: JobId, timeout: Duration | None) -> Any:
        limit = None if timeout is None else seconds(timeout, name="timeout", error=InvalidArguments)
        return self._read(await self.wait(id, limit))

    async def wait(self, id: JobId, limit: float | None) -> Ended:
        """How the job ended, as soon as it has; `limit` is in seconds, and 0 means to look just once."""
        if limit == 0:
            store = await self.store()
            (ended,) = await store.jobs.ended([id])
            if ended is None:
                raise TimeoutError(f"job {id} has not ended")
            return ended
        try:
            async with asyncio.timeout(limit):
                poller = await self.connections.here().poller()
                return await poller.wait(id)
        except TimeoutError as error:
            raise TimeoutError(f"job {id} had not ended after {limit:g} s") from error

    def _read(self, ended: Ended) -> Any:
        match ended.state:
            case JobState.SUCCEEDED:
                if ended.result_error is not None:
                    raise ResultNotKept(ended.id, ended.task, message=ended.result_error)
                return self._decoded(ended)
            case JobState.DEAD | JobState.CANCELLED:
                raise job_error(ended.id, ended.task, ended.state, ended.error)
            case JobState.PENDING | JobState.RUNNING:
                raise AssertionError(f"job {ended.id} has not ended: {ended.state}")
            case _:
                assert_never(ended.state)

    def _decoded(self, ended: Ended) -> Any:
        if ended.result is None:
            return None
        task = self.registry.find(ended.task)
        try:
            return decode_result(ended.result, None if task is None else task.returns)
        except Undecodable:
            # The function returned something else than its annotation says: that is what it returned, then.
            return decode_result(ended.result)

    def call_sync(self, called: str, work: Coroutine[Any, Any, T]) -> T:
        return THREAD.call(called, work)

    async def close(self) -> None:
        """Close the store of the running loop. The next call opens it again."""
        self._inside = None
        await self.connections.here().close()
