"""Lengths of time and moments, at the border between people and the core.

People write `5`, `2.5`, `"5m"`, `timedelta(minutes=5)` and aware datetimes; inside there are only integer microseconds,
UTC. This module reads no clock.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from drumbeat.errors import ConfigError, InvalidArguments
from drumbeat.names import ErrorClass, short_repr

Duration = timedelta | float | str
"""What the public API takes: a timedelta, a number of seconds, or text such as "250ms", "5m", "1h30m"."""

MAX_DURATION_US = 36_525 * 86_400 * 1_000_000
"""100 years: more than that is a mistake in the unit, and would overflow datetimes sooner or later."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
MIN_DATETIME, MAX_DATETIME = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_FIRST_US, _LAST_US = (MIN_DATETIME - EPOCH) // MICROSECOND, (MAX_DATETIME - EPOCH) // MICROSECOND

_UNITS_US = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
# Each unit at most once, the larger first: "5m1h" is more likely a slip than a wish.
_TEXT = re.compile(r"\s*+".join(rf"(?:([0-9]+(?:\.[0-9]+)?){unit})?" for unit in _UNITS_US))
_ALLOWED = 'a timedelta, a number of seconds, or text like "250ms", "5s", "5m", "2h", "1d" or "1h30m"'


def microseconds(value: Duration, *, name: str, error: ErrorClass = ConfigError) -> int:
    """The length in microseconds; `name` is the setting or argument that a refusal names."""
    exact = _to_exact_us(value)
    if exact is None:
        raise error(f"{name} must be {_ALLOWED}, not {short_repr(value)}", name)
    if exact < 0:
        raise error(f"{name} must not be negative, but is {short_repr(value)}", name)
    if exact > MAX_DURATION_US:
        raise error(f"{name} must be at most 100 years, but is {short_repr(value)}", name)
    return round(exact)


def seconds(value: Duration, *, name: str, error: ErrorClass = ConfigError) -> float:
    """The length in seconds, by the same rules as `microseconds`."""
    return microseconds(value, name=name, error=error) / 1_000_000


def _to_exact_us(value: object) -> Fraction | int | None:
    match value:
        case bool():
            return None
        case timedelta():
            return value // MICROSECOND
        case int():
            return value * 1_000_000
        case float():
            return Fraction(value) * 1_000_000 if math.isfinite(value) else None
        case str():
            return _parse_us(value.strip())
        case _:
            return None


def _parse_us(text: str) -> Fraction | None:
    # The bound on length keeps a hostile text from costing more than it is worth.
    if not text or len(text) > 60:
        return None
    if _NUMBER.fullmatch(text):
        return Fraction(text) * 1_000_000
    if text.startswith("-") and (positive := _parse_us(text[1:])) is not None:
        return -positive
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    parts = zip(found.groups(), _UNITS_US.values(), strict=True)
    return sum((Fraction(amount) * unit for amount, unit in parts if amount), Fraction(0))


def format_duration(us: int) -> str:
    """The length for people: the two largest units, cut and never rounded up; `1h 30m`, `2.5s`, `250ms`."""
    if us < 0:
        return f"-{format_duration(-us)}"
    if us < 1_000:
        return f"{us}us" if us else "0s"
    if us < 1_000_000:
        return f"{us // 10 / 100:g}ms" if us < 100_000 else f"{us // 1_000}ms"
    if us < 60_000_000:
        return f"{us // 10_000 / 100:g}s"
    days, rest = divmod(us // 1_000_000, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, whole_seconds = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (whole_seconds, "s")]
    first = next(place for place, (amount, _) in enumerate(parts) if amount)
    return " ".join(f"{amount}{unit}" for amount, unit in parts[first : first + 2] if amount)


def to_us(value: datetime, *, name: str = "at", error: ErrorClass = InvalidArguments) -> int:
    """Microseconds since 1970 UTC of an aware datetime; a naive one is refused, because its zone would be a guess."""
    if not isinstance(value, datetime):
        raise error(f"{name} must be a datetime with a timezone, not {short_repr(value)}", name)
    if value.utcoffset() is None:
        raise error(
            f"{name} must have a timezone, but {value.isoformat()} has none: "
            "add one, for example datetime(..., tzinfo=timezone.utc) or moment.astimezone()",
            name,
        )
    us = (value - EPOCH) // MICROSECOND
    if not _FIRST_US <= us <= _LAST_US:
        # By its offset it lies before the year 1 or after 9999: nobody could read it back in UTC.
        raise error(f"{name} must lie in the years 1 to 9999 UTC, but is {value.isoformat()}", name)
    return us


def from_us(us: int) -> datetime:
    """The aware UTC datetime of so many microseconds since 1970; the nearest that there is for what lies beyond them all."""
    try:
        return EPOCH + timedelta(microseconds=us)
    except OverflowError:  # such a row was written by somebody else: it must not hide all others
        return MAX_DATETIME if us > 0 else MIN_DATETIME
