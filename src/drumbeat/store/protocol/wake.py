"""Hints: how a sleep is shortened."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from drumbeat.core.claim import ClaimResult
from drumbeat.ids import InstanceId

OnHandoff = Callable[[InstanceId, ClaimResult], None]


class Wake(Protocol):
    """Hints that something is due. They only shorten a sleep; whoever sleeps also polls."""

    def listen(
        self, on_notification: Callable[[int], None], on_handoff: OnHandoff | None = None
    ) -> AbstractAsyncContextManager[str | None]:
        """Call `hear(run_at)` on this loop whenever a job with this due moment may have come (0: look now), and
        `given(instance, answer)` with jobs that a claim got that stands (Jobs.exchange). One that is lost on its way is like an
        answer that is lost: the store believes that the instance runs these jobs.

        Gives the address that must stand in this instance's row (NewInstance.wake), or None where none is needed.
        """
        ...

    async def notify(self, run_at: int) -> None:
        """Give this hint to all who listen."""
        ...

    def forward(self, notify: Callable[[int], bool]) -> None:
        """Let `tell(run_at)` give the hints of this store's own operations. Where it answers False, they go their usual way. An
        engine whose hints are part of its own steps goes on giving them as well."""
        ...

    def listen_tickets(self, on_notification: Callable[[str, int], None]) -> AbstractAsyncContextManager[str | None]:
        """Call `hear(ticket, after)` on this loop when the owner of a ticket should look at it in so many microseconds; an
        empty ticket means all. Tickets of others may be heard as well.

        Gives the address that must stand in tickets (NewTicket.wake), or None where none is needed.
        """
        ...

    def listen_rooms(self, on_notification: Callable[[str], None]) -> AbstractAsyncContextManager[None]:
        """Call `hear(instance)` on this loop when messages may have come for this instance; an empty name means: for anybody.
        Those of others may be heard as well. For who listens for jobs (`listen`) at the same time.
        """
        ...
