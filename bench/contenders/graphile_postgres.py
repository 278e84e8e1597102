"""graphile-worker on PostgreSQL, batched: worker and client on Node.

Node and npm must be there; the package itself is fetched when the bench runs: see bench/peer_packages.py.
"""

from pathlib import Path
from typing import Any

from bench.contender import BACKLOG, KEYS, Producer
from bench.contenders.postgres import LOAD_MEASURES, PostgresContender
from bench.node_producer import NodeProducer
from bench.peer_packages import node_modules, provide_by_npm
from bench.processes import ROOT

PACKAGE, VERSION = "graphile-worker", "0.17.3"


class GraphilePostgres(PostgresContender):
    name = "graphile"
    distribution = PACKAGE
    tuning = (
        "its own documentation's fastest preset (concurrentJobs 24, localQueue of 500, completeJobBatchDelay 0), and "
        "pollInterval 100 ms, because scheduled jobs are only found by polling (its default is 2 s); no line for each "
        "success; bulk is `addJobs` in calls of 5,000, two at a time over two connections; keys are job keys; "
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
        return NodeProducer(self._command("produce"))

    def _command(self, *arguments: Any) -> list[str]:
        return ["node", str(ROOT / "bench" / "apps" / "graphile.cjs"), *arguments]
