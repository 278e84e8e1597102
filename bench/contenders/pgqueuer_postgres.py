"""PgQueuer on PostgreSQL: claims and finishes in batches, a task for each job."""

import sys
import time
from datetime import timedelta

from bench.contender import BACKLOG, DRAIN, KEYS, Producer
from bench.contenders.postgres import LOAD_MEASURES, PostgresContender, SqlProducer


class PgQueuerProducer(SqlProducer):
    bulk_chunk = 5_000
    unfinished_sql = "SELECT count(*) FROM (SELECT FROM pgqueuer WHERE execute_after <= now() LIMIT 1) due"

    async def open(self) -> None:
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        await super().open()
        self._queries = Queries(AsyncpgDriver(self.sql))

    async def add(self, task: str, number: int, *, due_ns: int | None = None) -> None:
        await self._queries.enqueue(task, str(number).encode(), execute_after=delay(due_ns))

    async def add_many(self, task: str, numbers: range, *, due_ns: int | None = None, keyed: bool = False) -> None:
        count = len(numbers)
        await self._queries.enqueue(
            [task] * count,
            [str(number).encode() for number in numbers],
            [0] * count,
            [delay(due_ns)] * count,
            dedupe_key=[f"key-{number}" for number in numbers] if keyed else None,
        )


def delay(due_ns: int | None) -> timedelta | None:
    """PgQueuer counts from the server's now; rounded up, so that it is never before the due time."""
    return None if due_ns is None else timedelta(microseconds=-((time.time_ns() - due_ns) // 1_000))


class PgQueuerPostgres(PostgresContender):
    name = "pgqueuer"
    distribution = "pgqueuer"
    tuning = (
        "`pgqueuer.run(batch_size=1000)` on one asyncpg connection, async entrypoints, uvloop, `pgq autovac`; batches of 500 "
        "and 1,000, a connection and a pool could not be told apart in 4 drains each on a busy machine, so the pool has a "
        "line of its own; bulk in calls of 5,000; keys are dedupe keys; another entrypoint stands for another queue; "
        "contention with batch_size=5, max_concurrent_tasks=10, the largest batch that it allows for 10"
    )
    drain_jobs = 30_000
    fill_rate = 10_000
    measures = LOAD_MEASURES | {BACKLOG, KEYS}
    url_names = ("PGDSN",)
    has_other_queue = True
    connections = "one"

    def load(self) -> None:
        import pgqueuer  # noqa: F401

    def preparations(self) -> list[list[str]]:
        return [[sys.executable, "-m", "pgqueuer", command] for command in ("install", "autovac")]

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        sizes = ["1000"] if concurrency is None else [str(concurrency // 2), str(concurrency)]
        return [sys.executable, "-m", "bench.apps.pgqueuer_app", self.connections, *sizes]

    def open_producer(self) -> Producer:
        return PgQueuerProducer()


class PgQueuerPool(PgQueuerPostgres):
    """Its other documented driver. The better of the two is the one to be compared with."""

    name = "pgqueuer-pool"
    tuning = "as pgqueuer, on an asyncpg pool of 2 to 5 connections; the drain alone"
    measures = frozenset({DRAIN})
    connections = "pool"
