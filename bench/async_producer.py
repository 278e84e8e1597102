"""What producers of async libraries share: a loop that runs in a thread of its own, and each timed stretch as one coroutine.

The loop goes on while the harness waits for handlers, as it would in a program: a library may have something to send a
time after its call has returned. A subclass defines how one job and many jobs are enqueued, and does not measure.
"""

import asyncio
import threading
import time
from abc import abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from bench.contender import OTHER, STAMP, STAMP_WALL, Producer

T = TypeVar("T")


class AsyncProducer(Producer):
    calls_at_once = 1
    """Of bulk calls."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="producer's loop", daemon=True)
        self._thread.start()
        self._do(self.open())

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def shut(self) -> None: ...

    @abstractmethod
    async def add(self, task: str, number: int, *, due_ns: int | None = None) -> None: ...

    async def add_many(self, task: str, numbers: range, *, due_ns: int | None = None, keyed: bool = False) -> None:
        raise NotImplementedError

    @abstractmethod
    async def count_unfinished(self) -> int: ...

    def bulk(self, first: int, count: int) -> float:
        return self._do(self._many(STAMP, first, count))

    def keyed(self, first: int, count: int) -> float:
        return self._do(self._many(STAMP, first, count, keyed=True))

    def fill(self, count: int, task: str = STAMP) -> None:
        self._do(self._many(task, 0, count))

    def fill_at(self, first: int, count: int, due_ns: int) -> None:
        self._do(self._many(STAMP, first, count, due_ns=due_ns))

    def single(self, first: int, count: int) -> float:
        async def enqueue() -> float:
            started = time.perf_counter()
            for number in range(first, first + count):
                await self.add(STAMP, number)
            return time.perf_counter() - started

        return self._do(enqueue())

    def paced(self, first: int, gaps: Sequence[float]) -> list[int]:
        async def enqueue() -> list[int]:
            called = []
            for number, gap in enumerate(gaps, first):
                await asyncio.sleep(gap)
                called.append(time.monotonic_ns())
                await self.add(STAMP, number)
            return called

        return self._do(enqueue())

    def other(self, number: int) -> None:
        self._do(self.add(OTHER, number))

    def unfinished(self) -> int:
        return self._do(self.count_unfinished())

    def close(self) -> None:
        self._do(self.shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _many(self, task: str, first: int, count: int, **how: Any) -> float:
        chunk = self.bulk_chunk or count
        started = time.perf_counter()
        starts = iter(range(first, first + count, chunk))

        async def some() -> None:
            for at in starts:
                await self.add_many(task, range(at, min(at + chunk, first + count)), **how)

        async with asyncio.TaskGroup() as group:
            for _ in range(self.calls_at_once):
                group.create_task(some())
        return time.perf_counter() - started

    def _single(self, number: int) -> None:
        self._do(self.add(STAMP, number))

    def _schedule(self, number: int, due_ns: int) -> None:
        self._do(self.add(STAMP_WALL, number, due_ns=due_ns))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class SideBySide:
    """For a library without a bulk call: many single ones side by side. The harness fills with it, and times it never."""

    async def add_many(self: Any, task: str, numbers: range, *, due_ns: int | None = None, keyed: bool = False) -> None:
        assert not keyed, "keys are asked for in bulk only"
        waiting = iter(numbers)

        async def some() -> None:
            for number in waiting:
                await self.add(task, number, due_ns=due_ns)

        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(some())
