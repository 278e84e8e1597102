"""One place in the line of a lock, as its own process sees it: from the wish to the end.

    ENTERING --answered--> WAITING --granted--> HOLDING --> LEFT
                                \\------------------/
                                     lost: HOLDING no more, and told

It is shared by the loop that wants the lock and the keeper's, which renews it. Whatever changes it holds the keeper's mutex.
"""

import asyncio
import math
import os
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from enum import Enum, auto
from typing import Any

from drumbeat.clock import Clock
from drumbeat.core.lock import NewTicket, TicketStatus

MAX_SAFETY_MARGIN_S = 0.5


class TicketStage(Enum):
    ACQUIRING = auto()  # whether the store knows the ticket is not known
    WAITING = auto()
    HELD = auto()
    RELEASED = auto()


class Ticket:
    def __init__(self, lock: str, lease: float, owner: object, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self.id = os.urandom(8).hex()
        self.lock = lock
        self.lease = lease
        self.owner = owner
        """The task or thread that wants it: it must not want it twice."""
        self.pid = os.getpid()
        self.stage = TicketStage.ACQUIRING
        self.request: NewTicket | None = None
        self.check_at = math.inf
        """When the keeper should look, by the local clock."""
        self.loop = loop
        self.grant_future: asyncio.Future[TicketStatus] = loop.create_future()
        self.lost = LossSignal(self)
        self._clock = clock
        self._trusted_until = -math.inf

    def extend_trust(self, asked_at: float) -> None:
        """The store has renewed the lease at some moment after `asked_at`: so long it is ours whatever happens. Clocks do not
        run alike: a little is left out."""
        self._trusted_until = asked_at + self.lease - min(MAX_SAFETY_MARGIN_S, self.lease / 10)

    @property
    def trusted_until(self) -> float:
        return self._trusted_until

    @property
    def is_trusted(self) -> bool:
        return self._clock.monotonic() < self._trusted_until

    def mark_held(self) -> None:
        self.stage = TicketStage.HELD

    def grant(self, status: TicketStatus) -> None:
        """Its turn has come, while it waited."""
        self.mark_held()
        with suppress(RuntimeError):  # that loop is closed: nobody waits
            self.loop.call_soon_threadsafe(self._resolve_grant, status)

    def fail(self, error: Exception) -> None:
        """There is nobody any more who could tell when its turn comes."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(
                lambda: None if self.grant_future.done() else self.grant_future.set_exception(error)
            )

    def _resolve_grant(self, status: TicketStatus) -> None:
        if not self.grant_future.done():
            self.grant_future.set_result(status)


class LossSignal:
    """Whether a lock was lost while it was held, and why. For tasks (`await lock.lost`) and threads (`lock.lost.wait(1)`)."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket
        self._reason: str | None = None
        self._mutex = threading.Lock()
        self._event: threading.Event | None = None
        self._callbacks: list[Callable[[], object]] = []

    @property
    def reason(self) -> str | None:
        """None while it is held."""
        if self._reason is None and self._ticket.stage is TicketStage.HELD and not self._ticket.is_trusted:
            # The process was stopped, and we are faster than the keeper: nobody may trust a lease that is over.
            self.set("its lease ended before a renewal was answered")
        return self._reason

    def is_set(self) -> bool:
        return self.reason is not None

    def set(self, reason: str) -> None:
        """The first reason stays."""
        with self._mutex:
            if self._reason is not None:
                return
            self._reason = reason
            event, calls = self._event, self._callbacks
        if event is not None:
            event.set()
        for call in calls:
            call()

    def wait(self, timeout: float | None = None) -> bool:
        """Block this thread until the lock is lost; False when the time is over. Not for code on an event loop."""
        with self._mutex:
            if self._event is None:
                self._event = threading.Event()
            if self._reason is not None:
                self._event.set()
        self._event.wait(timeout)
        return self.is_set()

    def __await__(self) -> Generator[Any, None, str]:
        return self._wait().__await__()

    async def _wait(self) -> str:
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        self.add_callback(lambda: _call_threadsafe(loop, lambda: None if woken.done() else woken.set_result(None)))
        await woken
        assert self._reason is not None
        return self._reason

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Have this called, by any thread, when the lock is lost; at once if it is."""
        with self._mutex:
            if self._reason is None:
                self._callbacks.append(callback)
                return
        callback()


def _call_threadsafe(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
