"""How a worker is asked to leave, and how long its last steps may take.

asked once     drain: no claim any more, running jobs have their time
asked again    hurry: running jobs are interrupted, and all that is left has a few seconds
"""

import asyncio
from collections.abc import Callable

from drumbeat.clock import Clock
from drumbeat.service import wait_task

INTERRUPT_TIMEOUT, URGENT_INTERRUPT_TIMEOUT = 5.0, 2.4
"""So long handlers that were interrupted have to end; the second, counted from the request, when it is urgent."""
REPORT_TIMEOUT, URGENT_REPORT_TIMEOUT, AWAY_REPORT_TIMEOUT = 5.0, 3.2, 1.0
"""So long after the time to drain the store may take to hear of the last outcomes; likewise; and if it is known to be away."""
UNLIMITED_DRAIN_REPORT_TIMEOUT = 60.0
"""The same where there is no end to draining, after the last handler has ended."""
URGENT_LEAVE_TIMEOUT = 0.8
IDLE_REPORT_TIMEOUT = 1.0
"""So long calls to a store that is away may take to end, where there is nothing to tell."""


class Shutdown:
    def __init__(self, clock: Clock, drain: float | None, on_stop: Callable[[], None]) -> None:
        self._clock = clock
        self._drain = drain
        self._on_stop = on_stop
        self._requested_at = self._urgent_at = 0.0
        self.stop = asyncio.Event()
        """The worker is to leave."""
        self.hurry = asyncio.Event()
        """What runs is not waited for any more."""
        self.urgent = asyncio.Event()
        """Somebody has asked twice."""

    def request(self) -> None:
        if not self.stop.is_set():
            self.start()
        elif not self.urgent.is_set():
            self._urgent_at = self._clock.monotonic()
            self.urgent.set()
            self.hurry.set()

    def start(self) -> None:
        self._requested_at = self._clock.monotonic()
        self.stop.set()
        self._on_stop()

    async def wait_unless_stopped(self, future: "asyncio.Future[None]") -> bool:
        """Wait for this. False: asked to leave before it came."""
        async with wait_task(self.stop) as stop:
            await asyncio.wait({future, stop}, return_when=asyncio.FIRST_COMPLETED)
        return future.done()

    async def wait_for_handlers(self, task: "asyncio.Task[None]") -> bool:
        """Wait for handlers that were interrupted. False: they did not end in time."""
        return await self._wait_for(task, INTERRUPT_TIMEOUT, URGENT_INTERRUPT_TIMEOUT)

    async def wait_for_outcomes(self, task: "asyncio.Task[None]", *, left: int, is_away: bool) -> bool:
        """Wait until the store has heard of the last outcomes, of which so many are left: as long as jobs may drain, and a
        little more. False: it did not in time."""
        if is_away and not left:
            within = IDLE_REPORT_TIMEOUT
        elif self._drain is None:
            within = UNLIMITED_DRAIN_REPORT_TIMEOUT
        else:
            within = max(0.0, self._requested_at + self._drain - self._clock.monotonic()) + REPORT_TIMEOUT
        return await self._wait_for(task, within, AWAY_REPORT_TIMEOUT if is_away else URGENT_REPORT_TIMEOUT)

    @property
    def leave_timeout(self) -> float:
        return URGENT_LEAVE_TIMEOUT if self.urgent.is_set() else INTERRUPT_TIMEOUT

    async def _wait_for(self, task: "asyncio.Task[None]", within: float, urgently: float) -> bool:
        """Whether it ends within so many seconds; or, once it is urgent, so many after that was said."""
        async with wait_task(self.urgent) as urgent:
            await asyncio.wait({task, urgent}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
            if urgent.done() and not task.done():
                left = self._urgent_at + urgently - self._clock.monotonic()
                await asyncio.wait([task], timeout=max(0.0, left))
        return task.done()
