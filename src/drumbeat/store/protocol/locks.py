"""What every engine must do with locks."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.lock import LockInfo, NewTicket, TicketStatus


class LockStore(Protocol):
    """Locks, each with a queue of tickets. Each operation is one atomic step for each lock that it touches.

    Who holds a lock is stored, and updated by every operation: it first removes the tickets whose lease has ended, and
    at its end grants the lock to the first tickets of the queue, as long as there is capacity: fewer than `limit` hold
    it, and with `per` fewer than `limit` grants lie in the window (now - per, now] of the store's time, grants of
    released tickets included. A ticket that was granted by another caller's step gets a hint (`Subscriber.on_ticket`),
    and so does the new first of the queue of a closed rate window, with the time until it opens.

    `limit` and `per` are the lock's: those of the newest ticket count, and lowering them revokes no ticket.
    """

    async def acquire(self, ticket: NewTicket) -> TicketStatus:
        """Put a ticket at the end of the queue. A second call with the same id renews the ticket, if it still exists."""
        ...

    async def ticket_status(self, tickets: Sequence[str], *, renew: bool) -> list[TicketStatus]:
        """The status of these tickets, in the same order; `renew` gives each of them a new lease. One that does not
        exist is LOST."""
        ...

    async def release(self, tickets: Sequence[str]) -> None:
        """Give up these tickets, whether they wait or hold. Those that do not exist are ignored."""
        ...

    async def force_release(self, lock: str, ticket: str | None, *, by: str, reason: str) -> int:
        """Take a ticket (None: all that hold the lock) away from its owner, who gets a hint. Returns how many there
        were."""
        ...

    async def list_page(self, *, after: str = "", limit: int = 100, all: bool = False) -> list[LockInfo]:
        """Locks that have holders or waiters, by name, those after `after`; with `all` also idle ones.

        An idle lock is deleted after a day or so.
        """
        ...

    async def get(self, lock: str) -> LockInfo | None:
        """One lock with the first thousand of its waiters."""
        ...
