"""Turns: what every engine must do with locks."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.lock import LockInfo, NewTicket, TicketStatus


class LockStore(Protocol):
    """Lines of tickets. Each operation is one atomic step for each lock that it touches.

    Holding is a stored fact, set by whoever looks. Every operation on a lock first removes the tickets whose lease has
    ended, and at its end grants the lock to the first in line, as long as there is room: fewer than `limit` hold it, and with
    `per` fewer than `limit` grants lie in the span (now - per, now] of the store's time, grants of those who have left
    included. Whoever is granted by somebody else's step gets a hint (`Wake.listen_tickets`), and so does the new first in
    line of a rate window that is closed, with the time until it opens.

    `limit` and `per` are the lock's: those of the newest ticket count, and lowering them revokes nobody.
    """

    async def acquire(self, ticket: NewTicket) -> TicketStatus:
        """Take a place at the end of the line. A second call with the same id renews the ticket, if it is still there."""
        ...

    async def ticket_status(self, tickets: Sequence[str], *, renew: bool) -> list[TicketStatus]:
        """How these tickets stand, in the same order; `renew` gives each of them a new lease. One that is not there is LOST."""
        ...

    async def release(self, tickets: Sequence[str]) -> None:
        """Give up these tickets, whether they wait or hold. Those that are not there are passed over."""
        ...

    async def force_release(self, lock: str, ticket: str | None, *, by: str, reason: str) -> int:
        """Take a ticket (None: all that hold the lock) away from its owner, who gets a hint. Returns how many there were."""
        ...

    async def list_page(self, *, after: str = "", limit: int = 100, all: bool = False) -> list[LockInfo]:
        """Locks that somebody holds or waits for, by name, those after `after`; with `all` also idle ones.

        An idle lock is forgotten after a day or so.
        """
        ...

    async def get(self, lock: str) -> LockInfo | None:
        """One lock with the first thousand of its line."""
        ...
