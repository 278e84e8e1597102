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

from drumbeat.clock import Clock, jittered
from drumbeat.durations import to_us
from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.ids import InstanceId
from drumbeat.model.job import Added, Hold, NewJob
from drumbeat.retry import Snooze
from drumbeat.store.protocol import Inside, OwnTransaction, Store
from drumbeat.tasks import BatchTask, Call

if TYPE_CHECKING:
    from drumbeat.tasks import BatchDecorator

log = logging.getLogger(__name__)

TASK = "drumbeat.relay"
QUEUE = "drumbeat.outbox"
BATCH = 500
AGAIN_S = 1.0
KEPT = "1h"
"""How long the letter's own record stays in the user's database."""


class App(Protocol):
    """As much of a Drumbeat app as the outbox needs: one of its own, on the URL of the outbox."""

    def task(self, *, batch: int, name: str, queue: str) -> BatchDecorator: ...

    async def serve(self) -> None: ...

    @property
    def inside(self) -> Inside: ...


class Outbox:
    def __init__(self, app: App, target: Callable[[], Awaitable[Store]], inside: Inside, clock: Clock) -> None:
        self._app = app
        self._target = target
        self._clock = clock
        self._task: BatchTask[NewJob, None] = app.task(batch=BATCH, name=TASK, queue=QUEUE)(self._relay)
        self.inside: Inside = OutboxInside(self._task, app, inside)

    @asynccontextmanager
    async def relaying(self) -> AsyncIterator[None]:
        """Carry letters over while the body runs. What has begun is finished; the rest is there for the next relay."""
        async with asyncio.TaskGroup() as group:
            relay = group.create_task(self._carry(), name="outbox relay")
            try:
                yield
            finally:
                relay.cancel()

    async def _carry(self) -> None:
        """An outbox that cannot be opened is tried again: it must not keep the jobs that are there from running."""
        while True:
            try:
                await self._app.serve()
            except* StoreUnavailable as away:
                reason = str(away.exceptions[0])
                log.warning("the outbox is away: letters wait in it", extra={"reason": reason})
            await self._clock.sleep(jittered(AGAIN_S))

    async def _relay(self, calls: list[Call[NewJob]]) -> None:
        try:
            await self._deliver([self._since(call) for call in calls])
        except StoreError as error:
            # Away or full: letters wait here as long as it takes, and nobody is charged for it.
            raise Snooze(AGAIN_S) from error

    async def _deliver(self, jobs: list[NewJob]) -> None:
        store = await self._target()
        await store.jobs.add(jobs)

    def _since(self, call: Call[NewJob]) -> NewJob:
        """A delay counts from the letter, not from its arrival."""
        job = call.value
        if job.run_at is not None or not job.delay:
            return job
        waited = self._clock.now_us() - to_us(call.scheduled_for)
        return msgspec.structs.replace(job, delay=min(job.delay, max(0, job.delay - waited)))


class OutboxInside:
    """What a program does inside its own transaction: letters are written; nothing can be completed there."""

    def __init__(self, task: BatchTask[NewJob, None], app: App, inside: Inside) -> None:
        self._task = task
        self._app = app
        self._inside = inside

    def check(self) -> None:
        self._inside.check()

    async def add(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[Added]:
        return await self._app.inside.add(conn, self._letters(jobs), notify=notify)

    def add_sync(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[Added]:
        return self._app.inside.add_sync(conn, self._letters(jobs), notify=notify)

    def _letters(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        return [msgspec.structs.replace(self._task.bind(job), id=job.id) for job in jobs]

    async def complete(
        self,
        conn: Any,
        instance: InstanceId,
        hold: Hold,
        *,
        started_at: int,
        result: str | None,
        result_error: str | None,
    ) -> None:
        await self._inside.complete(
            conn, instance, hold, started_at=started_at, result=result, result_error=result_error
        )

    def complete_sync(
        self,
        conn: Any,
        instance: InstanceId,
        hold: Hold,
        *,
        started_at: int,
        result: str | None,
        result_error: str | None,
    ) -> None:
        self._inside.complete_sync(
            conn, instance, hold, started_at=started_at, result=result, result_error=result_error
        )

    def transaction(self) -> OwnTransaction:
        return self._inside.transaction()
