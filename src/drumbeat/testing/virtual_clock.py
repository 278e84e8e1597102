"""A clock that stands still until the kit moves it, on the loop that a test runs on.

Timers of a worker's own upkeep (heartbeats, polls, pruning) may be passed over: when time jumps, each is due once, as after a
machine was suspended. Timers that handlers or tests have set are met one by one, and so is every timer while a handler runs.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context

from drumbeat.clock import SYSTEM
from drumbeat.context import CURRENT_JOB
from drumbeat.ids import JobId

WORKER_NUMBER: ContextVar[int] = ContextVar("drumbeat_kit_worker", default=0)
"""Set in everything that a worker of a kit does, its handlers included; 0: the test itself."""


class VirtualTimer:
    """A call at a virtual time."""

    __slots__ = ("_call", "_context", "_loop", "is_cancelled", "is_upkeep", "job")

    def __init__(self, call: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        self._call = call
        self._loop = loop
        self._context = copy_context()
        running = CURRENT_JOB.get(None)
        self.job: JobId | None = None if running is None else running.id
        """The job whose handler has set it."""
        self.is_upkeep = WORKER_NUMBER.get() > 0 and self.job is None
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def run(self) -> None:
        """Make the call, in the context and on the loop that have set it."""
        if self._loop is asyncio.get_running_loop():
            self._context.run(self._call)
        else:
            with suppress(RuntimeError):  # that loop is closed
                self._loop.call_soon_threadsafe(self._call, context=self._context)


class VirtualClock:
    """Wall time and monotonic time pass together; `jump` steps the wall clock alone."""

    inline = True

    def __init__(self, now_us: int) -> None:
        self._start_us = now_us
        self._passed_us = 0
        self._numbers = itertools.count()
        self._timers: list[tuple[int, int, VirtualTimer]] = []
        self._lock = threading.Lock()
        self.on_move: list[Callable[[], object]] = []
        """Called whenever time has moved: for libraries that replace the time of the program."""

    def now_us(self) -> int:
        return self._start_us + self._passed_us

    def monotonic(self) -> float:
        return self._passed_us / 1_000_000

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await SYSTEM.sleep(0)
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: None if over.done() else over.set_result(None))
        try:
            await over
        finally:
            timer.cancel()

    def call_later(self, seconds: float, call: Callable[[], object]) -> VirtualTimer:
        if not math.isfinite(seconds):
            raise ValueError(f"cannot wait for {seconds} seconds")
        timer = VirtualTimer(call, asyncio.get_running_loop())
        with self._lock:
            # Whoever waits for a fraction of a microsecond compares floats: at the same time it would wait again, for ever.
            due_us = self._passed_us + max(1 if seconds > 0 else 0, math.ceil(round(seconds * 1_000_000, 3)))
            heapq.heappush(self._timers, (due_us, next(self._numbers), timer))
        return timer

    def jump(self, seconds: float) -> None:
        """Step the wall clock, as a person or NTP would: nothing falls due, and monotonic time does not move."""
        self._start_us += round(seconds * 1_000_000)
        self._tell_moved()

    # For the kit.

    @property
    def passed_us(self) -> int:
        return self._passed_us

    def next_timer(self, *, upkeep: bool) -> int | None:
        """When the next timer is due, as `passed_us`; without `upkeep` those of the worker itself do not count."""
        with self._lock:
            while self._timers and self._timers[0][2].is_cancelled:
                heapq.heappop(self._timers)
            if upkeep:
                return self._timers[0][0] if self._timers else None
            found = [due for due, _, timer in self._timers if not timer.is_upkeep and not timer.is_cancelled]
        return min(found, default=None)

    def sleeping_jobs(self) -> set[JobId]:
        """Jobs whose handlers wait for virtual time."""
        with self._lock:
            return {timer.job for _, _, timer in self._timers if timer.job is not None and not timer.is_cancelled}

    def move_to(self, passed_us: int) -> None:
        """Let this time come, and make every call that is due by then."""
        self._passed_us = max(self._passed_us, passed_us)
        self._tell_moved()
        while (timer := self._take_due()) is not None:
            timer.run()

    def _take_due(self) -> VirtualTimer | None:
        with self._lock:
            while self._timers and self._timers[0][0] <= self._passed_us:
                _, _, timer = heapq.heappop(self._timers)
                if not timer.is_cancelled:
                    return timer
        return None

    def _tell_moved(self) -> None:
        for call in self.on_move:
            call()
