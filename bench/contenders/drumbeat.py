"""Drumbeat's client, the same on every engine, and its worker, the same on every engine with a server."""

import sys
from importlib import import_module

from bench.async_producer import AsyncProducer
from bench.contender import DRAIN, FLOOR, Contender, Producer, to_datetime

TWO_QUEUES = "bench.apps.two_queues"


class DrumbeatProducer(AsyncProducer):
    bulk_chunk = 5_000

    def __init__(self, module: str) -> None:
        self._program = import_module(module)
        self._app = self._program.app
        super().__init__()

    async def open(self) -> None:
        await self._app.__aenter__()

    async def shut(self) -> None:
        await self._app.close()

    async def add(self, task: str, number: int, *, due_ns: int | None = None) -> None:
        await self._bound(task, due_ns).enqueue(number)

    async def add_many(self, task: str, numbers: range, *, due_ns: int | None = None, keyed: bool = False) -> None:
        called = self._bound(task, due_ns)
        if keyed:
            jobs = [called.using(key=f"key-{number}", unique=True).bind(number) for number in numbers]
        else:
            jobs = [called.bind(number) for number in numbers]
        await self._app.enqueue_many(jobs)

    async def count_unfinished(self) -> int:
        # Asked when all have started: what is not finished then is running. Jobs of a far future do not count.
        return len(await self._app.jobs.list(state="running", limit=1))

    def _bound(self, task: str, due_ns: int | None):
        called = getattr(self._program, task)
        return called if due_ns is None else called.using(at=to_datetime(due_ns))


class DrumbeatOnServer(Contender):
    """With `async def` handlers, and every measure."""

    name = "drumbeat"
    distribution = "drumbeat"
    tuning = (
        "`drumbeat run --concurrency 100`, `async def` handlers, history on, uvloop where installed; bulk in calls of "
        "5,000; keys are unique ones; in the burst a second queue; contention with `--concurrency 10`"
    )
    drain_jobs = 100_000
    fill_rate = 20_000
    url_names = ("DRUMBEAT_URL",)
    has_other_queue = True
    module = "bench.apps.noop"
    client_module = TWO_QUEUES
    """A client pays nothing for a queue that it does not use."""
    concurrency = 100

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        module = TWO_QUEUES if other_queue else self.module
        options = ["--concurrency", str(concurrency or self.concurrency)]
        return [sys.executable, "-m", "drumbeat", "run", f"{module}:app", *options]

    def open_producer(self) -> Producer:
        return DrumbeatProducer(self.client_module)


class DrumbeatThreadsOnServer(DrumbeatOnServer):
    name = "drumbeat-def"
    tuning = "`drumbeat run --concurrency 10` (the default), `def` handlers in threads; the drain alone"
    drain_jobs = 30_000
    measures = frozenset({DRAIN})
    module = client_module = "bench.apps.noop_def"
    concurrency = 10


class FloorOnServer(DrumbeatOnServer):
    """No library at all: the producer's `floor` has the engine's own statements."""

    name = "floor"
    measures = frozenset({FLOOR})
