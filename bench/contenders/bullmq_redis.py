"""BullMQ on Redis: worker and client on Node. Times of its enqueue are taken there, so that no pipe is measured.

Node and npm must be there; the package itself is fetched when the bench runs: see bench/fetched.py.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.contender import BACKLOG, KEYS, STAMP, Producer
from bench.contenders.redis import LOAD_MEASURES, RedisContender
from bench.fetched import node_modules, provide_by_npm
from bench.processes import ROOT

PACKAGE, VERSION = "bullmq", "6.7.0"
DRIVER = "ioredis@5.11.1"
"""The one that this release of BullMQ is tested with."""
NODE = ["node", str(ROOT / "bench" / "apps" / "bullmq.cjs")]


class BullmqProducer(Producer):
    bulk_chunk = 5_000

    def __init__(self) -> None:
        self._node = subprocess.Popen([*NODE, "produce"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def bulk(self, first: int, count: int) -> float:
        return self._many(STAMP, first, count)

    def keyed(self, first: int, count: int) -> float:
        return self._many(STAMP, first, count, keyed=True)

    def fill(self, count: int, task: str = STAMP) -> None:
        self._many(task, 0, count)

    def fill_at(self, first: int, count: int, due_ns: int) -> None:
        self._many(STAMP, first, count, due_ns=str(due_ns))

    def single(self, first: int, count: int) -> float:
        return self._ask("single", first=first, count=count)

    def paced(self, first: int, gaps: Sequence[float]) -> list[int]:
        return [int(moment) for moment in self._ask("paced", first=first, gaps=list(gaps))]

    def other(self, number: int) -> None:
        self._ask("other", number=number)

    def unfinished(self) -> int:
        return self._ask("unfinished")

    def close(self) -> None:
        self._ask("close")
        assert self._node.stdin is not None
        self._node.stdin.close()
        self._node.wait(10)

    def _single(self, number: int) -> None:
        self.single(number, 1)

    def _schedule(self, number: int, due_ns: int) -> None:
        self._ask("schedule", number=number, due_ns=str(due_ns))

    def _many(self, task: str, first: int, count: int, **how: Any) -> float:
        return self._ask("many", task=task, first=first, count=count, chunk=self.bulk_chunk, **how)

    def _ask(self, operation: str, **how: Any) -> Any:
        assert self._node.stdin is not None
        self._node.stdin.write(json.dumps({"operation": operation, **how}) + "\n")
        self._node.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._node.stdout is not None
        line = self._node.stdout.readline()
        if not line:
            raise ConnectionError("BullMQ's client is gone")
        return json.loads(line)


class BullmqRedis(RedisContender):
    name = "bullmq"
    distribution = PACKAGE
    tuning = (
        f"on {DRIVER}, concurrency 100 (20, 100 and 500 were tried once each, on a busy machine), removeOnComplete; "
        "bulk is addBulk in calls of 5,000; keys are job ids; its times are whole milliseconds; in the burst a "
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
        return BullmqProducer()
