"""L2, L4 to L8, R2: what a store did with the tickets of a lock.

A call has its effect between its start and its end, so two calls are in a known order only when one ended before the other
began, and a lease lasts at least from the start of the call that gave it, at most from its end. No fault excuses anything here,
except that after a power cut the store need not know what it answered before (locks wait for no disk), and that who is granted
cannot ask for it while its process is disturbed.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.proof.excuses import has_fault, lives_through, power_cuts
from tests.proof.history import History, TicketCall
from tests.proof.registry import promise

MAX_WAKE_SECONDS = 0.05
MAX_UNUSED_RATE = 0.1
TICK = 0.000_01
"""Stores count in microseconds."""
LEASED = ("acquire", "renew")


class QueuePlace:
    """A place in the queue of a lock: a ticket under one number, between two power cuts."""

    def __init__(self, calls: list[TicketCall], others: Sequence[TicketCall]) -> None:
        """`calls`: those that were answered with the number. `others`: of the same ticket, without a number."""
        first = calls[0]
        self.lock, self.ticket, self.token, self.node = first.lock, first.ticket, first.token, first.node
        self.lease, self.limit, self.per = first.lease, first.limit, first.per
        self.calls = calls
        self.joined_at = _end(first)
        unanswered = [call for call in others if call.end is None and call.call in LEASED]
        self.is_uncertain = bool(unanswered)
        """A call that may have renewed it, or brought it back, was not answered."""
        self.began_at = min([first.start, *(call.start for call in unanswered if call.start < first.start)])
        releases = [
            call for call in others if call.call == "release" and (call.end is None or call.end >= self.began_at)
        ]
        self.is_repetition = any(call.call == "release" and call.start < first.start for call in others)
        """The network repeated its request when it had been released: nobody waits for it, and its lease ends it."""
        self.release_began_at = min((call.start for call in releases), default=math.inf)
        self.released_at = min((call.end for call in releases if call.end is not None), default=math.inf)
        self.heard_until = max(call.start + (self.lease if call.call in LEASED else 0.0) for call in calls)
        """What its calls say about it is about the time until then."""
        granted = [_end(call) for call in calls if call.state == "granted"]
        self.granted_at = min(granted, default=math.inf)

    def is_surely_alive(self, at: float) -> bool:
        """Whether its lease had not ended, by calls that had ended, and no release had begun."""
        return self.release_began_at > at and any(
            call.call in LEASED and _end(call) <= at < call.start + self.lease - TICK for call in self.calls
        )

    def latest_expiry(self, before: float = math.inf) -> float:
        """When its lease ended at the latest, by the calls that began before this time."""
        leases = [call for call in self.calls if call.call in LEASED and call.start < before]
        if self.is_uncertain or any(_end(call) > before for call in leases):
            return math.inf
        return max((_end(call) + self.lease for call in leases), default=math.inf)

    @property
    def gone_at(self) -> float:
        """When it was certainly out of the queue."""
        return math.inf if self.is_uncertain else min(self.released_at, self.latest_expiry())


def _end(call: TicketCall) -> float:
    return math.inf if call.end is None else call.end


def find_places(history: History) -> dict[tuple[str, int], list[QueuePlace]]:
    """The places of each lock, between two power cuts, by the time at which they were taken."""
    cuts = power_cuts(history)
    numbered: dict[tuple[str, int, int], list[TicketCall]] = defaultdict(list)
    others: dict[tuple[str, int], list[TicketCall]] = defaultdict(list)
    for call in history.ticket_calls:
        age = sum(cut <= call.start for cut in cuts)
        if call.end is not None and call.state in ("waiting", "granted"):
            numbered[call.ticket, call.token, age].append(call)
        else:
            others[call.ticket, age].append(call)
    places: dict[tuple[str, int], list[QueuePlace]] = defaultdict(list)
    for (ticket, _, age), calls in numbered.items():
        place = QueuePlace(calls, others[ticket, age])
        places[place.lock, age].append(place)
    for each in places.values():
        each.sort(key=lambda place: place.joined_at)
    return places


def _grants(places: Sequence[QueuePlace]) -> Iterator[tuple[QueuePlace, list[QueuePlace]]]:
    """The granted places by the time of their grant, each with those that were there before it and of which something was
    heard later. Looking at all others for each would take minutes for an hour of locks."""
    granted = sorted((place for place in places if place.granted_at < math.inf), key=lambda place: place.granted_at)
    others: list[QueuePlace] = []
    seen = 0
    for place in granted:
        while seen < len(places) and places[seen].joined_at < place.granted_at:
            others.append(places[seen])
            seen += 1
        others = [other for other in others if other.heard_until > place.granted_at]
        yield place, others


@promise
def holders_are_limited(history: History) -> Iterator[str]:
    """L2, at the store: never more unexpired holders than the limit."""
    for (lock, _), places in find_places(history).items():
        for new, others in _grants(places):
            holding = [
                old.token for old in others if old.granted_at < new.granted_at and old.is_surely_alive(new.granted_at)
            ]
            if len(holding) >= new.limit:
                yield f"L2: {lock} was granted to {new.token} at {new.granted_at:.3f}, and {holding} held it"


@promise
def turns_are_in_order(history: History) -> Iterator[str]:
    """L4: who waits and lives is granted before those that came later."""
    for (lock, _), places in find_places(history).items():
        for late, others in _grants(places):
            at = late.granted_at
            for early in others:
                if early.joined_at >= late.began_at:
                    break
                waits = any(call.state == "waiting" and call.start > at for call in early.calls)
                lives = late.limit == 1 and early.granted_at == math.inf and early.is_surely_alive(at)
                if waits or lives:
                    yield f"L4: {lock} was granted to {late.token} at {at:.3f}, and {early.token} waited before it"


@promise
def free_locks_are_granted(history: History) -> Iterator[str]:
    """L5: a free lock with a live waiter is granted. L6: a dead holder or waiter costs at most its lease.
    R2: a rate is used, but for a tenth of its window."""
    cuts = power_cuts(history)
    for (lock, age), places in find_places(history).items():
        for waiter in places:
            if not lives_through(history, waiter.node, waiter.joined_at, waiter.joined_at):
                continue  # nothing is known of its process
            ahead = [place for place in places if place is not waiter and place.began_at <= waiter.joined_at]
            free_at = _find_free(waiter, ahead)
            if age:  # tickets and grants from before the cut may count
                free_at = max(free_at, cuts[age - 1] + waiter.lease + (waiter.per or 0.0))
            by = free_at + (MAX_WAKE_SECONDS if waiter.per is None else waiter.per * MAX_UNUSED_RATE)
            if by >= history.ended_at or waiter.granted_at <= by or not _can_be_granted(history, waiter, free_at, by):
                continue
            last = max(ahead, key=lambda place: place.gone_at, default=None)
            is_expired = last is not None and last.released_at > last.gone_at
            if last is not None and not is_expired and has_fault(history, last.node, last.gone_at - 0.001, by):
                continue  # its release may have told nobody
            name = "L6" if is_expired else "L5"
            name = name if waiter.per is None else "R2"
            yield f"{name}: {lock} was free at {free_at:.3f}, and {waiter.token} on {waiter.node} was not granted"


def _find_free(waiter: QueuePlace, ahead: Sequence[QueuePlace]) -> float:
    """When it was certainly its turn, with a free lane and room in the rate window."""
    grants = sorted((min(place.granted_at, place.gone_at) for place in ahead), reverse=True)
    ends = sorted((place.gone_at for place in ahead), reverse=True)
    times = [waiter.joined_at, *grants[:1]]
    if len(ahead) >= waiter.limit:
        times.append(ends[waiter.limit - 1])
        if waiter.per is not None:
            times.append(grants[waiter.limit - 1] + waiter.per)
    return max(times)


def _can_be_granted(history: History, waiter: QueuePlace, start: float, end: float) -> bool:
    return (
        not waiter.is_repetition
        and waiter.is_surely_alive(end)
        and lives_through(history, waiter.node, waiter.joined_at, end)
        and not has_fault(history, waiter.node, start - waiter.lease, end)
    )


@promise
def only_owners_release(history: History) -> Iterator[str]:
    """L7: a ticket is gone only when its own process has released it, or its lease has ended."""
    owners = {call.ticket: call.node for call in history.ticket_calls if call.call == "acquire"}
    for call in history.ticket_calls:
        if call.call == "release" and owners.get(call.ticket, call.node) != call.node:
            yield f"L7: {call.node} released a ticket of {owners[call.ticket]}"
    lost: dict[str, list[TicketCall]] = defaultdict(list)
    for call in history.ticket_calls:
        if call.end is not None and call.state == "lost":
            lost[call.ticket].append(call)
    for (lock, age), places in find_places(history).items():
        for place in places:
            for call in lost[place.ticket]:
                is_same_age = sum(cut <= call.start for cut in power_cuts(history)) == age
                if is_same_age and place.joined_at < call.start and place.is_surely_alive(_end(call)):
                    yield f"L7: {lock} was taken from {place.token} at {call.start:.3f}, and nobody had released it"


@promise
def expired_waiters_are_not_granted(history: History) -> Iterator[str]:
    """L8: a ticket whose own lease has ended is not granted, and no longer held."""
    for (lock, _), places in find_places(history).items():
        for place in places:
            for call in place.calls:
                if call.state == "granted" and (ended := place.latest_expiry(call.start)) < call.start - TICK:
                    yield f"L8: {lock} was granted to {place.token} at {call.start:.3f}, whose lease ended at {ended:.3f}"
