"""Drumbeat on SQLite: once with `async def` handlers and every measure, once with `def` handlers in threads."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from bench.contender import BACKLOG, COMMON_MEASURES, DRAIN, FLOOR, Contender, Producer, moment

T = TypeVar("T")


class DrumbeatProducer(Producer):
    """Drives the async client on one loop; each timed stretch is a single coroutine, so entering the loop is not counted."""

    bulk_chunk = 5_000

    def __init__(self, module: str) -> None:
        self._program = import_module(module)
        self._app = self._program.app
        self._runner = asyncio.Runner()
        self._do(self._app.__aenter__())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def bulk(self, first: int, count: int) -> float:
        async def enqueue() -> float:
            stamp, chunk = self._program.stamp, self.bulk_chunk
            started = time.perf_counter()
            for at in range(first, first + count, chunk):
                numbers = range(at, min(at + chunk, first + count))
                await self._app.enqueue_many([stamp.bind(number) for number in numbers])
            return time.perf_counter() - started

        return self._do(enqueue())

    def single(self, first: int, count: int) -> float:
        async def enqueue() -> float:
            started = time.perf_counter()
            for number in range(first, first + count):
                await self._program.stamp.enqueue(number)
            return time.perf_counter() - started

        return self._do(enqueue())

    def paced(self, first: int, gaps: Sequence[float]) -> list[int]:
        async def enqueue() -> list[int]:
            called = []
            for number, gap in enumerate(gaps, first):
                await asyncio.sleep(gap)
                called.append(time.monotonic_ns())
                await self._program.stamp.enqueue(number)
            return called

        return self._do(enqueue())

    def future(self, count: int, delay: float) -> float:
        async def enqueue() -> float:
            later, chunk = self._program.stamp.using(delay=delay), self.bulk_chunk
            started = time.perf_counter()
            for at in range(0, count, chunk):
                await self._app.enqueue_many([later.bind(number) for number in range(at, min(at + chunk, count))])
            return time.perf_counter() - started

        return self._do(enqueue())

    def unfinished(self) -> int:
        # Asked when all have started: what is not finished then is running. Jobs of a far future do not count.
        return len(self._do(self._app.jobs.list(state="running", limit=1)))

    def close(self) -> None:
        self._do(self._app.close())
        self._runner.close()

    # `enqueue` looks for the running loop where it is called, so each call stands inside a coroutine.

    def _single(self, number: int) -> None:
        async def enqueue() -> None:
            await self._program.stamp.enqueue(number)

        self._do(enqueue())

    def _schedule(self, number: int, due_ns: int) -> None:
        async def enqueue() -> None:
            await self._program.stamp_wall.using(at=moment(due_ns)).enqueue(number)

        self._do(enqueue())


class DrumbeatSqlite(Contender):
    name = "drumbeat"
    distribution = "drumbeat"
    durability = "FULL"
    tuning = (
        "`drumbeat run --concurrency 100`, `async def` handlers, history on, uvloop where installed; bulk in calls of "
        "5,000"
    )
    drain_jobs = 100_000
    measures = COMMON_MEASURES | {BACKLOG}
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


class DrumbeatFloor(DrumbeatSqlite):
    """No library at all: see bench/floor.py."""

    name = "floor"
    tuning = "the SQLite engine's own statements in a bare loop: no handler, no decoding; batches of 500, history on"
    measures = frozenset({FLOOR})
