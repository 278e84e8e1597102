"""Divide a claim among queues: by weight over time, or strictly by priority. Pure.

Each queue has a virtual clock that advances by 1/weight for each job it gave; the next job belongs to the queue whose clock
is lowest (start-time fair queueing). So 6:3:1 holds over time between any two queues that have jobs, also when jobs are
claimed one by one, and whichever other queues are empty.

A queue that gave less than its share is empty: its clock is advanced to that of the others, so that an idle queue saves up
nothing. It still comes first with its share, in case it has jobs again; the others divide the whole claim among themselves, so
that nothing is left over, which would go to the first in order. Hence shares may add up to more than the limit: a store takes
them in order, and stops at the limit.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from math import lcm


class QueueWeights:
    def __init__(
        self, weights: Mapping[str, int], *, strict: bool = False, rests: Mapping[str, Callable[[], bool]] | None = None
    ) -> None:
        """`rests`: for queues that may be paused for a while, whether they are paused now."""
        self._weights = dict(sorted(weights.items(), key=lambda item: (-item[1], item[0])))
        self._is_simple = strict or len(weights) == 1
        self._is_resting = dict(rests or {})
        # The cost of one job of each queue. Integers, so that no rounding errors add up.
        scale = lcm(*self._weights.values())
        self._costs = {queue: scale // weight for queue, weight in self._weights.items()}
        self._clocks = dict.fromkeys(self._weights, 0)
        self._empty: set[str] = set()
        # The division of a claim of each size while all clocks are equal, which idle workers need again and again.
        self._even_shares: dict[int, tuple[tuple[str, int], ...]] = {}
        self._is_even = True

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(self._weights)

    def divide(self, limit: int) -> tuple[tuple[str, int], ...]:
        """(queue, share) in order. The shares of queues that have jobs add up to `limit`; if strict, each is `limit`. Empty if
        all queues rest. `record_claim` must follow.
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
            # Each of the empty ones would be next, should it have jobs.
            shares |= {queue: max(1, shares[queue]) for queue in empty if self._clocks[queue] == first}
            shares |= self._share(tuple(queue for queue in queues if queue not in empty), limit)
        order = sorted(queues, key=lambda queue: (not shares[queue], queue not in empty, self._clocks[queue]))
        for queue in queues:
            self._clocks[queue] += shares[queue] * self._costs[queue]
        return tuple((queue, shares[queue]) for queue in order)

    def record_claim(self, shares: Sequence[tuple[str, int]], counts: Mapping[str, int], limit: int) -> None:
        """The jobs by queue that a claim with these shares has given; `limit` 0: it was not answered."""
        if self._is_simple:
            return
        if sum(counts.values()) < limit:  # all of these queues are empty: start afresh
            self._is_even = len(shares) == len(self._weights)
            self._empty.update(queue for queue, _ in shares)
            start = max(self._clocks.values()) if not self._is_even else 0
            self._clocks.update((queue, start) for queue, _ in shares)
            return
        left = limit
        found_empty = False
        offered = []
        for queue, share in shares:
            offered.append(min(share, left))
            left -= min(offered[-1], counts.get(queue, 0))
        for (queue, share), offer in zip(reversed(shares), reversed(offered), strict=True):
            count = counts.get(queue, 0)
            self._clocks[queue] += (count - share) * self._costs[queue]
            if found_empty or count < offer:
                self._empty.add(queue)
            elif count:
                self._empty.discard(queue)
            # More than was offered is what others left over, and the queues before it were offered that first.
            found_empty = found_empty or count > offer
        self._advance_empty(tuple(queue for queue, _ in shares))

    def _divide_evenly(self, limit: int) -> tuple[tuple[str, int], ...]:
        shares = self._share(self.queues, limit)
        return tuple(sorted(shares.items(), key=lambda item: not item[1]))

    def _active_queues(self) -> tuple[str, ...]:
        asleep = {queue for queue, rests in self._is_resting.items() if rests()}
        self._empty |= asleep
        return tuple(queue for queue in self._weights if queue not in asleep)

    def _advance_empty(self, queues: tuple[str, ...]) -> int:
        """Advance the clocks of empty queues to the lowest of those that have jobs. Returns that clock."""
        filled = [self._clocks[queue] for queue in queues if queue not in self._empty]
        first = min(filled) if filled else max(self._clocks[queue] for queue in queues)
        for queue in self._empty.intersection(queues):
            self._clocks[queue] = max(self._clocks[queue], first)
        return first

    def _share(self, queues: tuple[str, ...], limit: int) -> dict[str, int]:
        """Give each of `limit` jobs to the queue with the lowest clock; the first of several."""
        clocks, costs = self._clocks, self._costs
        shares = dict.fromkeys(queues, 0)
        if limit > 4 * len(queues):
            shares = self._bulk_shares(queues, limit)
        # The rest one by one.
        heap = [(clocks[queue] + shares[queue] * costs[queue], index, queue) for index, queue in enumerate(queues)]
        heapq.heapify(heap)
        for _ in range(limit - sum(shares.values())):
            clock, index, queue = heap[0]
            shares[queue] += 1
            heapq.heapreplace(heap, (clock + costs[queue], index, queue))
        return shares

    def _bulk_shares(self, queues: tuple[str, ...], limit: int) -> dict[str, int]:
        """The shares if jobs were divisible, less one job each: given in one step."""
        clocks, costs = self._clocks, self._costs
        jobs, rate, level = float(max(0, limit - len(queues))), 0.0, 0.0
        for queue in sorted(queues, key=clocks.__getitem__):
            if (clocks[queue] - level) * rate >= jobs:
                break
            jobs -= (clocks[queue] - level) * rate
            level = clocks[queue]
            rate += 1 / costs[queue]
        level += jobs / rate if rate else 0
        return {queue: max(0, int((level - clocks[queue]) // costs[queue])) for queue in queues}
