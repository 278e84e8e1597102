"""Whose turn it is among queues: by weight over time, or strictly. Pure; knows nothing of jobs or stores.

Each queue has a clock that advances by 1/weight for each job it gave, whether of its share or of what others left over; the
next job belongs to the queue whose clock is behind (start-time fair queueing). So 6:3:1 holds over time between any two queues
that have jobs, also when jobs are claimed one by one, and whatever other queues are empty.

A queue that gave less than it was asked for is empty: its clock is brought forward to that of the others, so nothing is saved
up while idle. It is still asked first for its share, in case it has jobs again; the others divide the whole claim among
themselves, so that nothing is left over which would fall to whoever is asked first. Hence shares may exceed the limit: a store
takes them in their order, and stops at the limit.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from math import lcm


class QueueWeights:
    def __init__(
        self, weights: Mapping[str, int], *, strict: bool = False, rests: Mapping[str, Callable[[], bool]] | None = None
    ) -> None:
        """`rests`: for queues that may have to be left alone for a while, whether this is such a while."""
        self._weights = dict(sorted(weights.items(), key=lambda item: (-item[1], item[0])))
        self._is_simple = strict or len(weights) == 1
        self._is_resting = dict(rests or {})
        # Whole numbers, so that no rounding adds up: what one job of a queue costs.
        scale = lcm(*self._weights.values())
        self._costs = {queue: scale // weight for queue, weight in self._weights.items()}
        self._clocks = dict.fromkeys(self._weights, 0)
        self._empty: set[str] = set()
        # How a claim of each size is divided while all clocks are alike: what idle workers ask for, again and again.
        self._even_shares: dict[int, tuple[tuple[str, int], ...]] = {}
        self._is_even = True

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(self._weights)

    def divide(self, limit: int) -> tuple[tuple[str, int], ...]:
        """(queue, share) in the order of their turn; the shares of queues that have jobs add up to limit, unless strict,
        where each is limit. `took` must follow.

        Nothing, if all of them rest.
        """
        queues = self._active_queues() if self._is_resting else tuple(self._weights)
        if self._is_simple or not queues:
            return tuple((queue, limit) for queue in queues)
        if self._is_even and not self._is_resting:
            divided = self._even_shares.get(limit) or self._even_shares.setdefault(limit, self._divide_evenly(limit))
            self._is_even = False
            for queue, share in divided:
                self._clocks[queue] += share * self._costs[queue]
            return divided
        first = self._advance_empty(queues)
        empty = self._empty.intersection(queues)
        shares = self._share(queues, limit)
        if 0 < len(empty) < len(queues):
            # It is the turn of each of the empty ones, should it have jobs.
            shares |= {queue: max(1, shares[queue]) for queue in empty if self._clocks[queue] == first}
            shares |= self._share(tuple(queue for queue in queues if queue not in empty), limit)
        order = sorted(queues, key=lambda queue: (not shares[queue], queue not in empty, self._clocks[queue]))
        for queue in queues:
            self._clocks[queue] += shares[queue] * self._costs[queue]
        return tuple((queue, shares[queue]) for queue in order)

    def record_claim(self, shares: Sequence[tuple[str, int]], counts: Mapping[str, int], limit: int) -> None:
        """What a claim of so many jobs, divided like this, has given; a limit of 0: it was not answered."""
        if self._is_simple:
            return
        if sum(counts.values()) < limit:  # all that were asked are empty: begin anew
            self._is_even = len(shares) == len(self._weights)
            self._empty.update(queue for queue, _ in shares)
            start = max(self._clocks.values()) if not self._is_even else 0
            self._clocks.update((queue, start) for queue, _ in shares)
            return
        left = limit
        found_empty = False
        asked = []
        for queue, share in shares:
            asked.append(min(share, left))
            left -= min(asked[-1], counts.get(queue, 0))
        for (queue, share), wanted in zip(reversed(shares), reversed(asked), strict=True):
            count = counts.get(queue, 0)
            self._clocks[queue] += (count - share) * self._costs[queue]
            if found_empty or count < wanted:
                self._empty.add(queue)
            elif count:
                self._empty.discard(queue)
            # More than was asked for is what others left over, and those before it in line were offered that first.
            found_empty = found_empty or count > wanted
        self._advance_empty(tuple(queue for queue, _ in shares))

    def _divide_evenly(self, limit: int) -> tuple[tuple[str, int], ...]:
        shares = self._share(self.queues, limit)
        return tuple(sorted(shares.items(), key=lambda item: not item[1]))

    def _active_queues(self) -> tuple[str, ...]:
        asleep = {queue for queue, rests in self._is_resting.items() if rests()}
        self._empty |= asleep
        return tuple(queue for queue in self._weights if queue not in asleep)

    def _advance_empty(self, queues: tuple[str, ...]) -> int:
        """No empty queue is behind one that has jobs. Gives the clock of the one whose turn it is."""
        filled = [self._clocks[queue] for queue in queues if queue not in self._empty]
        first = min(filled) if filled else max(self._clocks[queue] for queue in queues)
        for queue in self._empty.intersection(queues):
            self._clocks[queue] = max(self._clocks[queue], first)
        return first

    def _share(self, queues: tuple[str, ...], limit: int) -> dict[str, int]:
        """Each of `limit` jobs to the queue whose clock is behind; of several the first."""
        clocks, costs = self._clocks, self._costs
        shares = dict.fromkeys(queues, 0)
        if limit > 4 * len(queues):
            shares = self._bulk_shares(queues, limit)
        # The rest one by one.
        line = [(clocks[queue] + shares[queue] * costs[queue], place, queue) for place, queue in enumerate(queues)]
        heapq.heapify(line)
        for _ in range(limit - sum(shares.values())):
            clock, place, queue = line[0]
            shares[queue] += 1
            heapq.heapreplace(line, (clock + costs[queue], place, queue))
        return shares

    def _bulk_shares(self, queues: tuple[str, ...], limit: int) -> dict[str, int]:
        """What would be even if jobs could be divided, less one job of each: so many at once."""
        clocks, costs = self._clocks, self._costs
        jobs, speed, moment = float(max(0, limit - len(queues))), 0.0, 0.0
        for queue in sorted(queues, key=clocks.__getitem__):
            if (clocks[queue] - moment) * speed >= jobs:
                break
            jobs -= (clocks[queue] - moment) * speed
            moment = clocks[queue]
            speed += 1 / costs[queue]
        moment += jobs / speed if speed else 0
        return {queue: max(0, int((moment - clocks[queue]) // costs[queue])) for queue in queues}
