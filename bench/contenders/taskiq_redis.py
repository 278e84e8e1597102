"""Taskiq on Redis, by its stream broker, the one that acknowledges. Jobs of the future need its scheduler process."""

import os
import sys

from bench.apps import URL_NAME
from bench.async_producer import AsyncProducer, SideBySide
from bench.contender import BACKLOG, Producer, to_datetime
from bench.contenders.redis import FetchedContender

PROGRAM = "bench.apps.taskiq_app"
MANY = ["--max-async-tasks", "100", "--max-prefetch", "1000"]


class TaskiqProducer(SideBySide, AsyncProducer):
    async def open(self) -> None:
        from redis.asyncio import Redis

        from bench.apps import taskiq_app

        self._app = taskiq_app
        self._redis = Redis.from_url(os.environ[URL_NAME])
        await taskiq_app.broker.startup()
        await taskiq_app.schedules.startup()

    async def shut(self) -> None:
        await self._app.schedules.shutdown()
        await self._app.broker.shutdown()
        await self._redis.aclose()

    async def add(self, task: str, number: int, *, due_ns: int | None = None) -> None:
        called = getattr(self._app, task)
        if due_ns is None:
            await called.kiq(number)
        else:
            await called.schedule_by_time(self._app.schedules, to_datetime(due_ns), number)

    async def count_unfinished(self) -> int:
        groups = await self._redis.xinfo_groups(self._app.broker.queue_name)
        return sum(group["pending"] + group["lag"] for group in groups)


class TaskiqRedis(FetchedContender):
    name = "taskiq"
    distribution = "taskiq"
    release = "0.13.0"
    requirements = ("taskiq==0.13.0", "taskiq-redis==1.2.4", "hiredis")
    tuning = (
        "RedisStreamBroker, `taskiq worker --workers 1 --max-async-tasks 100 --max-prefetch 1000 --no-parse` (10, "
        "100 and 1,000 tasks were tried once each, on a busy machine), uvloop, no results; no bulk call; jobs of "
        "the future in a ListRedisScheduleSource with `taskiq scheduler --update-interval 1 --loop-interval 1`, "
        "whole seconds, beside the worker; contention with 10 tasks and no prefetch"
    )
    drain_jobs = 10_000
    fill_rate = 1_000
    contended_jobs = 8_000
    backlog_jobs = 20_000
    measures = FetchedContender.measures | {BACKLOG}

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        # A worker that takes many in advance leaves none for the others.
        size = ["--max-async-tasks", str(concurrency)] if concurrency else MANY
        options = ["--workers", "1", "--no-parse", "--log-level", "ERROR", *size]
        return [sys.executable, "-m", "taskiq", "worker", f"{PROGRAM}:broker", *options]

    def scheduler_command(self) -> list[str]:
        options = ["--update-interval", "1", "--loop-interval", "1", "--log-level", "ERROR"]
        return [sys.executable, "-m", "taskiq", "scheduler", f"{PROGRAM}:scheduler", *options]

    def open_producer(self) -> Producer:
        return TaskiqProducer()
