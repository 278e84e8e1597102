"""All lock tickets of this process: which are due when, and what the store's answers change.

It has no thread, loop or store: tasks and threads add and remove tickets, the renewer asks what to do next and applies the
answers. Every method may be called in any thread.
"""

import math
import threading
from collections.abc import Callable, Sequence

from drumbeat.clock import Clock
from drumbeat.core.lock import TicketState, TicketStatus
from drumbeat.errors import LockReentered
from drumbeat.locks.ticket import LEASE_EXPIRED, Ticket, TicketStage

UNCONFIRMED_RELEASE_DELAYS_S = (0.0, 0.5, 2.0, 5.0)
"""When to release a ticket whose acquire was not answered: the acquire may still reach the store later."""
_REGISTERED = frozenset({TicketStage.WAITING, TicketStage.HELD})


class TicketTable:
    def __init__(self, clock: Clock, renew_interval: Callable[[], float]) -> None:
        """`renew_interval`: seconds between two renewals."""
        self._clock = clock
        self._renew_interval = renew_interval
        self.reset()

    def reset(self) -> None:
        """Empty the table: at first, and in a forked child, which has none of its parent's tickets."""
        self.mutex = threading.RLock()
        self._tickets: dict[str, Ticket] = {}
        self._owners: set[tuple[str, object]] = set()
        self._pending_releases: list[tuple[float, str]] = []
        self._free_callbacks: list[Callable[[], object]] = []
        self._renew_at = math.inf

    @property
    def max_sleep(self) -> float:
        """The renewer's longest sleep: short enough that a new ticket, first renewed seconds later, need not wake it."""
        return self._renew_interval() * 0.9

    @property
    def is_empty(self) -> bool:
        with self.mutex:
            return not self._tickets

    @property
    def is_drained(self) -> bool:
        """Whether no releases are pending either."""
        with self.mutex:
            return not self._tickets and not self._pending_releases

    # For tasks and threads.

    def add(self, ticket: Ticket) -> None:
        """Add a ticket, before the store is asked.

        Raises:
            LockReentered: the same task or thread has a ticket of this lock.
        """
        with self.mutex:
            if (ticket.lock, ticket.owner) in self._owners:
                raise LockReentered(ticket.lock)
            self._owners.add((ticket.lock, ticket.owner))
            self._tickets[ticket.id] = ticket

    def record_acquire(self, ticket: Ticket, status: TicketStatus, asked_at: float) -> float:
        """Apply the answer to its acquire. Returns when the renewer must be awake for it."""
        with self.mutex:
            if ticket.stage is TicketStage.ACQUIRING:
                ticket.extend_trust(asked_at)
                self._renew_at = min(self._renew_at, asked_at + self._renew_interval_of(ticket))
                if status.state is TicketState.GRANTED and ticket.is_trusted:
                    ticket.mark_held()
                else:  # a grant whose answer took longer than its lease is waited for again
                    ticket.stage = TicketStage.WAITING
                    self._apply_status(ticket, status)
            return min(self._renew_at, ticket.check_at)

    def has(self, ticket: Ticket) -> bool:
        """False: somebody has removed it."""
        with self.mutex:
            return ticket.id in self._tickets

    def remove(self, ticket: Ticket) -> bool:
        """False if it had been removed before."""
        with self.mutex:
            if self._tickets.pop(ticket.id, None) is None:
                return False
            ticket.stage = TicketStage.RELEASED
            self._owners.discard((ticket.lock, ticket.owner))
            if not self._tickets:
                self._renew_at = math.inf
            calls: list[Callable[[], object]] = []
            if self._free_callbacks and not self._has_held():
                calls, self._free_callbacks = self._free_callbacks, []
        for call in calls:
            call()
        return True

    def queue_release(self, ticket: Ticket, *, confirmed: bool) -> None:
        """Have the renewer release this ticket in the store. `confirmed`: the store is known to have it."""
        now = self._clock.monotonic()
        with self.mutex:
            self._pending_releases += [
                (now + delay, ticket.id)
                for delay in (UNCONFIRMED_RELEASE_DELAYS_S[:1] if confirmed else UNCONFIRMED_RELEASE_DELAYS_S)
            ]

    def call_when_free(self, callback: Callable[[], object]) -> None:
        """Call this when no lock is held, in the thread that releases the last one; at once, if none is."""
        with self.mutex:
            if self._has_held():
                self._free_callbacks.append(callback)
                return
        callback()

    # For the renewer.

    def due_tickets(self, now: float) -> tuple[list[str], bool, float]:
        """The tickets to ask for now, whether to renew them (then it is all), and when the next one is due."""
        with self.mutex:
            registered = [ticket for ticket in self._tickets.values() if ticket.stage in _REGISTERED]
            renew = now >= self._renew_at
            due = registered if renew else [ticket for ticket in registered if ticket.check_at <= now]
            for ticket in due:
                ticket.check_at = math.inf  # before asking: a notification meanwhile must not be lost
            next_at = min([self._renew_at, *(ticket.check_at for ticket in registered)]) if registered else math.inf
            return [ticket.id for ticket in due], renew, next_at

    def apply_statuses(self, statuses: Sequence[TicketStatus], asked_at: float, *, renewed: bool) -> list[Ticket]:
        """Apply the store's answers. Returns the waiting tickets that the store has lost: they must acquire again."""
        lost: list[Ticket] = []
        with self.mutex:
            if renewed:
                shortest = min((self._renew_interval_of(ticket) for ticket in self._tickets.values()), default=math.inf)
                self._renew_at = asked_at + shortest
            for status in statuses:
                ticket = self._tickets.get(status.ticket)
                if ticket is None or ticket.stage not in _REGISTERED:
                    continue
                if renewed and status.state is not TicketState.LOST:
                    ticket.extend_trust(asked_at)
                if ticket.stage is TicketStage.WAITING and status.state is TicketState.LOST:
                    lost.append(ticket)
                else:
                    self._apply_status(ticket, status)
        return lost

    def reschedule(self, ticket_ids: Sequence[str]) -> None:
        """The store did not answer: they stay due."""
        now = self._clock.monotonic()
        with self.mutex:
            for id in ticket_ids:
                if (ticket := self._tickets.get(id)) is not None:
                    ticket.check_at = min(ticket.check_at, now)

    def mark_notified(self, ticket_id: str, after_us: int) -> float:
        """A notification: ask for this ticket (empty id: for all) after this delay. Returns when."""
        check_at = self._clock.monotonic() + after_us / 1_000_000
        with self.mutex:
            if ticket_id and ticket_id not in self._tickets:
                return math.inf
            for ticket in [self._tickets[ticket_id]] if ticket_id else list(self._tickets.values()):
                # A later time counts as well: the window has closed again since an earlier notification.
                ticket.check_at = check_at
        return check_at

    def expire_leases(self, now: float) -> float:
        """Mark as lost the tickets whose lease is over by the local clock; returns when the next one would expire."""
        with self.mutex:
            held = [ticket for ticket in self._tickets.values() if ticket.stage is TicketStage.HELD]
        for ticket in held:
            if ticket.trusted_until <= now:
                ticket.lost.set(LEASE_EXPIRED)
        return min((ticket.trusted_until for ticket in held if ticket.trusted_until > now), default=math.inf)

    def due_releases(self, now: float) -> tuple[list[str], float]:
        """The tickets to release in the store now, and when the next release is due."""
        with self.mutex:
            ids = list(dict.fromkeys(id for at, id in self._pending_releases if at <= now))
            return ids, min((at for at, _ in self._pending_releases), default=math.inf)

    def confirm_released(self, ticket_ids: Sequence[str], asked_at: float) -> None:
        with self.mutex:
            self._pending_releases = [
                (at, id) for at, id in self._pending_releases if id not in ticket_ids or at > asked_at
            ]

    def find_abandoned(self) -> list[Ticket]:
        """Tickets of closed loops: no task will release them."""
        with self.mutex:
            return [ticket for ticket in self._tickets.values() if ticket.loop.is_closed()]

    def fail_all(self, error: Exception) -> None:
        """Renewals have stopped: fail all waits, and mark all held locks as lost."""
        with self.mutex:
            tickets = list(self._tickets.values())
        for ticket in tickets:
            ticket.fail(error)
            if ticket.stage is TicketStage.HELD:
                ticket.lost.set(f"it cannot be renewed: {error}")

    def _apply_status(self, ticket: Ticket, status: TicketStatus) -> None:
        if ticket.stage is TicketStage.HELD:
            if status.state is not TicketState.GRANTED:
                ticket.lost.set(status.reason or "its lease ended at the store")
        elif status.state is TicketState.GRANTED:
            if ticket.is_trusted:
                ticket.grant(status)
            else:
                self._renew_at = self._clock.monotonic()
        elif status.recheck_after_us is not None:
            ticket.check_at = min(ticket.check_at, self._clock.monotonic() + status.recheck_after_us / 1_000_000)

    def _renew_interval_of(self, ticket: Ticket) -> float:
        return min(self._renew_interval(), ticket.lease / 3)

    def _has_held(self) -> bool:
        return any(ticket.stage is TicketStage.HELD for ticket in self._tickets.values())
