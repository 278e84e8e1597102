"""Whose turn it is in a lock: grants in the order of tickets, lanes, rate windows, leases. Pure.

`LockQueue` is the whole rule, as the model that tests/contract/test_locks.py plays random histories against on every engine.
SQLite decides with `count_free` and `free_lanes`; PostgreSQL and Redis decide inside the server (functions of the schema,
`lua/_locks.lua`). Times are microseconds.
"""

from collections.abc import Collection, Iterator
from itertools import count

from drumbeat.core.lock import NewTicket, TicketState


def count_free(limit: int, holding: int, granted_in_window: int = 0) -> int:
    """How many tickets may be granted now. `granted_in_window`: grants in the last `per`, of a lock that has a rate window."""
    return max(0, limit - max(holding, granted_in_window))


def free_lanes(taken: Collection[int]) -> Iterator[int]:
    """The lanes of the next grants, the smallest first."""
    return (lane for lane in count() if lane not in taken)


class LockQueue:
    """A lock: its tickets in the order of their numbers, some of which hold it.

    Each call first drops the tickets whose lease has ended, and last grants whatever is free to the first in line.
    """

    def __init__(self) -> None:
        self.limit = 1
        self.per: int | None = None
        self.leases: dict[str, int] = {}
        """When the lease of each ticket ends, in the order of numbers."""
        self.lanes: dict[str, int] = {}
        """The lane of each ticket that holds the lock."""
        self._lengths: dict[str, int] = {}
        self._granted_at: list[int] = []

    @property
    def waiting(self) -> list[str]:
        return [ticket for ticket in self.leases if ticket not in self.lanes]

    def acquire(self, ticket: NewTicket, now: int) -> None:
        """Append a ticket. The newest limit and window apply; no holder loses the lock by them."""
        self._expire(now)
        self.limit, self.per = ticket.limit, ticket.per
        self._lengths[ticket.id] = ticket.lease
        self.leases[ticket.id] = now + ticket.lease
        self._grant(now)

    def renew(self, tickets: Collection[str], now: int) -> None:
        """Extend the leases of these tickets; none: only expire and grant."""
        self._expire(now)
        self.leases |= {id: now + self._lengths[id] for id in self.leases if id in tickets}
        self._grant(now)

    def release(self, tickets: Collection[str], now: int) -> None:
        self._expire(now)
        for ticket in tickets:
            self._remove(ticket)
        self._grant(now)

    def force_release(self, now: int) -> int:
        """Take the lock from all that hold it; return how many these were."""
        self._expire(now)
        held = list(self.lanes)
        self.release(held, now)
        return len(held)

    def status(self, ticket: str) -> tuple[TicketState, int, int]:
        """State, position (1 is next) and lane."""
        if ticket in self.lanes:
            return TicketState.GRANTED, 0, self.lanes[ticket]
        if ticket in self.leases:
            return TicketState.WAITING, self.waiting.index(ticket) + 1, 0
        return TicketState.LOST, 0, 0

    def _expire(self, now: int) -> None:
        for ticket in [id for id, ends_at in self.leases.items() if ends_at <= now]:
            self._remove(ticket)

    def _remove(self, ticket: str) -> None:
        self.leases.pop(ticket, None)
        self.lanes.pop(ticket, None)
        self._lengths.pop(ticket, None)

    def _grant(self, now: int) -> None:
        if self.per is not None:
            self._granted_at = [at for at in self._granted_at if at > now - (self.per or 0)]
        in_window = len(self._granted_at) if self.per is not None else 0
        lanes = free_lanes(set(self.lanes.values()))
        for ticket in self.waiting[: count_free(self.limit, len(self.lanes), in_window)]:
            self.lanes[ticket] = next(lanes)
            if self.per is not None:
                self._granted_at.append(now)
