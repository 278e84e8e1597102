"""How a worker is asked to leave, and how long its last steps may take.

asked once     drain: no claim any more, running jobs have their time
asked again    hurry: running jobs are interrupted, and all that is left has a few seconds
"""

import asyncio
from collections.abc import Callable

from drumbeat.clock import Clock
from drumbeat.service import waiting

INTERRUPTED_WITHIN, INTERRUPTED_WITHIN_URGENTLY = 5.0, 2.4
"""So long handlers that were interrupted have to end; the second, counted from the request, when it is urgent."""
TOLD_WITHIN, TOLD_WITHIN_URGENTLY, TOLD_IN_VAIN = 5.0, 3.2, 1.0
"""So long after the time to drain the store may take to hear of the last outcomes; likewise; and if it is known to be away."""
TOLD_WITHIN_FOREVER = 60.0
"""The same where there is no end to draining, after the last handler has ended."""
GOODBYE_WITHIN_URGENTLY = 0.8
ENDED_WITHIN = 1.0
"""So long calls to a store that is away may take to end, where there is nothing to tell."""


class Departure:
    def __init__(self, clock: Clock, drain: float | None, on_stop: Callable[[], None]) -> None:
        self._clock = clock
        self._drain = drain
        self._on_stop = on_stop
        self._asked_at = self._urgent_at = 0.0
        self.stop = asyncio.Event()
        """The worker is to leave."""
        self.hurry = asyncio.Event()
        """What runs is not waited for any more."""
        self.urgent = asyncio.Event()
        """Somebody has asked twice."""

    def request(self) -> None:
        if not self.stop.is_set():
            self.begin()
        elif not self.urgent.is_set():
            self._urgent_at = self._clock.monotonic()
            self.urgent.set()
            self.hurry.set()

    def begin(self) -> None:
        self._asked_at = self._clock.monotonic()
        self.stop.set()
        self._on_stop()

    async def comes_first(self, future: "asyncio.Future[None]") -> bool:
        """Wait for this. False: asked to leave before it came."""
        async with waiting(self.stop) as stop:
            await asyncio.wait({future, stop}, return_when=asyncio.FIRST_COMPLETED)
        return future.done()

    async def interrupted(self, task: "asyncio.Task[None]") -> bool:
        """Wait for handlers that were interrupted. False: they did not end in time."""
        return await self._ends(task, INTERRUPTED_WITHIN, INTERRUPTED_WITHIN_URGENTLY)

    async def told(self, task: "asyncio.Task[None]", *, left: int, is_away: bool) -> bool:
        """Wait until the store has heard of the last outcomes, of which so many are left: as long as jobs may drain, and a
        little more. False: it did not in time."""
        if is_away and not left:
            within = ENDED_WITHIN
        elif self._drain is None:
            within = TOLD_WITHIN_FOREVER
        else:
            within = max(0.0, self._asked_at + self._drain - self._clock.monotonic()) + TOLD_WITHIN
        return await self._ends(task, within, TOLD_IN_VAIN if is_away else TOLD_WITHIN_URGENTLY)

    @property
    def goodbye_within(self) -> float:
        return GOODBYE_WITHIN_URGENTLY if self.urgent.is_set() else INTERRUPTED_WITHIN

    async def _ends(self, task: "asyncio.Task[None]", within: float, urgently: float) -> bool:
        """Whether it ends within so many seconds; or, once it is urgent, so many after that was said."""
        async with waiting(self.urgent) as urgent:
            await asyncio.wait({task, urgent}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
            if urgent.done() and not task.done():
                left = self._urgent_at + urgently - self._clock.monotonic()
                await asyncio.wait([task], timeout=max(0.0, left))
        return task.done()
