"""RQ on Redis: one job at a time in each worker process."""

import sys

from bench.contender import BACKLOG, CONTENTION, OTHER, Producer, to_datetime
from bench.contenders.redis import FetchedContender, client
from bench.sync_producer import SyncProducer

KEPT = {"result_ttl": 0}
"""A no-op gives nothing to keep, and keeping it would cost RQ a stream for each job."""


class RqProducer(SyncProducer):
    bulk_chunk = 5_000

    def __init__(self) -> None:
        from rq import Queue
        from rq.registry import StartedJobRegistry

        self._redis = client()
        self._queue, self._other = (Queue(name, connection=self._redis) for name in ("default", "other"))
        self._started = [StartedJobRegistry(queue=queue) for queue in (self._queue, self._other)]

    def add(self, task: str, number: int, *, due_ns: int | None = None) -> None:
        if due_ns is not None:
            self._queue.enqueue_at(to_datetime(due_ns), path(task), number, **KEPT)
        else:
            (self._other if task == OTHER else self._queue).enqueue(path(task), number, **KEPT)

    def add_many(self, task: str, numbers: range, *, due_ns: int | None = None, keyed: bool = False) -> None:
        assert not keyed, "it has no unique keys"
        if due_ns is not None:
            super().add_many(task, numbers, due_ns=due_ns)
        else:
            self._queue.enqueue_many([self._queue.prepare_data(path(task), (number,), **KEPT) for number in numbers])

    def unfinished(self) -> int:
        return len(self._queue) + len(self._other) + sum(map(len, self._started))

    def close(self) -> None:
        self._redis.close()


def path(task: str) -> str:
    return f"bench.apps.rq_app.{task}"


class RqRedis(FetchedContender):
    name = "rq"
    distribution = "rq"
    release = "2.12.0"
    requirements = ("rq==2.12.0", "hiredis")
    tuning = (
        "`rq worker --with-scheduler` with SimpleWorker, which does not fork for each job; result_ttl=0; bulk is "
        "enqueue_many in calls of 5,000; its scheduler looks once a second and truncates due times to whole seconds, "
        "so a job may start early; no contention: a worker does one job at a time"
    )
    drain_jobs = 2_000
    fill_rate = 500
    backlog_jobs = 20_000
    measures = (FetchedContender.measures | {BACKLOG}) - {CONTENTION}
    url_names = ("RQ_REDIS_URL",)
    has_other_queue = True

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        assert concurrency is None, "a worker does one job at a time"
        options = [
            "--worker-class",
            "rq.worker.SimpleWorker",
            "--with-scheduler",
            "--quiet",
            "--disable-job-desc-logging",
        ]
        queues = ["default", *(["other"] if other_queue else [])]
        return [sys.executable, "-m", "rq.cli", "worker", *options, *queues]

    def open_producer(self) -> Producer:
        return RqProducer()
