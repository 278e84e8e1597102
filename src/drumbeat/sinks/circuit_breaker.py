"""When a broker that was away may be asked again, and by how many. Pure, but for the clock it is given.

Only one batch tries at a time while it is away: the others would hold slots that other queues need.
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
        """Nobody may try now."""
        return self._failures > 0 and (self._is_probing or self._monotonic() < self._until)

    def try_begin(self) -> bool:
        """Whether this batch may be sent now; if so, `leave` must follow."""
        if self.is_tripped:
            return False
        self._is_probing = self._failures > 0
        return True

    def end(self) -> None:
        """However it ended. Before `failed` or `succeeded`."""
        self._is_probing = False

    def record_failure(self, delay: float | None = None) -> bool:
        """It is away, for `delay` seconds if it said so. Returns whether that is news."""
        now = self._monotonic()
        # Batches that were under way together fail together: that is one failure.
        if now >= self._until:
            self._failures += 1
            pause = min(MAX_DELAY, BASE_DELAY * 2.0 ** min(self._failures - 1, 10)) * self._uniform(0.5, 1.5)
            self._until = now + (pause if delay is None else delay)
            return self._failures == 1
        if delay is not None:
            self._until = max(self._until, now + delay)
        return False

    def record_success(self) -> bool:
        """It is there. Returns whether that is news."""
        was_away = self._failures > 0
        self._failures, self._until = 0, 0.0
        return was_away

    def retry_delay(self) -> float:
        """How long a message should wait: a little longer than until the next try, and not all to the same moment."""
        return max(BASE_DELAY, self._until - self._monotonic()) * self._uniform(1.0, 1.5)
