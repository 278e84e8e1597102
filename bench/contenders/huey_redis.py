"""Huey on Redis: a blocking pop for each job, and nothing that remembers a job which is being done."""

import sys
import time

from bench.contender import BACKLOG, Producer, to_datetime
from bench.contenders.redis import BEFORE, FetchedContender
from bench.sync_producer import SyncProducer


class HueyProducer(SyncProducer):
    def __init__(self) -> None:
        from bench.apps import huey_redis_app

        self._app = huey_redis_app
        self._storage = huey_redis_app.huey.storage

    def add(self, task: str, number: int, *, due_ns: int | None = None) -> None:
        called = getattr(self._app, task)
        if due_ns is None:
            called(number)
        else:
            # An aware datetime: Huey cuts a naive one to whole seconds, and would then seem to start jobs early.
            called.schedule(args=(number,), eta=to_datetime(due_ns))

    def unfinished(self) -> int:
        # Huey takes a job out before it runs: for it, the handlers' stamps are what tells the end.
        due = self._storage.conn.zcount(self._storage.schedule_key, "-inf", time.time())
        return self._app.huey.pending_count() + due

    def close(self) -> None:
        self._storage.conn.close()


class HueyRedis(FetchedContender):
    name = "huey"
    distribution = "huey"
    release = "3.5.4"
    requirements = ("huey==3.5.4", "redis", "hiredis")
    durability = BEFORE
    tuning = (
        "`huey_consumer -w 8` (1, 2 and 8 threads were tried once each, on a busy machine), results=False, blocking "
        "pops; no bulk call; its scheduler looks once a second at best; contention with 10 threads"
    )
    drain_jobs = 15_000
    fill_rate = 2_000
    contended_jobs = 8_000
    backlog_jobs = 100_000
    measures = FetchedContender.measures | {BACKLOG}

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        options = ["-q", "--no-periodic", "-w", str(concurrency or 8)]
        return [sys.executable, "-m", "huey.bin.huey_consumer", "bench.apps.huey_redis_app.huey", *options]

    def open_producer(self) -> Producer:
        return HueyProducer()
