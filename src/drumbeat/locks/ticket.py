"""Ticket: one wait for a lock and one hold of it, as this process knows it.

    ACQUIRING --answered--> WAITING --granted--> HELD --> RELEASED
                                                  |
                                                  +-- lost: `lost` is set; the stage stays HELD until the block ends

It is shared by the loop of its task and that of the renewer. Changes are made with the mutex of the TicketTable held.
"""

from __future__ import annotations

import asyncio
import math
import os
from contextlib import suppress
from enum import Enum, auto

from drumbeat.clock import Clock
from drumbeat.core.lock import NewTicket, TicketStatus
from drumbeat.ids import random_hex
from drumbeat.reason_signal import ReasonSignal

MAX_SAFETY_MARGIN_S = 0.5
LEASE_EXPIRED = "its lease ended before a renewal was answered"


class TicketStage(Enum):
    ACQUIRING = auto()  # the store may or may not have the ticket
    WAITING = auto()
    HELD = auto()
    RELEASED = auto()


class Ticket:
    def __init__(self, lock: str, lease: float, owner: object, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self.id = random_hex(8)
        self.lock = lock
        self.lease = lease
        self.owner = owner
        """The task or thread: it must not acquire the same lock twice."""
        self.pid = os.getpid()
        self.stage = TicketStage.ACQUIRING
        self.request: NewTicket | None = None
        self.check_at = math.inf
        """When to ask the store for its status, by the local clock."""
        self.loop = loop
        self.grant_future: asyncio.Future[TicketStatus] = loop.create_future()
        self.lost = LossSignal(self)
        self._clock = clock
        self._trusted_until = -math.inf

    def extend_trust(self, asked_at: float) -> None:
        """The store renewed the lease after `asked_at`, so it lasts at least until then plus its length. A safety margin
        covers clocks that run at different speeds."""
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
        """The store has granted it while it waited."""
        self.mark_held()
        with suppress(RuntimeError):  # the loop is closed: no task waits
            self.loop.call_soon_threadsafe(self._resolve_grant, status)

    def fail(self, error: Exception) -> None:
        """End the wait with this error: nothing can notice a grant any more."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._resolve_failure, error)

    def _resolve_failure(self, error: Exception) -> None:
        if not self.grant_future.done():
            self.grant_future.set_exception(error)
            self.grant_future.exception()  # perhaps nobody waits: who does not wait yet, or holds it, is told elsewhere

    def _resolve_grant(self, status: TicketStatus) -> None:
        if not self.grant_future.done():
            self.grant_future.set_result(status)


class LossSignal(ReasonSignal[str]):
    """Whether a lock was lost while it was held, and why. For tasks (`await lock.lost`) and threads (`lock.lost.wait(1)`)."""

    __slots__ = ("_ticket",)

    def __init__(self, ticket: Ticket) -> None:
        super().__init__()
        self._ticket = ticket

    @property
    def reason(self) -> str | None:
        """None while it is held."""
        if self._reason is None and self._ticket.stage is TicketStage.HELD and not self._ticket.is_trusted:
            # After a pause of the process this may run before the renewer does: an expired lease must not be trusted.
            self.set(LEASE_EXPIRED)
        return self._reason
