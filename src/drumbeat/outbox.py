"""Transactional outbox: enqueue inside the caller's own SQL transaction while the jobs are in another store, such as Redis.

    your transaction:  INSERT INTO orders ...            \\  commit together
                       message: the job, as a job         /  in the store that `outbox` names, in your own database
                                  |
                relay (beside every worker): claims messages in batches, adds their jobs to the target store, completes them

The outbox is a complete store with one task: messages have claims, leases, wake-ups and rescue like any job, and every kind
of connection that `using(conn=...)` accepts works. A message has the id of its job, and a store accepts an id only once: a
relay that dies between the two steps repeats them without effect. This module depends on no engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from drumbeat.clock import Clock, jitter
from drumbeat.core.claim import CompletedJob
from drumbeat.core.job import AddResult, NewJob
from drumbeat.core.signals import NewSignal, SignalAnswer
from drumbeat.core.step import NewStep
from drumbeat.durations import to_us
from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.ids import InstanceId
from drumbeat.retry import Backoff, Snooze
from drumbeat.store.protocol import EngineTransaction, Store, Transactional
from drumbeat.tasks import BatchTask, Call

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat

log = logging.getLogger(__name__)

TASK_NAME = "drumbeat.relay"
QUEUE_NAME = "drumbeat.outbox"
BATCH_SIZE = 500
RETRY_DELAY = 1.0
RETRIES = 3
MESSAGE_RETENTION = "1h"
"""How long a delivered message stays in the user's database."""


class Outbox:
    """`app` is a second app, on the URL of the outbox."""

    def __init__(
        self, app: Drumbeat, open_target: Callable[[], Awaitable[Store]], transactional: Transactional, clock: Clock
    ) -> None:
        self._app = app
        self._open_target = open_target
        self._clock = clock
        self._task: BatchTask[NewJob, None] = app.task(
            batch=BATCH_SIZE, name=TASK_NAME, queue=QUEUE_NAME, retries=RETRIES, backoff=Backoff()
        )(self._relay_batch)
        self.transactional: Transactional = OutboxTransactional(self._task, app, transactional)

    @asynccontextmanager
    async def run_relay(self) -> AsyncIterator[None]:
        """Relay messages while the body runs. Started batches are finished; the rest waits for the next relay."""
        async with asyncio.TaskGroup() as group:
            relay = group.create_task(self._serve_forever(), name="outbox relay")
            try:
                yield
            finally:
                relay.cancel()

    async def _serve_forever(self) -> None:
        """Retry when the outbox cannot be opened: the jobs in the target store must run nevertheless."""
        while True:
            try:
                await self._app.serve()
            except* StoreUnavailable as errors:
                log.warning("outbox unavailable; messages wait", extra={"reason": str(errors.exceptions[0])})
            await self._clock.sleep(jitter(RETRY_DELAY))

    async def _relay_batch(self, calls: list[Call[NewJob]]) -> None:
        try:
            await self._deliver([self._shorten_delay(call) for call in calls])
        except StoreError as error:
            # The target is unavailable or full: messages wait as long as it takes, at no charge to their retries.
            raise Snooze(RETRY_DELAY) from error

    async def _deliver(self, jobs: list[NewJob]) -> None:
        store = await self._open_target()
        await store.jobs.add(jobs)

    def _shorten_delay(self, call: Call[NewJob]) -> NewJob:
        """A delay counts from when the message was written, not from its delivery."""
        job = call.value
        if job.run_at is not None or not job.delay:
            return job
        waited = self._clock.now_us() - to_us(call.scheduled_for)
        return msgspec.structs.replace(job, delay=min(job.delay, max(0, job.delay - waited)))


class OutboxTransactional:
    """Writes messages instead of jobs inside the caller's transaction. Everything else goes to the target store's own."""

    def __init__(self, task: BatchTask[NewJob, None], app: Drumbeat, transactional: Transactional) -> None:
        self._task = task
        self._app = app
        self._transactional = transactional

    def check_connection(self, conn: Any, *, sync: bool) -> None:
        self._transactional.check_connection(conn, sync=sync)

    async def add(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[AddResult]:
        return await self._app._internals.client.transactional.add(conn, self._to_messages(jobs), notify=notify)

    def add_sync(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[AddResult]:
        return self._app._internals.client.transactional.add_sync(conn, self._to_messages(jobs), notify=notify)

    def _to_messages(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        return [msgspec.structs.replace(self._task.bind(job), id=job.id) for job in jobs]

    async def complete(self, conn: Any, completed: CompletedJob) -> bool:
        return await self._transactional.complete(conn, completed)

    def complete_sync(self, conn: Any, completed: CompletedJob) -> bool:
        return self._transactional.complete_sync(conn, completed)

    async def record_step(self, conn: Any, instance: InstanceId, step: NewStep) -> None:
        await self._transactional.record_step(conn, instance, step)

    def record_step_sync(self, conn: Any, instance: InstanceId, step: NewStep) -> None:
        self._transactional.record_step_sync(conn, instance, step)

    async def send_signal(self, conn: Any, signal: NewSignal) -> SignalAnswer:
        return await self._transactional.send_signal(conn, signal)

    def send_signal_sync(self, conn: Any, signal: NewSignal) -> SignalAnswer:
        return self._transactional.send_signal_sync(conn, signal)

    def transaction(self) -> EngineTransaction:
        return self._transactional.transaction()
