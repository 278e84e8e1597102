"""Intervals: a grid of equidistant fire times, and the delay from the end of one run to the next.

In microseconds. A grid is anchored at `start` or at 1970-01-01 UTC, so that it is the same in every instance and after every
restart, and never drifts. Daylight saving does not apply.
"""

from __future__ import annotations

from drumbeat.durations import MAX_DURATION_US
from drumbeat.errors import ConfigError
from drumbeat.names import short_repr

MIN_INTERVAL_US = 100_000
"""A tenth of a second: anything more frequent is a loop, not a schedule."""


def parse_interval(rule: str) -> int:
    """The microseconds of a rule, which is text.

    Raises:
        ConfigError: it is no number, or out of bounds.
    """
    length = try_parse_us(rule)
    if length is None:
        raise ConfigError(f"every must be a whole number of microseconds, not {short_repr(rule)}", "every")
    if not MIN_INTERVAL_US <= length <= MAX_DURATION_US:
        raise ConfigError(f"every must be from 0.1 s to 100 years, not {length / 1_000_000:g} s", "every")
    return length


def try_parse_us(rule: str) -> int | None:
    """The microseconds of a rule; None if it is no number."""
    # isascii: isdigit also accepts digits of other scripts, and characters such as ².
    return int(rule) if rule.isascii() and rule.isdigit() and len(rule) <= 16 else None


class Grid:
    """Fire times at `origin + k * step`."""

    def __init__(self, origin: int, step: int) -> None:
        self.origin = origin
        self.step = step

    def next_from(self, at: int) -> int:
        return self.origin + -((self.origin - at) // self.step) * self.step

    def last_until(self, at: int) -> int:
        return self.origin + (at - self.origin) // self.step * self.step

    def count(self, first: int, last: int) -> int:
        return max(0, (self.last_until(last) - self.next_from(first)) // self.step + 1)
