"""Enqueue inside the caller's own SQL transaction when the jobs themselves are in another store, Redis for instance.

    your transaction:  INSERT INTO orders ...        \\  commit together
                       letter: the job, as a job      /  of the store that `outbox` names, in your own database
                                  |
                relay (beside every worker): claims letters in batches, adds the jobs to the real store, finishes the letters

The outbox is a whole store of its own, with one task: so letters have claims, leases, wake-ups and rescue like any job, and
every kind of connection that `using(conn=...)` knows can be used. A letter has the id of its job, and a store takes an id only
once: a relay that dies between the two steps costs a repetition that changes nothing. This module knows no engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from drumbeat.clock import Clock, jitter
from drumbeat.core.claim import ClaimRef
from drumbeat.core.job import AddResult, NewJob
from drumbeat.durations import to_us
from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.ids import InstanceId
from drumbeat.retry import Snooze
from drumbeat.store.protocol import EngineTransaction, Store, Transactional
from drumbeat.tasks import BatchTask, Call

if TYPE_CHECKING:
    from drumbeat.tasks import BatchDecorator

log = logging.getLogger(__name__)

TASK_NAME = "drumbeat.relay"
QUEUE_NAME = "drumbeat.outbox"
BATCH_SIZE = 500
RETRY_DELAY = 1.0
MESSAGE_RETENTION = "1h"
"""How long the letter's own record stays in the user's database."""


class OutboxApp(Protocol):
    """As much of a Drumbeat app as the outbox needs: one of its own, on the URL of the outbox."""

    def task(self, *, batch: int, name: str, queue: str) -> BatchDecorator: ...

    async def serve(self) -> None: ...

    @property
    def transactional(self) -> Transactional: ...


class Outbox:
    def __init__(
        self, app: OutboxApp, open_target: Callable[[], Awaitable[Store]], transactional: Transactional, clock: Clock
    ) -> None:
        self._app = app
        self._open_target = open_target
        self._clock = clock
        self._task: BatchTask[NewJob, None] = app.task(batch=BATCH_SIZE, name=TASK_NAME, queue=QUEUE_NAME)(
            self._relay_batch
        )
        self.transactional: Transactional = OutboxTransactional(self._task, app, transactional)

    @asynccontextmanager
    async def run_relay(self) -> AsyncIterator[None]:
        """Carry letters over while the body runs. What has begun is finished; the rest is there for the next relay."""
        async with asyncio.TaskGroup() as group:
            relay = group.create_task(self._serve_forever(), name="outbox relay")
            try:
                yield
            finally:
                relay.cancel()

    async def _serve_forever(self) -> None:
        """An outbox that cannot be opened is tried again: it must not keep the jobs that are there from running."""
        while True:
            try:
                await self._app.serve()
            except* StoreUnavailable as away:
                reason = str(away.exceptions[0])
                log.warning("the outbox is away: letters wait in it", extra={"reason": reason})
            await self._clock.sleep(jitter(RETRY_DELAY))

    async def _relay_batch(self, calls: list[Call[NewJob]]) -> None:
        try:
            await self._deliver([self._shorten_delay(call) for call in calls])
        except StoreError as error:
            # Away or full: letters wait here as long as it takes, and nobody is charged for it.
            raise Snooze(RETRY_DELAY) from error

    async def _deliver(self, jobs: list[NewJob]) -> None:
        store = await self._open_target()
        await store.jobs.add(jobs)

    def _shorten_delay(self, call: Call[NewJob]) -> NewJob:
        """A delay counts from the letter, not from its arrival."""
        job = call.value
        if job.run_at is not None or not job.delay:
            return job
        waited = self._clock.now_us() - to_us(call.scheduled_for)
        return msgspec.structs.replace(job, delay=min(job.delay, max(0, job.delay - waited)))


class OutboxTransactional:
    """What a program does inside its own transaction: letters are written; nothing can be completed there."""

    def __init__(self, task: BatchTask[NewJob, None], app: OutboxApp, transactional: Transactional) -> None:
        self._task = task
        self._app = app
        self._transactional = transactional

    async def add(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[AddResult]:
        return await self._app.transactional.add(conn, self._to_messages(jobs), notify=notify)

    def add_sync(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[AddResult]:
        return self._app.transactional.add_sync(conn, self._to_messages(jobs), notify=notify)

    def _to_messages(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        return [msgspec.structs.replace(self._task.bind(job), id=job.id) for job in jobs]

    async def complete(
        self,
        conn: Any,
        instance: InstanceId,
        hold: ClaimRef,
        *,
        started_at: int,
        result: str | None,
        result_error: str | None,
    ) -> None:
        await self._transactional.complete(
            conn, instance, hold, started_at=started_at, result=result, result_error=result_error
        )

    def complete_sync(
        self,
        conn: Any,
        instance: InstanceId,
        hold: ClaimRef,
        *,
        started_at: int,
        result: str | None,
        result_error: str | None,
    ) -> None:
        self._transactional.complete_sync(
            conn, instance, hold, started_at=started_at, result=result, result_error=result_error
        )

    def transaction(self) -> EngineTransaction:
        return self._transactional.transaction()
