"""Drumbeat's client, the same on every engine."""

from importlib import import_module

from bench.async_producer import AsyncProducer
from bench.contender import moment


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
        return called if due_ns is None else called.using(at=moment(due_ns))
