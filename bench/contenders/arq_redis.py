"""arq on Redis: one sorted set that is polled, and some round trips for each job."""

import os
import sys
import time

from bench.apps import URL_NAME
from bench.async_producer import AsyncProducer, SideBySide
from bench.contender import BACKLOG, Producer, to_datetime
from bench.contenders.redis import FetchedContender

QUEUE = "arq:queue"


class ArqProducer(SideBySide, AsyncProducer):
    async def open(self) -> None:
        from arq import create_pool
        from arq.connections import RedisSettings

        self._pool = await create_pool(RedisSettings.from_dsn(os.environ[URL_NAME]))

    async def shut(self) -> None:
        await self._pool.aclose()

    async def add(self, task: str, number: int, *, due_ns: int | None = None) -> None:
        await self._pool.enqueue_job(task, number, _defer_until=due_ns and to_datetime(due_ns))

    async def count_unfinished(self) -> int:
        return await self._pool.zcount(QUEUE, "-inf", time.time() * 1_000)


class ArqRedis(FetchedContender):
    name = "arq"
    distribution = "arq"
    release = "0.28.0"
    requirements = ("arq==0.28.0",)
    tuning = (
        "max_jobs=300 (10, 50, 100 and 300 were tried once each, on a busy machine), poll_delay=0.01, because all "
        "jobs are found by polling (its default is 0.5 s), keep_result=0, no line for each job; no bulk call; "
        "contention with max_jobs=10"
    )
    drain_jobs = 5_000
    fill_rate = 1_500
    contended_jobs = 6_000
    backlog_jobs = 50_000
    measures = FetchedContender.measures | {BACKLOG}

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        settings = f"bench.apps.arq_app.{'Few' if concurrency else 'Many'}"
        return [sys.executable, "-m", "arq", settings, "--custom-log-dict", "bench.apps.arq_app.quiet"]

    def open_producer(self) -> Producer:
        return ArqProducer()
