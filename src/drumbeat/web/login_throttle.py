"""Throttling of invalid tokens, by address and by token.

A few attempts are free; each further one doubles a delay in which no token is checked. A token that was valid before from the
same address is not delayed: behind a shared proxy, an attacker must not lock out others. Entries are bounded and expire.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from drumbeat.clock import Clock

FREE_ATTEMPTS = 5
"""Failed attempts without a delay."""
MIN_DELAY, MAX_DELAY = 1.0, 300.0
"""Seconds."""
EXPIRY_SECONDS = 900.0
"""Seconds without a failed attempt."""
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
        """Record the result of an attempt."""
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
