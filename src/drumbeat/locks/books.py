"""The keeper's books: every place of this process, what is due when, and what the store's answers mean.

No thread, no loop and no store of its own: tasks and threads write here what they want and have, the keeper's thread asks what
to do next and writes down what it was told. Every method may be called by any thread.
"""

import math
import threading
from collections.abc import Callable, Sequence

from drumbeat.clock import Clock
from drumbeat.errors import LockReentered
from drumbeat.locks.place import Place, Stage
from drumbeat.model.lock import Seen, TicketState

UNSURE_S = (0.0, 0.5, 2.0, 5.0)
"""When to leave a ticket of which nobody knows whether the store has it yet: its enter may still be under way over there."""
_ENTERED = frozenset({Stage.WAITING, Stage.HOLDING})
_OVER = "its lease ended before a renewal was answered"


class Books:
    def __init__(self, clock: Clock, renew: Callable[[], float]) -> None:
        """`renew`: the pause between two renewals."""
        self._clock = clock
        self._renew = renew
        self.begin_anew()

    def begin_anew(self) -> None:
        """At first, and in a forked child, which has none of its parent's places."""
        self.mutex = threading.RLock()
        self._places: dict[str, Place] = {}
        self._owners: set[tuple[str, object]] = set()
        self._leaving: list[tuple[float, str]] = []
        self._when_free: list[Callable[[], object]] = []
        self._renew_at = math.inf

    @property
    def nap(self) -> float:
        """The keeper's longest sleep: so short that a new place, which must be renewed some seconds later, need not wake it."""
        return self._renew() * 0.9

    @property
    def is_empty(self) -> bool:
        with self.mutex:
            return not self._places

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to tell the store either."""
        with self.mutex:
            return not self._places and not self._leaving

    # What tasks and threads write.

    def add(self, place: Place) -> None:
        """Keep this place, from before it enters.

        Raises:
            LockReentered: the same task or thread has one of this lock.
        """
        with self.mutex:
            if (place.lock, place.owner) in self._owners:
                raise LockReentered(place.lock)
            self._owners.add((place.lock, place.owner))
            self._places[place.id] = place

    def entered(self, place: Place, seen: Seen, asked_at: float) -> float:
        """The store has answered its enter. Gives when the keeper must be awake for it."""
        with self.mutex:
            if place.stage is Stage.ENTERING:
                place.trust(asked_at)
                self._renew_at = min(self._renew_at, asked_at + self._interval(place))
                if seen.state is TicketState.GRANTED:
                    place.take()
                else:
                    place.stage = Stage.WAITING
                    self._take_in(place, seen)
            return min(self._renew_at, place.look_at)

    def remove(self, place: Place) -> bool:
        """It leaves. False if it had been removed before."""
        with self.mutex:
            if self._places.pop(place.id, None) is None:
                return False
            place.stage = Stage.LEFT
            self._owners.discard((place.lock, place.owner))
            if not self._places:
                self._renew_at = math.inf
            calls: list[Callable[[], object]] = []
            if self._when_free and not self._is_any_held():
                calls, self._when_free = self._when_free, []
        for call in calls:
            call()
        return True

    def leave(self, place: Place, *, sure: bool) -> None:
        """The store must be told that this ticket has left."""
        now = self._clock.monotonic()
        with self.mutex:
            self._leaving += [(now + delay, place.id) for delay in (UNSURE_S[:1] if sure else UNSURE_S)]

    def when_free(self, call: Callable[[], object]) -> None:
        """Have this called when nothing is held, by whichever thread leaves last; now, if that is so."""
        with self.mutex:
            if self._is_any_held():
                self._when_free.append(call)
                return
        call()

    # What the keeper's thread asks and writes.

    def due(self, now: float) -> tuple[list[str], bool, float]:
        """The tickets to look at now, whether to renew them (then it is all of them), and when something is due next."""
        with self.mutex:
            entered = [place for place in self._places.values() if place.stage in _ENTERED]
            renew = now >= self._renew_at
            chosen = entered if renew else [place for place in entered if place.look_at <= now]
            for place in chosen:
                place.look_at = math.inf  # before the look: a call that comes meanwhile must not be lost
            next_at = min([self._renew_at, *(place.look_at for place in entered)]) if entered else math.inf
            return [place.id for place in chosen], renew, next_at

    def told(self, seen: Sequence[Seen], asked_at: float, *, renewed: bool) -> list[Place]:
        """What the store has answered. Gives those who must enter anew, because they have lost their place in line."""
        again: list[Place] = []
        with self.mutex:
            if renewed:
                shortest = min((self._interval(place) for place in self._places.values()), default=math.inf)
                self._renew_at = asked_at + shortest
            for each in seen:
                place = self._places.get(each.ticket)
                if place is None or place.stage not in _ENTERED:
                    continue
                if renewed and each.state is not TicketState.LOST:
                    place.trust(asked_at)
                if place.stage is Stage.WAITING and each.state is TicketState.LOST:
                    again.append(place)
                else:
                    self._take_in(place, each)
        return again

    def unanswered(self, tickets: Sequence[str]) -> None:
        """The store did not answer: they are due as before."""
        now = self._clock.monotonic()
        with self.mutex:
            for ticket in tickets:
                if (place := self._places.get(ticket)) is not None:
                    place.look_at = min(place.look_at, now)

    def called(self, ticket: str, after_us: int) -> float:
        """Somebody says that this ticket (if it is empty: every one) should be looked at. Gives when."""
        look_at = self._clock.monotonic() + after_us / 1_000_000
        with self.mutex:
            if ticket and ticket not in self._places:
                return math.inf
            for place in [self._places[ticket]] if ticket else list(self._places.values()):
                # A later moment counts as well: the window has closed again since we were told of an earlier one.
                place.look_at = look_at
        return look_at

    def expire(self, now: float) -> float:
        """Tell those whose lease is over by our own clock; gives when the next one would be."""
        with self.mutex:
            held = [place for place in self._places.values() if place.stage is Stage.HOLDING]
        for place in held:
            if place.trusted_until <= now:
                place.lost.set(_OVER)
        return min((place.trusted_until for place in held if place.trusted_until > now), default=math.inf)

    def to_leave(self, now: float) -> tuple[list[str], float]:
        """Tickets that have left, and when the next ones are to be told of."""
        with self.mutex:
            ids = list(dict.fromkeys(id for at, id in self._leaving if at <= now))
            return ids, min((at for at, _ in self._leaving), default=math.inf)

    def has_left(self, tickets: Sequence[str], asked_at: float) -> None:
        with self.mutex:
            self._leaving = [(at, id) for at, id in self._leaving if id not in tickets or at > asked_at]

    def abandoned(self) -> list[Place]:
        """Places of loops that were closed by hand: nobody will leave for them."""
        with self.mutex:
            return [place for place in self._places.values() if place.loop.is_closed()]

    def fail(self, error: Exception) -> None:
        """There is nobody any more who looks and renews: whoever waits or holds hears it."""
        with self.mutex:
            places = list(self._places.values())
        for place in places:
            place.fail(error)
            if place.stage is Stage.HOLDING:
                place.lost.set(f"it cannot be renewed: {error}")

    def _take_in(self, place: Place, seen: Seen) -> None:
        if place.stage is Stage.HOLDING:
            if seen.state is not TicketState.GRANTED:
                place.lost.set(seen.why or "its lease ended at the store")
        elif seen.state is TicketState.GRANTED:
            if place.is_trusted:
                place.give(seen)
            else:
                self._renew_at = self._clock.monotonic()
        elif seen.look_after is not None:
            place.look_at = min(place.look_at, self._clock.monotonic() + seen.look_after / 1_000_000)

    def _interval(self, place: Place) -> float:
        return min(self._renew(), place.lease / 3)

    def _is_any_held(self) -> bool:
        return any(place.stage is Stage.HOLDING for place in self._places.values())
