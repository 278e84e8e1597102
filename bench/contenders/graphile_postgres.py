"""graphile-worker on PostgreSQL, batched: a worker on Node, jobs added by its SQL functions.

Node and npm must be there; the package itself is fetched when the bench runs: see bench/fetched.py.
"""

import os
from pathlib import Path
from typing import Any

from bench.apps import URL_NAME
from bench.contender import BACKLOG, KEYS, Producer, moment
from bench.contenders.postgres import LOAD_MEASURES, PostgresContender, SqlProducer
from bench.fetched import node_modules, provide_by_npm
from bench.processes import ROOT

PACKAGE, VERSION = "graphile-worker", "0.17.3"
ADD_ONE = "SELECT FROM graphile_worker.add_job($1, json_build_object('number', $2::int), run_at := $3)"
ADD_MANY = """
    SELECT FROM graphile_worker.add_jobs(ARRAY(
        SELECT ROW($1, json_build_object('number', number), NULL, $3, NULL, $4 || number, NULL, NULL)
               ::graphile_worker.job_spec
          FROM unnest($2::int[]) number))
    """


class GraphileProducer(SqlProducer):
    bulk_chunk = 5_000
    calls_at_once = 2
    unfinished_sql = (
        "SELECT count(*) FROM (SELECT FROM graphile_worker._private_jobs WHERE run_at <= now() LIMIT 1) due"
    )

    async def open(self) -> None:
        import asyncpg

        self.sql: Any = await asyncpg.create_pool(os.environ[URL_NAME], min_size=2, max_size=2)

    async def add(self, task: str, number: int, *, due_ns: int | None = None) -> None:
        await self.sql.fetch(ADD_ONE, task, number, due_ns and moment(due_ns))

    async def add_many(self, task: str, numbers: range, *, due_ns: int | None = None, keyed: bool = False) -> None:
        key = "key-" if keyed else None
        await self.sql.fetch(ADD_MANY, task, list(numbers), due_ns and moment(due_ns), key)


class GraphilePostgres(PostgresContender):
    name = "graphile"
    distribution = PACKAGE
    tuning = (
        "its own documentation's fastest preset (concurrentJobs 24, localQueue of 500, completeJobBatchDelay 0), and "
        "pollInterval 100 ms, because scheduled jobs are only found by polling (its default is 2 s); no line for each "
        "success; bulk is `graphile_worker.add_jobs` in calls of 5,000, two at a time over two connections; keys are job keys; "
        "contention with concurrentJobs 10 and a localQueue of 11"
    )
    drain_jobs = 50_000
    fill_rate = 10_000
    measures = LOAD_MEASURES | {BACKLOG, KEYS}
    has_other_queue = True

    def version(self) -> str:
        return VERSION

    def load(self) -> None:
        provide_by_npm(PACKAGE, VERSION)

    def environment(self, folder: Path) -> dict[str, str]:
        return {"NODE_PATH": str(node_modules(PACKAGE, VERSION)), "NODE_ENV": "production", "NO_LOG_SUCCESS": "1"}

    def preparations(self) -> list[list[str]]:
        return [self._command("migrate")]

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        return self._command("run", str(concurrency or 24), str(concurrency + 1 if concurrency else 500))

    def open_producer(self) -> Producer:
        return GraphileProducer()

    def _command(self, *arguments: Any) -> list[str]:
        return ["node", str(ROOT / "bench" / "apps" / "graphile.cjs"), *arguments]
