"""Limit how many crash suspects run at once: jobs that ran when a worker died, and therefore run alone in a child process.

A worker that died may leave as many suspects as it had slots, and each child process has the whole program in memory. So only a
few run at a time, one job in each child, and a child that survives is reused. Suspects that find no child wait briefly in their
slot, in half of the slots at most, and are then put off in the store: other jobs go on meanwhile, and other workers may take
them.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from drumbeat.clock import Clock, jitter

MAX_CHILDREN = 4
MAX_WAIT = 2.0
MIN_DELAY, MAX_DELAY = 1.0, 60.0


class NoChildFree(Exception):
    """All children for suspects are busy: retry after `delay_us`."""

    def __init__(self, delay_us: int, running: int) -> None:
        super().__init__(
            "its worker died while it ran, so it runs alone in a child process, "
            f"and {running} others do: it waits for its turn"
        )
        self.delay_us = delay_us


class CrashSuspectLimiter:
    def __init__(self, concurrency: int, clock: Clock) -> None:
        self._clock = clock
        self._max_slots = max(1, concurrency // 2)
        self._slots = 0
        self._children = max(1, min(MAX_CHILDREN, self._max_slots))
        self._free = asyncio.Semaphore(self._children)
        self._began: dict[object, float] = {}

    @asynccontextmanager
    async def acquire_child(self) -> AsyncIterator[None]:
        """Occupy one of the children while the body runs.

        Raises:
            NoChildFree: none became free within MAX_WAIT, or too many wait already.
        """
        if self._slots >= self._max_slots:
            raise self._none_free()
        self._slots += 1
        try:
            await self._wait()
            me = object()
            self._began[me] = self._clock.monotonic()
            try:
                yield
            finally:
                del self._began[me]
                self._free.release()
        finally:
            self._slots -= 1

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(MAX_WAIT):
                await self._free.acquire()
        except TimeoutError:
            raise self._none_free() from None

    def _none_free(self) -> NoChildFree:
        """Delay by as long as the suspects have been running, up to MAX_DELAY."""
        ran = self._clock.monotonic() - min(self._began.values(), default=self._clock.monotonic())
        delay = jitter(min(MAX_DELAY, max(MIN_DELAY, ran)))
        return NoChildFree(round(delay * 1e6), len(self._began))
