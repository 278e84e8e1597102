"""The tasks of a shop, jobs of it that have ended as a test wants them, and a worker on the loop of the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from drumbeat import Backoff, Drumbeat, current_job
from drumbeat.core.job import Failure, OutcomeKind
from tests.contract import making

MAIL = "mail"
BOUNCED = Failure("Bounced", "550 mailbox full", "Traceback (most recent call last): Bounced: 550 mailbox full")


class Unavailable(Exception):
    """Somebody else's server."""


def declare(app: Drumbeat) -> None:
    """The tasks."""

    @app.task(queue=MAIL, name="send_mail", retries=0)
    async def send_mail(to: str, token: str = "t0p-secret") -> str:
        if "bounce" in to:
            raise Unavailable(f"550 {to}: mailbox full")
        return to

    @app.task(name="sync_stock", retries=3, backoff=Backoff(base=0.01, cap=0.02))
    async def sync_stock(warehouse: str) -> int:
        """Succeeds at its third attempt."""
        if current_job().attempt < 3:
            raise Unavailable(f"{warehouse} answered 503, attempt {current_job().attempt}")
        return 9_007_199_254_740_993


@asynccontextmanager
async def working(app: Drumbeat) -> AsyncIterator[None]:
    """A worker of this app, until the end of the block; then what it counted is in the store."""
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(app.serve(), name="worker")
        try:
            yield
        finally:
            worker.cancel()


async def enqueue(
    app: Drumbeat, count: int, task: str = "send_mail", *, to: str = "ada@example.org", queue: str = MAIL
) -> list[str]:
    bound = [app._internals.registry[task].using(queue=queue).bind(to) for _ in range(count)]
    return [handle.id for handle in await app.enqueue_many(bound)]


async def dead_letters(app: Drumbeat, count: int, *, queue: str = MAIL, error: Failure = BOUNCED) -> list[str]:
    """So many jobs that ran once and died, by the hand of an instance that then leaves. Nothing else may be ready there."""
    store = await app._internals.store()
    hand = await making.worker(store, queues=(queue,), tasks=app._internals.registry.signatures(), concurrency=count)
    ids = await enqueue(app, count, queue=queue)
    jobs = await making.claim(store, hand, queue, limit=count)
    await making.report(store, hand, *[making.outcome(job, OutcomeKind.DEAD, error=error) for job in jobs])
    await store.instances.deregister(hand, "left")
    assert {job.id for job in jobs} == set(ids)
    return ids
