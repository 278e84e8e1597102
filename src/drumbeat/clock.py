"""The only place that reads the time, and that sleeps.

Everything else is given a `Clock`. `SYSTEM` is the real one; `FakeClock` stands still until a test advances it. Wall time is
microseconds UTC; `monotonic` is for leases and durations, and includes the time that the machine was suspended.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import random
import threading
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> object:
        """Do not make the call; harmless afterwards."""


class Clock(Protocol):
    """Time, as every part sees it."""

    inline: bool
    """Whether parts run on the caller's loop instead of in threads of their own, and do not poll for what other processes do.
    For virtual time, which would run away from a thread. A part without an inline form runs in its thread all the same."""

    def now_us(self) -> int:
        """Wall time: microseconds since 1970 UTC. It may step forwards and back."""

    def monotonic(self) -> float:
        """Seconds since some fixed time; never steps back, and includes the time that the machine was suspended."""

    async def sleep(self, seconds: float) -> None:
        """Return after at least this many seconds."""

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Schedule a call on the running loop."""


class SystemClock:
    """The machine's own clocks."""

    inline = False
    # CLOCK_MONOTONIC stops in suspend: a laptop that wakes up would trust leases that expired hours ago.
    _boot_time: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    # Bound here: a handler that patches the module `time` must not stop the clock of its worker.
    _time_ns = staticmethod(time.time_ns)
    _monotonic = staticmethod(time.monotonic)
    _gettime = staticmethod(time.clock_gettime)

    def now_us(self) -> int:
        return self._time_ns() // 1_000

    def monotonic(self) -> float:
        return self._monotonic() if self._boot_time is None else self._gettime(self._boot_time)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, call)


SYSTEM: Clock = SystemClock()


def jitter(seconds: float, uniform: Callable[[float, float], float] = random.uniform) -> float:
    """0.5 to 1.5 times `seconds`, so that many sleepers do not wake together."""
    return uniform(0.5, 1.5) * seconds


class FakeClock:
    """A clock that a test advances.

    `await advance(seconds)` wakes the sleepers that are due, one by one in order of time, and lets the loop run after each, so
    that one that sleeps again within the span is woken again. Sleepers on other threads' loops are woken too, but only those of
    the calling loop have run when `advance` returns.
    """

    inline = False
    _START_US = 1_767_225_600_000_000  # 2026-01-01 00:00:00 UTC
    # Loop iterations after each wake-up: enough for it to pass through several tasks and queues.
    _TURNS = 25

    def __init__(self, now_us: int = _START_US) -> None:
        self._wall_at_start_us = now_us
        self._passed_us = 0
        self._numbers = itertools.count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._lock = threading.Lock()

    def now_us(self) -> int:
        return self._wall_at_start_us + self._passed_us

    def monotonic(self) -> float:
        return self._passed_us / 1_000_000

    @property
    def sleepers(self) -> int:
        """The number of sleepers: a test may wait for it before it advances."""
        with self._lock:
            return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        await self._future(seconds)

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        future = self._future(seconds)
        future.add_done_callback(lambda done: None if done.cancelled() else call())
        return future

    def _future(self, seconds: float) -> asyncio.Future[None]:
        """Done when the clock has advanced by this many seconds."""
        if not math.isfinite(seconds):
            raise ValueError(f"cannot sleep for {seconds} seconds")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            due_us = self._passed_us + max(0, math.ceil(round(seconds * 1_000_000, 3)))
            heapq.heappush(self._sleepers, (due_us, next(self._numbers), future))
        return future

    async def advance(self, seconds: float) -> None:
        """Advance wall and monotonic time."""
        if not 0 <= seconds < math.inf:
            raise ValueError(f"time cannot advance by {seconds} seconds")
        # A task that was started but has not reached its sleep yet would miss the span.
        await self._settle()
        end_us = self._passed_us + round(seconds * 1_000_000)
        while (sleeper := self._next_due(end_us)) is not None:
            self._wake(sleeper)
            await self._settle()
        self._passed_us = end_us
        await self._settle()

    def jump(self, seconds: float) -> None:
        """Step the wall clock only, as NTP would: nothing wakes, monotonic time does not move."""
        self._wall_at_start_us += round(seconds * 1_000_000)

    def _next_due(self, end_us: int) -> asyncio.Future[None] | None:
        with self._lock:
            while self._sleepers and self._sleepers[0][0] <= end_us:
                due_us, _, future = heapq.heappop(self._sleepers)
                if not future.done():
                    self._passed_us = due_us
                    return future
        return None

    @staticmethod
    def _wake(future: asyncio.Future[None]) -> None:
        loop = future.get_loop()
        if loop is asyncio.get_running_loop():
            future.set_result(None)
        elif not loop.is_closed():
            # Checked again on its own thread: it may have been cancelled in between.
            loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(None))

    async def _settle(self) -> None:
        for _ in range(self._TURNS):
            await asyncio.sleep(0)
