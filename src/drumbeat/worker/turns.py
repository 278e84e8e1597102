"""Whose turn it is among queues: by weight over time, or strictly. Pure; knows nothing of jobs or stores.

Each claim is divided by weight; what a whole number cannot express is carried over to the next claim, so that 6:3:1 holds
also when jobs are claimed one by one. A queue that had less than its share starts anew: nothing is saved up while idle.
"""

from collections.abc import Callable, Iterable, Mapping


class Turns:
    def __init__(
        self, weights: Mapping[str, int], *, strict: bool = False, rests: Mapping[str, Callable[[], bool]] | None = None
    ) -> None:
        """`rests`: for queues that may have to be left alone for a while, whether this is such a while."""
        self._weights = dict(sorted(weights.items(), key=lambda item: (-item[1], item[0])))
        self._strict = strict
        self._rests = dict(rests or {})
        self._carry = dict.fromkeys(self._weights, 0.0)

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(self._weights)

    def divide(self, limit: int) -> tuple[tuple[str, int], ...]:
        """(queue, share) in the order of their turn; shares add up to limit unless strict, where each is limit.

        Nothing, if all of them rest.
        """
        weights = self._awake() if self._rests else self._weights
        if self._strict or len(weights) <= 1:
            return tuple((queue, limit) for queue in weights)
        total = sum(weights.values())
        for queue, weight in weights.items():
            self._carry[queue] += limit * weight / total
        shares = {queue: max(0, int(self._carry[queue])) for queue in weights}
        order = sorted(weights, key=lambda queue: shares[queue] - self._carry[queue])
        left = limit - sum(shares.values())
        for queue in order[: max(0, left)]:
            shares[queue] += 1
        for queue, share in shares.items():
            self._carry[queue] -= share
        # Those with something to get come first, so that a claim of one job asks the queue whose turn it is.
        order.sort(key=lambda queue: -shares[queue])
        return tuple((queue, shares[queue]) for queue in order)

    def _awake(self) -> dict[str, int]:
        asleep = {queue for queue, rests in self._rests.items() if rests()}
        return {queue: weight for queue, weight in self._weights.items() if queue not in asleep}

    def took(self, shares: Iterable[tuple[str, int]], counts: Mapping[str, int]) -> None:
        """What a claim that was divided like this has given: a queue with less than its share starts anew."""
        for queue, share in shares:
            if counts.get(queue, 0) < share:
                self._carry[queue] = 0.0
