"""Intervals: a grid of moments at the same distance, and the distance from the end of one run to the next.

Microseconds. A grid begins at `start`, or runs through 1970-01-01 UTC, so that every instance and every restart has the same
one, and it never drifts. Daylight saving does not exist here.
"""

from __future__ import annotations

from drumbeat.durations import MAX_DURATION_US
from drumbeat.errors import ConfigError
from drumbeat.names import short_repr

MIN_INTERVAL_US = 100_000
"""A tenth of a second: what is more frequent than that is a loop, not a schedule."""


def parse_interval(rule: str) -> int:
    """The rule of an interval: microseconds, as text.

    Raises:
        ConfigError: it is no such number.
    """
    length = try_parse_us(rule)
    if length is None:
        raise ConfigError(f"every must be a whole number of microseconds, not {short_repr(rule)}", "every")
    if not MIN_INTERVAL_US <= length <= MAX_DURATION_US:
        raise ConfigError(f"every must be from 0.1 s to 100 years, not {length / 1_000_000:g} s", "every")
    return length


def try_parse_us(rule: str) -> int | None:
    """The microseconds; None: it is no such number."""
    # isascii: isdigit also takes digits of other scripts, and signs such as ².
    return int(rule) if rule.isascii() and rule.isdigit() and len(rule) <= 16 else None


class Grid:
    """Moments at `origin + k * step`."""

    def __init__(self, origin: int, step: int) -> None:
        self.origin = origin
        self.step = step

    def next_from(self, at: int) -> int:
        return self.origin + -((self.origin - at) // self.step) * self.step

    def last_until(self, at: int) -> int:
        return self.origin + (at - self.origin) // self.step * self.step

    def count(self, first: int, last: int) -> int:
        return max(0, (self.last_until(last) - self.next_from(first)) // self.step + 1)
