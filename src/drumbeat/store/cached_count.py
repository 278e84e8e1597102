"""Counts of everything that there is, kept for a while where counting takes long."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec

from drumbeat.clock import Clock
from drumbeat.core.job_query import QueueStats, TaskStats

T = TypeVar("T")


class CachedCount(Generic[T]):
    """The result of a count that is repeated often.

    Small or quick counts are not cached. One that counted much and took long is reused for 40 times its duration, at most
    10 s, so that readers take no more than a fortieth of the store's time. Where the result equals the one before, it is
    reused for 600 times its duration, at most 60 s: watching an idle store costs next to nothing.
    """

    MIN_CACHED_SIZE = 50_000
    _QUICK_S = 0.02
    _WHILE_CHANGING, _WHILE_UNCHANGED = (40, 10.0), (600, 60.0)
    """Reused for this multiple of its duration, and at most these seconds."""

    def __init__(self, clock: Clock, size: Callable[[T], int]) -> None:
        """size: the number of things that a result counted."""
        self._clock = clock
        self._size = size
        self._cached: tuple[T, float] | None = None

    @property
    def value(self) -> T | None:
        """The cached result, while it is valid."""
        return self._cached[0] if self._cached is not None and self._clock.monotonic() < self._cached[1] else None

    def get_sync(self, count: Callable[[], T]) -> T:
        """The cached result, or a new one. Call it on one thread at a time."""
        if (value := self.value) is None:
            began = self._clock.monotonic()
            value = count()
            self._cache(value, began)
        return value

    async def get(self, count: Callable[[], Awaitable[T]]) -> T:
        """The same for a coroutine."""
        if (value := self.value) is None:
            began = self._clock.monotonic()
            value = await count()
            self._cache(value, began)
        return value

    def _cache(self, value: T, began: float) -> None:
        now = self._clock.monotonic()
        is_same = self._cached is not None and self._cached[0] == value
        factor, max_seconds = self._WHILE_UNCHANGED if is_same else self._WHILE_CHANGING
        is_expensive = now - began > self._QUICK_S and self._size(value) >= self.MIN_CACHED_SIZE
        self._cached = (value, now + min((now - began) * factor, max_seconds)) if is_expensive else None


def total_of_tasks(tasks: list[TaskStats]) -> int:
    return sum(each.pending + each.running + each.succeeded + each.dead + each.cancelled for each in tasks)


DueCounts = dict[str, tuple[int, int]]
"""(ready, scheduled) of each queue."""


def total_due(due: DueCounts) -> int:
    return sum(ready + scheduled for ready, scheduled in due.values())


def with_due(queue: QueueStats, due: DueCounts) -> QueueStats:
    """The queue with these counts, which may be a little older than the rest, and must not contradict it."""
    ready, scheduled = due.get(queue.name, (0, 0))
    ready = 0 if queue.oldest_due is None else max(1, ready)
    return msgspec.structs.replace(queue, ready=ready, scheduled=scheduled)
