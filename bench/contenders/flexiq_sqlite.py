"""FlexiQ on SQLite: a Rust core that polls, with Python handlers on its loop."""

import time
from pathlib import Path

from bench.contender import STAMP, STAMP_WALL, Contender, Producer


class FlexiqProducer(Producer):
    bulk_chunk = 5_000

    def __init__(self) -> None:
        from bench.apps import flexiq_app

        self._queue = flexiq_app.queue

    def _bulk(self, numbers: range) -> None:
        self._queue.enqueue_many(STAMP, [(number,) for number in numbers])

    def _single(self, number: int) -> None:
        self._queue.enqueue(STAMP, (number,))

    def _schedule(self, number: int, due_ns: int) -> None:
        self._queue.enqueue(STAMP_WALL, (number,), delay=(due_ns - time.time_ns()) / 1e9)

    def unfinished(self) -> int:
        stats = self._queue.stats()
        return stats["pending"] + stats["running"]

    def close(self) -> None:
        self._queue.close()


class FlexiqSqlite(Contender):
    name = "flexiq"
    distribution = "flexiq"
    durability = "synchronous NORMAL (fixed in its core)"
    tuning = (
        "async handlers, workers=200, pool_size=4, async_concurrency=1000, scheduler_batch_size=1000, "
        "scheduler_poll_interval_ms=5: the best of 14 settings, tried once each "
        "(the defaults drained 60/s on 2 cores, and less with push_dispatch=True); its "
        "times are whole milliseconds"
    )
    drain_jobs = 4_000

    def load(self) -> None:
        import flexiq  # noqa: F401

    def environment(self, folder: Path) -> dict[str, str]:
        return {"FLEXIQ_LOG_LEVEL": "WARNING"}

    def worker_arguments(self) -> list[str]:
        return ["-c", "from flexiq.cli import main; main()", "worker", "--app", "bench.apps.flexiq_app:queue"]

    def open_producer(self) -> Producer:
        return FlexiqProducer()
