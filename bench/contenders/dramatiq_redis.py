"""Dramatiq on Redis: threads, a script call for each command, and a worker that polls with a back-off."""

import sys
import time
from pathlib import Path

from bench.contender import BACKLOG, Producer
from bench.contenders.redis import FetchedContender, client
from bench.sync_producer import SyncProducer


class DramatiqProducer(SyncProducer):
    def __init__(self) -> None:
        from bench.apps import dramatiq_app

        self._app = dramatiq_app
        self._redis = client()

    def add(self, task: str, number: int, *, due_ns: int | None = None) -> None:
        # Whole milliseconds from now; up, because down would be early.
        delay = due_ns and -((time.time_ns() - due_ns) // 1_000_000)
        getattr(self._app, task).send_with_options(args=(number,), delay=delay)

    def unfinished(self) -> int:
        # A message stays here until it is acknowledged; those of the future are in a queue of their own.
        return self._redis.hlen("dramatiq:default.msgs") + self._redis.hlen("dramatiq:other.msgs")

    def close(self) -> None:
        self._app.broker.close()
        self._redis.close()


class DramatiqRedis(FetchedContender):
    name = "dramatiq"
    distribution = "dramatiq"
    release = "2.2.1"
    requirements = ("dramatiq[redis]==2.2.1", "hiredis")
    tuning = (
        "`dramatiq --processes 1 --threads 16`, dramatiq_queue_prefetch=1000 (1, 2, 8 and 16 threads, each with "
        "that and with the default, were tried once, on a busy machine), Retries as the only middleware; no bulk "
        "call; its worker polls with a back-off of up to dramatiq_worker_timeout, 100 ms here (its default is 1 s); "
        "contention with 10 threads and the default prefetch"
    )
    drain_jobs = 8_000
    fill_rate = 1_500
    contended_jobs = 6_000
    backlog_jobs = 50_000
    measures = FetchedContender.measures | {BACKLOG}
    has_other_queue = True

    def environment(self, folder: Path) -> dict[str, str]:
        return super().environment(folder) | {"dramatiq_worker_timeout": "100"}

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        # A worker that takes many in advance leaves none for the others.
        prefetch = [] if concurrency else ["env", "dramatiq_queue_prefetch=1000"]
        size = ["--processes", "1", "--threads", str(concurrency or 16)]
        queues = ["--queues", "default", *(["other"] if other_queue else [])]
        command = [sys.executable, "-m", "dramatiq", "bench.apps.dramatiq_app", *size, "--skip-logging", *queues]
        return [*prefetch, *command]

    def open_producer(self) -> Producer:
        return DramatiqProducer()
