"""BullMQ on Redis: worker and client on Node.

Node and npm must be there; the package itself is fetched when the bench runs: see bench/peer_packages.py.
"""

from pathlib import Path

from bench.contender import BACKLOG, KEYS, Producer
from bench.contenders.redis import LOAD_MEASURES, RedisContender
from bench.node_producer import NodeProducer
from bench.peer_packages import node_modules, provide_by_npm
from bench.processes import ROOT

PACKAGE, VERSION = "bullmq", "6.7.0"
DRIVER = "ioredis@5.11.1"
"""The one that this release of BullMQ is tested with."""
NODE = ["node", str(ROOT / "bench" / "apps" / "bullmq.cjs")]


class BullmqRedis(RedisContender):
    name = "bullmq"
    distribution = PACKAGE
    tuning = (
        f"on {DRIVER}, concurrency 100 (20, 100 and 500 were tried once each, on a busy machine), removeOnComplete; "
        "bulk is addBulk in calls of 5,000, two at a time; keys are job ids; its times are whole milliseconds; in the burst a "
        "second Worker in the same process; contention with concurrency 10"
    )
    drain_jobs = 50_000
    fill_rate = 8_000
    backlog_jobs = 300_000
    measures = LOAD_MEASURES | {BACKLOG, KEYS}
    has_other_queue = True

    def version(self) -> str:
        return VERSION

    def load(self) -> None:
        provide_by_npm(PACKAGE, VERSION, beside=(DRIVER,))

    def environment(self, folder: Path) -> dict[str, str]:
        return {"NODE_PATH": str(node_modules(PACKAGE, VERSION)), "NODE_ENV": "production"}

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        return [*NODE, "run", str(concurrency or 100), "default", *(["other"] if other_queue else [])]

    def open_producer(self) -> Producer:
        return NodeProducer([*NODE, "produce"])
