"""Drumbeat on PostgreSQL, and the floor under it."""

import os
import sys

from bench.apps import URL_NAME
from bench.contender import BACKLOG, DRAIN, FLOOR, KEYS, SNAPSHOT, Producer
from bench.contenders.drumbeat import DrumbeatProducer
from bench.contenders.postgres import LOAD_MEASURES, PostgresContender

TWO_QUEUES = "bench.apps.two_queues"


class DrumbeatPostgres(PostgresContender):
    name = "drumbeat"
    distribution = "drumbeat"
    tuning = (
        "`drumbeat run --concurrency 100`, `async def` handlers, history on, uvloop where installed; bulk in calls of "
        "5,000; keys are unique ones; in the burst a second queue; contention with `--concurrency 10`"
    )
    drain_jobs = 100_000
    fill_rate = 20_000
    measures = LOAD_MEASURES | {BACKLOG, KEYS}
    url_names = ("DRUMBEAT_URL",)
    has_other_queue = True
    module = "bench.apps.noop"
    client_module = TWO_QUEUES
    """A client pays nothing for a queue that it does not use."""
    concurrency = 100

    def load(self) -> None:
        import asyncpg  # noqa: F401

        from drumbeat import Drumbeat  # noqa: F401

    def preparations(self) -> list[list[str]]:
        return [[sys.executable, "-m", "drumbeat", "migrate"]]

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        module = TWO_QUEUES if other_queue else self.module
        options = ["--concurrency", str(concurrency or self.concurrency)]
        return [sys.executable, "-m", "drumbeat", "run", f"{module}:app", *options]

    def open_producer(self) -> Producer:
        return DrumbeatProducer(self.client_module)


class DrumbeatThreads(DrumbeatPostgres):
    name = "drumbeat-def"
    tuning = "`drumbeat run --concurrency 10` (the default), `def` handlers in threads; the drain alone"
    drain_jobs = 30_000
    measures = frozenset({DRAIN})
    module = client_module = "bench.apps.noop_def"
    concurrency = 10


class FloorProducer(DrumbeatProducer):
    def floor(self, count: int, *, snapshot: bool) -> tuple[float, float]:
        from bench.floor_postgres import run

        rates = run(os.environ[URL_NAME], count, snapshot=snapshot)
        return rates["added_per_s"], rates["drained_per_s"]


class DrumbeatFloor(DrumbeatPostgres):
    """No library at all: see bench/floor_postgres.py."""

    name = "floor"
    tuning = (
        "the PostgreSQL engine's own statements in a bare loop: no handler, no decoding; two connections, batches of 500, "
        "history on"
    )
    measures = frozenset({FLOOR, SNAPSHOT})

    def open_producer(self) -> Producer:
        return FloorProducer(self.module)
