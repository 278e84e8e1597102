"""Decides when an unavailable broker may be tried again, and by how many batches. Pure, except for the given clock.

While the broker is unavailable only one batch tries at a time: others would occupy slots that other queues need.
"""

import random
from collections.abc import Callable

BASE_DELAY = 0.5
MAX_DELAY = 15.0


class CircuitBreaker:
    def __init__(
        self, monotonic: Callable[[], float], uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._monotonic = monotonic
        self._uniform = uniform
        self._failures = 0
        self._until = 0.0
        self._is_probing = False

    @property
    def has_failures(self) -> bool:
        return self._failures > 0

    @property
    def is_tripped(self) -> bool:
        """Whether no batch may try now."""
        return self._failures > 0 and (self._is_probing or self._monotonic() < self._until)

    def try_begin(self) -> bool:
        """Whether this batch may be sent now; if so, `end` must follow."""
        if self.is_tripped:
            return False
        self._is_probing = self._failures > 0
        return True

    def end(self) -> None:
        """The batch has ended, however. Before `record_failure` or `record_success`."""
        self._is_probing = False

    def record_failure(self, delay: float | None = None) -> bool:
        """The broker is unavailable, for `delay` seconds if it said so. Returns whether this is the first failure."""
        now = self._monotonic()
        # Batches that ran together fail together: that is one failure.
        if now >= self._until:
            self._failures += 1
            pause = min(MAX_DELAY, BASE_DELAY * 2.0 ** min(self._failures - 1, 10)) * self._uniform(0.5, 1.5)
            self._until = now + (pause if delay is None else delay)
            return self._failures == 1
        if delay is not None:
            self._until = max(self._until, now + delay)
        return False

    def record_success(self) -> bool:
        """The broker is available. Returns whether it was not before."""
        had_failures = self._failures > 0
        self._failures, self._until = 0, 0.0
        return had_failures

    def retry_delay(self) -> float:
        """How long a message should wait: a little longer than until the next try, with jitter."""
        return max(BASE_DELAY, self._until - self._monotonic()) * self._uniform(1.0, 1.5)
