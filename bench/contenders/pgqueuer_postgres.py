"""PgQueuer on PostgreSQL: claims and finishes in batches, a task for each job."""

import sys
import time
from datetime import timedelta

from bench.contender import BACKLOG, KEYS, Producer
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
    """PgQueuer counts from the server's now; rounded up, so that it is not told a moment before the due one."""
    return None if due_ns is None else timedelta(microseconds=-((time.time_ns() - due_ns) // 1_000))


class PgQueuerPostgres(PostgresContender):
    name = "pgqueuer"
    distribution = "pgqueuer"
    tuning = (
        "`pgqueuer.run(batch_size=500)`, async entrypoints on its asyncpg driver, uvloop, `pgq autovac`; bulk in calls of "
        "5,000; keys are dedupe keys; another entrypoint stands for another queue; contention with batch_size=5, "
        "max_concurrent_tasks=10, the largest batch that it allows for 10"
    )
    drain_jobs = 30_000
    fill_rate = 10_000
    measures = LOAD_MEASURES | {BACKLOG, KEYS}
    url_names = ("PGDSN",)
    has_other_queue = True

    def load(self) -> None:
        import pgqueuer  # noqa: F401

    def preparations(self) -> list[list[str]]:
        return [[sys.executable, "-m", "pgqueuer", command] for command in ("install", "autovac")]

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        sizes = ["500"] if concurrency is None else [str(concurrency // 2), str(concurrency)]
        return [sys.executable, "-m", "bench.apps.pgqueuer_app", *sizes]

    def open_producer(self) -> Producer:
        return PgQueuerProducer()
