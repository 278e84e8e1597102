"""Celery on Redis: no bulk call, a pool of threads or processes, and jobs of the future kept in the worker's memory."""

import sys

from bench.contender import Producer, to_datetime
from bench.contenders.redis import FetchedContender, client
from bench.sync_producer import SyncProducer


class CeleryProducer(SyncProducer):
    def __init__(self) -> None:
        from bench.apps import celery_app

        self._app = celery_app
        self._redis = client()

    def add(self, task: str, number: int, *, due_ns: int | None = None) -> None:
        getattr(self._app, task).apply_async((number,), eta=due_ns and to_datetime(due_ns))

    def unfinished(self) -> int:
        return self._redis.llen("celery") + self._redis.llen("other") + self._redis.hlen("unacked")

    def close(self) -> None:
        self._app.app.close()
        self._redis.close()


class CeleryRedis(FetchedContender):
    name = "celery"
    distribution = "celery"
    release = "5.7.0"
    requirements = ("celery[redis]==5.7.0", "hiredis")
    tuning = (
        "`celery worker -P threads -c 10 --prefetch-multiplier 100` (solo, 1, 2 and 10 threads, 1 and 2 processes "
        "were tried once each, on a busy machine), task_acks_late, no results, no remote control, gossip, mingle or "
        "heartbeat; no bulk call; contention with a multiplier of 1; no backlog: a worker takes all jobs of the "
        "future out of the queue and holds them in its memory"
    )
    drain_jobs = 5_000
    fill_rate = 500
    contended_jobs = 4_000
    has_other_queue = True

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        # A worker that takes many in advance leaves none for the others.
        prefetch = "1" if concurrency else "100"
        pool = ["-P", "threads", "-c", str(concurrency or 10), "--prefetch-multiplier", prefetch]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
        queues = ["-Q", "celery,other" if other_queue else "celery"]
        return [sys.executable, "-m", "celery", "-A", "bench.apps.celery_app", "worker", *pool, *quiet, *queues]

    def open_producer(self) -> Producer:
        return CeleryProducer()
