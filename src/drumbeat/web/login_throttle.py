"""How often somebody may be wrong about a token: by address, and by the token that was tried.

A few mistakes are free; from then on each costs a wait that doubles, in which nothing is judged. A token that has been right
before from the same address is not held up: behind one proxy, who guesses must not shut out those who know. What is kept is
bounded and forgotten after a while.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from drumbeat.clock import Clock

FREE_ATTEMPTS = 5
"""Mistakes without a wait."""
MIN_DELAY, MAX_DELAY = 1.0, 300.0
"""Seconds."""
EXPIRY_SECONDS = 900.0
"""Seconds without a mistake."""
MAX_ENTRIES = 10_000


class _Failures(msgspec.Struct):
    count: int
    last: float
    until: float


class LoginThrottle:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, _Failures] = OrderedDict()
        self._verified: OrderedDict[tuple[str, str], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures) + len(self._verified)

    def retry_after(self, address: str, token: str) -> float:
        """Seconds until this token (its hash) may be tried from this address; 0: now."""
        if (address, token) in self._verified:
            return 0.0
        now = self._clock.monotonic()
        return max(found.until - now if (found := self._failures.get(each)) else 0.0 for each in (address, token))

    def record(self, address: str, token: str, *, is_right: bool) -> None:
        """What came of a try."""
        if is_right:
            self._verified[address, token] = None
            _trim(self._verified)
            return
        for each in (address, token):
            self._count(each)

    def _count(self, whose: str) -> None:
        now = self._clock.monotonic()
        found = self._failures.pop(whose, None)
        if found is None or now - found.last > EXPIRY_SECONDS:
            found = _Failures(count=0, last=now, until=now)
        found.count, found.last = found.count + 1, now
        if found.count > FREE_ATTEMPTS:
            found.until = now + min(MAX_DELAY, MIN_DELAY * 2.0 ** min(30, found.count - FREE_ATTEMPTS - 1))
        self._failures[whose] = found
        _trim(self._failures)


def _trim(kept: OrderedDict[Any, Any]) -> None:
    if len(kept) > MAX_ENTRIES:
        kept.popitem(last=False)
