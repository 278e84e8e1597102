"""How a worker is asked to stop, how long its last steps may take, and with which code its process exits.

first request    drain: no more claims, running jobs have the drain timeout
second request   urgent: running jobs are interrupted, and everything left has a few seconds
"""

import asyncio
import logging
from collections.abc import Callable

from drumbeat.clock import Clock
from drumbeat.processes.exit_codes import EXIT_NO_STORE, EXIT_OK, EXIT_REPLACE
from drumbeat.service import wait_task

log = logging.getLogger(__name__)

INTERRUPT_TIMEOUT, URGENT_INTERRUPT_TIMEOUT = 5.0, 2.4
"""How long interrupted handlers have to end; the second, counted from the urgent request."""
REPORT_TIMEOUT, URGENT_REPORT_TIMEOUT, AWAY_REPORT_TIMEOUT = 5.0, 3.2, 1.0
"""How long after the drain timeout the last outcomes may take to be reported; from the urgent request; if the store is known to
be unreachable."""
UNLIMITED_DRAIN_REPORT_TIMEOUT = 60.0
"""The same without a drain timeout, after the last handler has ended."""
URGENT_LEAVE_TIMEOUT = 0.8
IDLE_REPORT_TIMEOUT = 1.0
"""How long calls to an unreachable store may take to end when there is nothing to report."""


class Shutdown:
    def __init__(self, clock: Clock, drain: float | None, *, may_exit: bool) -> None:
        """`may_exit`: the worker may decide to stop by itself, because its process will be restarted."""
        self._clock = clock
        self._drain = drain
        self._may_exit = may_exit
        self._requested_at = self._urgent_at = 0.0
        self.on_stop: list[Callable[[], None]] = []
        """Called when the worker is asked to stop."""
        self.on_give_up: list[Callable[[], None]] = []
        """Called when the worker stops although it could not reach the store."""
        self.exit_code = EXIT_OK
        self.has_given_up = False
        self.stop = asyncio.Event()
        """The worker is to stop."""
        self.hurry = asyncio.Event()
        """Running jobs are not waited for any more."""
        self.urgent = asyncio.Event()
        """The second request has come."""

    @property
    def is_stopping(self) -> bool:
        return self.stop.is_set()

    def request(self) -> None:
        if not self.is_stopping:
            self._start()
        elif not self.urgent.is_set():
            self._urgent_at = self._clock.monotonic()
            self.urgent.set()
            self.hurry.set()

    def request_replacement(self, exit_code: int = EXIT_REPLACE) -> bool:
        """Stop, so that the process is started again: too many handlers are stuck, or it is to be recycled. Returns whether
        that is the reason of its end."""
        if not self._may_exit or self.is_stopping:
            return False
        self.exit_code = exit_code
        self._start()
        return True

    def leave_store(self, reason: str) -> None:
        """The store has been unreachable for too long, and nothing runs: stop."""
        if self._may_exit and not self.is_stopping:
            self.give_up()
            facts = {"reason": reason, "exit_code": self.exit_code}
            log.error("the store has been away for too long and nothing runs: this worker exits", extra=facts)
            self._start()
            self.hurry.set()

    def give_up(self) -> None:
        """Do not wait for the store any more."""
        self.has_given_up = True
        self.exit_code = EXIT_NO_STORE
        for call in self.on_give_up:
            call()

    def _start(self) -> None:
        self._requested_at = self._clock.monotonic()
        self.stop.set()
        for call in self.on_stop:
            call()

    async def wait_unless_stopped(self, future: "asyncio.Future[None]") -> bool:
        """Wait for this future. False: asked to stop first."""
        async with wait_task(self.stop) as stop:
            await asyncio.wait({future, stop}, return_when=asyncio.FIRST_COMPLETED)
        return future.done()

    async def wait_for_handlers(self, task: "asyncio.Task[None]") -> bool:
        """Wait for interrupted handlers. False: they did not end in time."""
        return await self._wait_for(task, INTERRUPT_TIMEOUT, URGENT_INTERRUPT_TIMEOUT)

    async def wait_for_outcomes(self, task: "asyncio.Task[None]", *, left: int, is_away: bool) -> bool:
        """Wait until the last outcomes, `left` in number, are reported: for the rest of the drain timeout and a little more.
        False: they were not in time."""
        if is_away and not left:
            timeout = IDLE_REPORT_TIMEOUT
        elif self._drain is None:
            timeout = UNLIMITED_DRAIN_REPORT_TIMEOUT
        else:
            timeout = max(0.0, self._requested_at + self._drain - self._clock.monotonic()) + REPORT_TIMEOUT
        return await self._wait_for(task, timeout, AWAY_REPORT_TIMEOUT if is_away else URGENT_REPORT_TIMEOUT)

    @property
    def leave_timeout(self) -> float:
        return URGENT_LEAVE_TIMEOUT if self.urgent.is_set() else INTERRUPT_TIMEOUT

    async def _wait_for(self, task: "asyncio.Task[None]", timeout: float, urgent_timeout: float) -> bool:
        """Whether the task ends within `timeout` seconds, or within `urgent_timeout` of the urgent request."""
        async with wait_task(self.urgent) as urgent:
            await asyncio.wait({task, urgent}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if urgent.done() and not task.done():
                left = self._urgent_at + urgent_timeout - self._clock.monotonic()
                await asyncio.wait([task], timeout=max(0.0, left))
        return task.done()
