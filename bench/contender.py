"""What a contender has to offer, so that each is measured by the same code.

A `Contender` describes a library in the harness's process without importing it; a `Producer` is its client, opened
only in a child process of its own. Times are taken inside the producer, so that imports and set-up are never counted.
"""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

STAMP = "stamp"
STAMP_WALL = "stamp_wall"
NAP = "nap"
"""Waits 10 ms, and counts its runs: see bench/crowd.py."""
OTHER = "other"
"""Stamps as `stamp` does, in a queue of its own where the library has such a thing."""

ENQUEUE, DRAIN, LATENCY, LATENESS, IDLE = "enqueue", "drain", "latency", "lateness", "idle"
KEYS, BURST, CONTENTION, SNAPSHOT = "keys", "burst", "contention", "snapshot"
BACKLOG, FLOOR = "backlog", "floor"
COMMON_MEASURES = frozenset({ENQUEUE, DRAIN, LATENCY, LATENESS, IDLE})


class Producer(ABC):
    """A library's client. Job n of a measure calls the task with n alone, which stamps slot n of the ledger."""

    bulk_chunk: int | None = None
    """How many jobs are given to one bulk call. None: the library has no bulk call."""

    def bulk(self, first: int, count: int) -> float:
        """Enqueue jobs first.. by the library's bulk call; the seconds it took."""
        assert self.bulk_chunk is not None
        chunk = self.bulk_chunk
        started = time.perf_counter()
        for at in range(first, first + count, chunk):
            self._bulk(range(at, min(at + chunk, first + count)))
        return time.perf_counter() - started

    def single(self, first: int, count: int) -> float:
        """Enqueue jobs first.. one call after the other; the seconds it took."""
        started = time.perf_counter()
        for number in range(first, first + count):
            self._single(number)
        return time.perf_counter() - started

    def paced(self, first: int, gaps: Sequence[float]) -> list[int]:
        """Enqueue one job after each gap; the monotonic time just before each call.

        Before, not after: what a user waits for includes the write, and a job may start before its enqueue
        returns.
        """
        called = []
        for number, gap in enumerate(gaps, first):
            time.sleep(gap)
            called.append(time.monotonic_ns())
            self._single(number)
        return called

    def schedule(self, first: int, delays: Sequence[float]) -> list[int]:
        """Enqueue one wall-stamping job for each delay from now; the wall-clock time each is due."""
        due = []
        for number, delay in enumerate(delays, first):
            # Whole microseconds: what a datetime can say, so that nothing is rounded on the way.
            due_ns = (time.time_ns() + int(delay * 1e9)) // 1_000 * 1_000
            due.append(due_ns)
            self._schedule(number, due_ns)
        return due

    def fill(self, count: int, task: str = STAMP) -> None:
        """Enqueue by whatever is fastest; nobody times this."""
        assert task == STAMP, "this library is not asked for other tasks"
        if self.bulk_chunk:
            self.bulk(0, count)
        else:
            self.single(0, count)

    def keyed(self, first: int, count: int) -> float:
        """As `bulk`, each job with a key of its own that no other waiting job may have."""
        raise NotImplementedError

    def fill_at(self, first: int, count: int, due_ns: int) -> None:
        """Enqueue jobs first.. that are all due at the same time."""
        raise NotImplementedError

    def other(self, number: int) -> None:
        """Enqueue one job of the task `other`."""
        raise NotImplementedError

    def floor(self, count: int, *, snapshot: bool) -> tuple[float, float]:
        """The engine's own statements in a bare loop: jobs added and drained in a second."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Let go of connections."""

    def _bulk(self, numbers: range) -> None:
        raise NotImplementedError

    @abstractmethod
    def _single(self, number: int) -> None: ...

    @abstractmethod
    def _schedule(self, number: int, due_ns: int) -> None: ...

    @abstractmethod
    def unfinished(self) -> int:
        """Jobs which the library's own store does not yet hold as finished."""


class Contender(ABC):
    engine = "sqlite"
    name: str
    distribution: str
    durability: str
    tuning: str
    """What was set and why, shown with the results."""
    drain_jobs: int
    """Jobs of one drain: some seconds of work, so more for a faster library."""
    measures: frozenset[str] = COMMON_MEASURES
    fill_rate = 1_000
    """Jobs in a second that `fill_at` surely reaches, on a slow machine too: a burst must be enqueued before it is due."""
    contended_jobs = 1_000_000
    """Maximum number of jobs in one measure of contention, for a library that would need minutes otherwise."""
    backlog_jobs = 10_000_000
    """Maximum number of jobs in the far future, for a library that would need minutes to store them."""
    url_names: tuple[str, ...] = ()
    """Variables of the environment in which its processes look for a server's URL, besides BENCH_URL."""
    has_other_queue = False
    """Whether a job can stand in a line of its own, which the same worker process serves."""

    def version(self) -> str:
        return metadata.version(self.distribution)

    @abstractmethod
    def load(self) -> None:
        """Import the library, to see that it can be loaded here at all. Raises ImportError."""

    def preparations(self) -> list[list[str]]:
        """Commands that make the tables in an empty database, where the library wants that done apart."""
        return []

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        """The worker's command line. Without a concurrency: the one that drains most."""
        assert concurrency is None and not other_queue, "this library is not asked for that"
        return [sys.executable, *self.worker_arguments()]

    def worker_arguments(self) -> list[str]:
        """What follows `python` on the worker's command line."""
        raise NotImplementedError

    def scheduler_command(self) -> list[str] | None:
        """What else has to run for jobs of the future, where the worker alone does not start them."""
        return None

    def environment(self, folder: Path) -> dict[str, str]:
        """What the library's processes need besides BENCH_FOLDER."""
        return {}

    @abstractmethod
    def open_producer(self) -> Producer:
        """Called in the producer's process, with the environment set."""


def to_datetime(ns: int) -> datetime:
    """An aware datetime, exact to the microsecond; by way of a float it would not be."""
    return EPOCH + timedelta(microseconds=ns // 1_000)


def wait_until(done: Callable[[], bool], *, seconds: float, poll: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(poll)
