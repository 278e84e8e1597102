"""The keeper's books: every place of this process, what is due when, and what the store's answers mean.

No thread, no loop and no store of its own: tasks and threads write here what they want and have, the keeper's thread asks what
to do next and writes down what it was told. Every method may be called by any thread.
"""

import math
import threading
from collections.abc import Callable, Sequence

from drumbeat.clock import Clock
from drumbeat.core.lock import TicketState, TicketStatus
from drumbeat.errors import LockReentered
from drumbeat.locks.ticket import Ticket, TicketStage

UNCONFIRMED_RELEASE_DELAYS_S = (0.0, 0.5, 2.0, 5.0)
"""When to leave a ticket of which nobody knows whether the store has it yet: its enter may still be under way over there."""
_REGISTERED = frozenset({TicketStage.WAITING, TicketStage.HELD})
_LEASE_EXPIRED = "its lease ended before a renewal was answered"


class TicketTable:
    def __init__(self, clock: Clock, renew_interval: Callable[[], float]) -> None:
        """`renew`: the pause between two renewals."""
        self._clock = clock
        self._renew_interval = renew_interval
        self.reset()

    def reset(self) -> None:
        """At first, and in a forked child, which has none of its parent's places."""
        self.mutex = threading.RLock()
        self._tickets: dict[str, Ticket] = {}
        self._owners: set[tuple[str, object]] = set()
        self._pending_releases: list[tuple[float, str]] = []
        self._free_callbacks: list[Callable[[], object]] = []
        self._renew_at = math.inf

    @property
    def max_sleep(self) -> float:
        """The keeper's longest sleep: so short that a new place, which must be renewed some seconds later, need not wake it."""
        return self._renew_interval() * 0.9

    @property
    def is_empty(self) -> bool:
        with self.mutex:
            return not self._tickets

    @property
    def is_drained(self) -> bool:
        """Whether there is nothing more to tell the store either."""
        with self.mutex:
            return not self._tickets and not self._pending_releases

    # What tasks and threads write.

    def add(self, ticket: Ticket) -> None:
        """Keep this place, from before it enters.

        Raises:
            LockReentered: the same task or thread has one of this lock.
        """
        with self.mutex:
            if (ticket.lock, ticket.owner) in self._owners:
                raise LockReentered(ticket.lock)
            self._owners.add((ticket.lock, ticket.owner))
            self._tickets[ticket.id] = ticket

    def record_acquire(self, ticket: Ticket, status: TicketStatus, asked_at: float) -> float:
        """The store has answered its enter. Gives when the keeper must be awake for it."""
        with self.mutex:
            if ticket.stage is TicketStage.ACQUIRING:
                ticket.extend_trust(asked_at)
                self._renew_at = min(self._renew_at, asked_at + self._renew_interval_of(ticket))
                if status.state is TicketState.GRANTED:
                    ticket.mark_held()
                else:
                    ticket.stage = TicketStage.WAITING
                    self._apply_status(ticket, status)
            return min(self._renew_at, ticket.check_at)

    def remove(self, ticket: Ticket) -> bool:
        """It leaves. False if it had been removed before."""
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
        """The store must be told that this ticket has left."""
        now = self._clock.monotonic()
        with self.mutex:
            self._pending_releases += [
                (now + delay, ticket.id)
                for delay in (UNCONFIRMED_RELEASE_DELAYS_S[:1] if confirmed else UNCONFIRMED_RELEASE_DELAYS_S)
            ]

    def call_when_free(self, callback: Callable[[], object]) -> None:
        """Have this called when nothing is held, by whichever thread leaves last; now, if that is so."""
        with self.mutex:
            if self._has_held():
                self._free_callbacks.append(callback)
                return
        callback()

    # What the keeper's thread asks and writes.

    def due_tickets(self, now: float) -> tuple[list[str], bool, float]:
        """The tickets to look at now, whether to renew them (then it is all of them), and when something is due next."""
        with self.mutex:
            entered = [place for place in self._tickets.values() if place.stage in _REGISTERED]
            renew = now >= self._renew_at
            chosen = entered if renew else [place for place in entered if place.check_at <= now]
            for place in chosen:
                place.check_at = math.inf  # before the look: a call that comes meanwhile must not be lost
            next_at = min([self._renew_at, *(place.check_at for place in entered)]) if entered else math.inf
            return [place.id for place in chosen], renew, next_at

    def apply_statuses(self, statuses: Sequence[TicketStatus], asked_at: float, *, renewed: bool) -> list[Ticket]:
        """What the store has answered. Gives those who must enter anew, because they have lost their place in line."""
        again: list[Ticket] = []
        with self.mutex:
            if renewed:
                shortest = min((self._renew_interval_of(place) for place in self._tickets.values()), default=math.inf)
                self._renew_at = asked_at + shortest
            for each in statuses:
                place = self._tickets.get(each.ticket)
                if place is None or place.stage not in _REGISTERED:
                    continue
                if renewed and each.state is not TicketState.LOST:
                    place.extend_trust(asked_at)
                if place.stage is TicketStage.WAITING and each.state is TicketState.LOST:
                    again.append(place)
                else:
                    self._apply_status(place, each)
        return again

    def reschedule(self, ticket_ids: Sequence[str]) -> None:
        """The store did not answer: they are due as before."""
        now = self._clock.monotonic()
        with self.mutex:
            for ticket in ticket_ids:
                if (place := self._tickets.get(ticket)) is not None:
                    place.check_at = min(place.check_at, now)

    def mark_notified(self, ticket_id: str, after_us: int) -> float:
        """Somebody says that this ticket (if it is empty: every one) should be looked at. Gives when."""
        look_at = self._clock.monotonic() + after_us / 1_000_000
        with self.mutex:
            if ticket_id and ticket_id not in self._tickets:
                return math.inf
            for place in [self._tickets[ticket_id]] if ticket_id else list(self._tickets.values()):
                # A later moment counts as well: the window has closed again since we were told of an earlier one.
                place.check_at = look_at
        return look_at

    def expire_leases(self, now: float) -> float:
        """Tell those whose lease is over by our own clock; gives when the next one would be."""
        with self.mutex:
            held = [place for place in self._tickets.values() if place.stage is TicketStage.HELD]
        for place in held:
            if place.trusted_until <= now:
                place.lost.set(_LEASE_EXPIRED)
        return min((place.trusted_until for place in held if place.trusted_until > now), default=math.inf)

    def due_releases(self, now: float) -> tuple[list[str], float]:
        """Tickets that have left, and when the next ones are to be told of."""
        with self.mutex:
            ids = list(dict.fromkeys(id for at, id in self._pending_releases if at <= now))
            return ids, min((at for at, _ in self._pending_releases), default=math.inf)

    def confirm_released(self, ticket_ids: Sequence[str], asked_at: float) -> None:
        with self.mutex:
            self._pending_releases = [
                (at, id) for at, id in self._pending_releases if id not in ticket_ids or at > asked_at
            ]

    def find_abandoned(self) -> list[Ticket]:
        """Places of loops that were closed by hand: nobody will leave for them."""
        with self.mutex:
            return [place for place in self._tickets.values() if place.loop.is_closed()]

    def fail_all(self, error: Exception) -> None:
        """There is nobody any more who looks and renews: whoever waits or holds hears it."""
        with self.mutex:
            places = list(self._tickets.values())
        for place in places:
            place.fail(error)
            if place.stage is TicketStage.HELD:
                place.lost.set(f"it cannot be renewed: {error}")

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
        return any(place.stage is TicketStage.HELD for place in self._tickets.values())
