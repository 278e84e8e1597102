"""Hints that shorten a sleep."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from drumbeat.core.claim import ClaimResult
from drumbeat.ids import InstanceId

OnJob = Callable[[int], None]
OnHandoff = Callable[[InstanceId, ClaimResult], None]
OnTicket = Callable[[str, int], None]
OnRoom = Callable[[str], None]
Forward = Callable[[int], bool]
"""Sends a hint for jobs by way of another store; False: it could not."""


class Subscriber(msgspec.Struct, frozen=True):
    """What to call, on the loop that listens, for each kind of hint; None: hints of this kind are not wanted."""

    on_job: OnJob | None = None
    """(run_at): a job that is due then may have been added; 0: check now."""
    on_handoff: OnHandoff | None = None
    """(instance, result): jobs for a parked claim (`JobStore.report_and_claim`). A hand-off that is lost is like a lost
    answer: the store believes that the instance runs these jobs."""
    on_ticket: OnTicket | None = None
    """(ticket, after): the owner of this ticket should read its status in `after` µs; an empty ticket: all of them. Tickets
    of others may be named."""
    on_room: OnRoom | None = None
    """(instance): messages may have come for this instance; an empty name: for any. Others may be named."""

    def on_gap(self) -> None:
        """Hints may have been missed: check everything."""
        if self.on_job is not None:
            self.on_job(0)
        if self.on_ticket is not None:
            self.on_ticket("", 0)
        if self.on_room is not None:
            self.on_room("")


class Wake(Protocol):
    """Hints that something is due. They only shorten a sleep: every receiver also polls.

    Where a store was opened with `forward`, it gives the hints of its own operations to that, and sends them itself only
    while that returns False. An engine whose hints are part of its scripts (Redis) sends them as well.
    """

    def listen(self, subscriber: Subscriber) -> AbstractAsyncContextManager[str | None]:
        """Call the subscriber for every hint.

        Yields the address that must be in this instance's row (NewInstance.wake) to get job and room hints, or in tickets
        (NewTicket.wake); None where none is needed. Room hints need a subscriber for jobs of the same store beside them.
        """
        ...

    async def notify(self, run_at: int) -> None:
        """Send the hint that a job is due at `run_at` to all subscribers."""
        ...
