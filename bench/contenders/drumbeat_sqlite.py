"""Drumbeat on SQLite: once with `async def` handlers and every measure, once with `def` handlers in threads."""

from pathlib import Path

from bench.contender import BACKLOG, COMMON_MEASURES, DRAIN, FLOOR, KEYS, Contender, Producer
from bench.contenders.drumbeat import DrumbeatProducer


class DrumbeatSqlite(Contender):
    name = "drumbeat"
    distribution = "drumbeat"
    durability = "fdatasync of the log before an answer (synchronous NORMAL, and our own wait)"
    tuning = (
        "`drumbeat run --concurrency 100`, `async def` handlers, history on, uvloop where installed; bulk in calls of "
        "5,000"
    )
    drain_jobs = 100_000
    measures = COMMON_MEASURES | {BACKLOG, KEYS}
    module = "bench.apps.noop"
    concurrency = 100

    def load(self) -> None:
        from drumbeat import Drumbeat  # noqa: F401

    def environment(self, folder: Path) -> dict[str, str]:
        return {"DRUMBEAT_URL": f"sqlite:///{folder}/drumbeat.db"}

    def worker_arguments(self) -> list[str]:
        return ["-m", "drumbeat", "run", f"{self.module}:app", "--concurrency", str(self.concurrency)]

    def open_producer(self) -> Producer:
        return DrumbeatProducer(self.module)


class DrumbeatThreads(DrumbeatSqlite):
    name = "drumbeat-def"
    tuning = "`drumbeat run --concurrency 10` (the default), `def` handlers in threads; the drain alone"
    drain_jobs = 30_000
    measures = frozenset({DRAIN})
    module = "bench.apps.noop_def"
    concurrency = 10


class FloorProducer(DrumbeatProducer):
    def floor(self, count: int, *, snapshot: bool) -> tuple[float, float]:
        from bench.apps.folder import folder
        from bench.floor import measure

        assert not snapshot, "another session's snapshot is asked for on PostgreSQL only"
        inserting, draining = measure(folder() / "floor.db", count)
        return count / inserting, count / draining


class DrumbeatFloor(DrumbeatSqlite):
    """No library at all: see bench/floor.py."""

    name = "floor"
    tuning = "the SQLite engine's own statements in a bare loop: no handler, no decoding; batches of 500, history on"
    measures = frozenset({FLOOR})

    def open_producer(self) -> Producer:
        return FloorProducer(self.module)
