"""Limit how many crash suspects run at once: jobs that ran when a worker died, and therefore run alone in a child process.

A worker without a supervisor may leave thousands: all that it had claimed. Each child process has the whole program in memory,
so only a few run at a time, one job in each child, and a child that survives is reused. Suspects that find no child wait in
their slot: in any slot while the children serve them quickly, as most ran beside the culprit and are as short as ever; else in
half of the slots at most. The others are put off in the store: other jobs go on meanwhile, and other workers may take them.

Those that are put off come back one after another, as fast as suspects have been served so far: if all came back at once, a few
would find a child and the others would be put off again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from drumbeat.clock import Clock

MAX_CHILDREN = 4
MAX_WAIT, MAX_QUICK_WAIT = 2.0, 0.2
MAX_QUICK_RUN = 0.02
"""If the last suspect that ended took no longer than this, suspects are served quickly."""
MIN_DELAY, MAX_DELAY = 0.5, 60.0
MAX_LINE_SECONDS = 5.0
"""Among many short suspects a few long ones make the average long: who is put off is not put off for the sum of all."""
FIRST_RUN_SECONDS = 0.004
"""What a suspect is assumed to take before one has ended."""
EWMA_WEIGHT = 0.2


class NoChildFree(Exception):
    """All children for suspects are busy: retry after `delay_us`."""

    def __init__(self, delay_us: int, running: int) -> None:
        super().__init__(
            "its worker died while it ran, so it runs alone in a child process, "
            f"and {running} others do: it waits for its turn"
        )
        self.delay_us = delay_us


class TurnPlanner:
    """How fast suspects are served, and when those that found no child come back. Pure."""

    def __init__(self, children: int) -> None:
        self._children = children
        self._run_seconds: float | None = None
        self._last_run_seconds: float | None = None
        self._last_turn = 0.0

    def record_run(self, seconds: float) -> None:
        before = seconds if self._run_seconds is None else self._run_seconds
        self._run_seconds = before + EWMA_WEIGHT * (seconds - before)
        self._last_run_seconds = seconds

    def is_quick(self, busy_for: float) -> bool:
        """Whether a child will soon be free. `busy_for`: how long the handlers in all children have been running."""
        last = self._last_run_seconds
        return last is not None and last <= MAX_QUICK_RUN and busy_for <= MAX_QUICK_WAIT

    def next_delay(self, now: float, busy_for: float) -> float:
        """Seconds until the next turn: each call takes one."""
        run_seconds = FIRST_RUN_SECONDS if self._run_seconds is None else self._run_seconds
        earliest = now + min(MAX_DELAY, max(MIN_DELAY, busy_for))
        turn = max(earliest, self._last_turn + run_seconds / self._children)
        self._last_turn = turn if turn <= earliest + MAX_LINE_SECONDS else earliest  # the line is full: begin anew
        return self._last_turn - now


class CrashSuspectLimiter:
    def __init__(self, concurrency: int, clock: Clock) -> None:
        self._clock = clock
        self._max_slots = max(1, concurrency // 2)
        self._slots = 0
        self._children = max(1, min(MAX_CHILDREN, self._max_slots))
        self._free = asyncio.Semaphore(self._children)
        self._turns = TurnPlanner(self._children)
        self._started: dict[object, float | None] = {}
        """When the handler in each busy child started; None: not yet, the child may be loading the program."""

    @asynccontextmanager
    async def acquire_child(self) -> AsyncIterator[Callable[[], None]]:
        """Occupy one of the children while the body runs. The body makes the call that it is given when the handler starts.

        Raises:
            NoChildFree: none became free in time, or too many wait already.
        """
        is_crowded = self._slots >= self._max_slots
        if is_crowded and not self._turns.is_quick(self._busy_for()):
            raise self._none_free()
        self._slots += 1
        try:
            await self._wait(MAX_QUICK_WAIT if is_crowded else MAX_WAIT)
            me = object()
            self._started[me] = None

            def on_started() -> None:
                self._started[me] = self._clock.monotonic()

            try:
                yield on_started
            finally:
                started = self._started.pop(me)
                if started is not None:
                    self._turns.record_run(self._clock.monotonic() - started)
                self._free.release()
        finally:
            self._slots -= 1

    async def _wait(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._free.acquire()
        except TimeoutError:
            raise self._none_free() from None

    def _busy_for(self) -> float:
        """How long the handler that started last has been running."""
        now = self._clock.monotonic()
        return min((0.0 if started is None else now - started for started in self._started.values()), default=0.0)

    def _none_free(self) -> NoChildFree:
        delay = self._turns.next_delay(self._clock.monotonic(), self._busy_for())
        return NoChildFree(round(delay * 1e6), len(self._started))
