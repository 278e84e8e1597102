"""What producers of blocking libraries share: a subclass says how one job and how many are enqueued, and nothing of time."""

import time
from abc import abstractmethod

from bench.contender import OTHER, STAMP, STAMP_WALL, Producer


class SyncProducer(Producer):
    @abstractmethod
    def add(self, task: str, number: int, *, due_ns: int | None = None) -> None: ...

    def add_many(self, task: str, numbers: range, *, due_ns: int | None = None, keyed: bool = False) -> None:
        """For a library without a bulk call: one after the other. The harness fills with it, and times it never."""
        assert not keyed, "keys are asked for in bulk only"
        for number in numbers:
            self.add(task, number, due_ns=due_ns)

    def fill(self, count: int, task: str = STAMP) -> None:
        self._many(task, 0, count)

    def fill_at(self, first: int, count: int, due_ns: int) -> None:
        self._many(STAMP, first, count, due_ns=due_ns)

    def keyed(self, first: int, count: int) -> float:
        started = time.perf_counter()
        self._many(STAMP, first, count, keyed=True)
        return time.perf_counter() - started

    def other(self, number: int) -> None:
        self.add(OTHER, number)

    def _many(self, task: str, first: int, count: int, *, due_ns: int | None = None, keyed: bool = False) -> None:
        chunk = self.bulk_chunk or count
        for at in range(first, first + count, chunk):
            self.add_many(task, range(at, min(at + chunk, first + count)), due_ns=due_ns, keyed=keyed)

    def _bulk(self, numbers: range) -> None:
        self.add_many(STAMP, numbers)

    def _single(self, number: int) -> None:
        self.add(STAMP, number)

    def _schedule(self, number: int, due_ns: int) -> None:
        self.add(STAMP_WALL, number, due_ns=due_ns)
