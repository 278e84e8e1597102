"""SAQ on Redis: no bulk call, and some round trips for each job."""

import sys

from bench.async_producer import AsyncProducer, SideBySide
from bench.contender import BACKLOG, Producer
from bench.contenders.redis import FetchedContender


class SaqProducer(SideBySide, AsyncProducer):
    async def open(self) -> None:
        from bench.apps import saq_app

        self._queue = saq_app.queue
        await self._queue.connect()

    async def shut(self) -> None:
        await self._queue.disconnect()

    async def add(self, task: str, number: int, *, due_ns: int | None = None) -> None:
        # Whole seconds are all it has; up, because down would be early.
        await self._queue.enqueue(task, number=number, ttl=-1, scheduled=-(-due_ns // 10**9) if due_ns else 0)

    async def count_unfinished(self) -> int:
        return await self._queue.count("queued") + await self._queue.count("active")


class SaqRedis(FetchedContender):
    name = "saq"
    distribution = "saq"
    release = "0.26.4"
    requirements = ("saq[redis,hiredis]==0.26.4",)
    tuning = (
        "`saq` with concurrency 50 (10, 20, 50 and 100 were tried once each, on a busy machine), async functions, "
        "ttl=-1, so that nothing is kept of a finished job; no bulk call; a worker serves one queue; its scheduler "
        "looks once a second, and times are whole seconds; contention with concurrency 10"
    )
    drain_jobs = 6_000
    fill_rate = 1_500
    contended_jobs = 6_000
    backlog_jobs = 50_000
    measures = FetchedContender.measures | {BACKLOG}

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        return [sys.executable, "-m", "saq", f"bench.apps.saq_app.{'few' if concurrency else 'many'}_on_redis"]

    def open_producer(self) -> Producer:
        return SaqProducer()
