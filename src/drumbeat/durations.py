"""Durations and timestamps: parsed from what users write, formatted for what users read.

Users write `5`, `2.5`, `"5m"`, `timedelta(minutes=5)` and aware datetimes; internally there are only integer microseconds,
UTC. The formats are the same in logs, the CLI and explanations. This module reads no clock.
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
"""100 years: more is a mistake in the unit, and could overflow datetimes."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND_US = 1_000_000
MIN_DATETIME, MAX_DATETIME = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_FIRST_US, _LAST_US = (MIN_DATETIME - EPOCH) // MICROSECOND, (MAX_DATETIME - EPOCH) // MICROSECOND

_UNITS_US = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
# Each unit at most once, the larger first: "5m1h" is more likely a typing error than intended.
_TEXT = re.compile(r"\s*+".join(rf"(?:([0-9]+(?:\.[0-9]+)?){unit})?" for unit in _UNITS_US))
# As people write it: "3 days".
_WORDS = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(week|day|hour|minute|second)s?")
_WORDS_US = {name: _UNITS_US[name[0]] for name in ("day", "hour", "minute", "second")} | {"week": 7 * _UNITS_US["d"]}
_ALLOWED = 'a timedelta, a number of seconds, or text like "250ms", "5s", "5m", "2h", "1d" or "1h30m"'


def microseconds(value: Duration, *, name: str, error: ErrorClass = ConfigError) -> int:
    """The duration in microseconds; errors name the setting or argument `name`."""
    exact = _to_exact_us(value)
    if exact is None:
        raise error(f"{name} must be {_ALLOWED}, not {short_repr(value)}", name)
    if exact < 0:
        raise error(f"{name} must not be negative, but is {short_repr(value)}", name)
    if exact > MAX_DURATION_US:
        raise error(f"{name} must be at most 100 years, but is {short_repr(value)}", name)
    return round(exact)


def seconds(value: Duration, *, name: str, error: ErrorClass = ConfigError) -> float:
    """The duration in seconds, by the same rules as `microseconds`."""
    return microseconds(value, name=name, error=error) / 1_000_000


def _to_exact_us(value: object) -> Fraction | int | None:
    match value:
        case bool():
            return None
        case timedelta():
            return value // MICROSECOND
        case int():
            return value * SECOND_US
        case float():
            return Fraction(value) * 1_000_000 if math.isfinite(value) else None
        case str():
            return _parse_us(value.strip())
        case _:
            return None


def _parse_us(text: str) -> Fraction | None:
    # The limit bounds the cost of parsing untrusted text.
    if not text or len(text) > 60:
        return None
    if _NUMBER.fullmatch(text):
        return Fraction(text) * 1_000_000
    if text.startswith("-") and (positive := _parse_us(text[1:])) is not None:
        return -positive
    if (words := _WORDS.fullmatch(text)) is not None:
        return Fraction(words[1]) * _WORDS_US[words[2]]
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    parts = zip(found.groups(), _UNITS_US.values(), strict=True)
    return sum((Fraction(amount) * unit for amount, unit in parts if amount), Fraction(0))


def format_length(us: int) -> str:
    """The duration in its two largest units, truncated and never rounded up: `1h 30m`, `2.5s`, `250ms`."""
    if us < 0:
        return f"-{format_length(-us)}"
    if us < 1_000:
        return f"{us}us" if us else "0s"
    if us < SECOND_US:
        return f"{us // 10 / 100:g}ms" if us < 100_000 else f"{us // 1_000}ms"
    if us < 60 * SECOND_US:
        return f"{us // 10_000 / 100:g}s"
    days, rest = divmod(us // SECOND_US, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, whole_seconds = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (whole_seconds, "s")]
    first = next(index for index, (amount, _) in enumerate(parts) if amount)
    return " ".join(f"{amount}{unit}" for amount, unit in parts[first : first + 2] if amount)


def format_ago(at: datetime | int, now: datetime | int) -> str:
    """How far a timestamp is from `now`, in whole seconds: `3m ago`, `in 2h`, `now`."""
    age_us = _as_us(now) - _as_us(at)
    if abs(age_us) < SECOND_US:
        return "now"
    length = format_length(abs(age_us) // SECOND_US * SECOND_US)
    return f"{length} ago" if age_us > 0 else f"in {length}"


def format_utc(at: datetime | int, *, milliseconds: bool = False) -> str:
    """`2026-11-15 14:03:07 UTC`, or with milliseconds `2026-11-15 14:03:07.123 UTC`."""
    utc = _as_utc(at)
    fraction = f".{utc.microsecond // 1_000:03}" if milliseconds else ""
    return f"{utc:%Y-%m-%d %H:%M:%S}{fraction} UTC"


def to_iso(at: datetime | int, *, milliseconds: bool = False) -> str:
    """RFC 3339 in UTC, `2026-11-15T14:03:07.123456Z`: as exact as the timestamp, or truncated to milliseconds."""
    text = _as_utc(at).isoformat(timespec="milliseconds" if milliseconds else "auto")
    return text.replace("+00:00", "Z")


def _as_us(at: datetime | int) -> int:
    return at if isinstance(at, int) else (at - EPOCH) // MICROSECOND


def _as_utc(at: datetime | int) -> datetime:
    return from_us(at) if isinstance(at, int) else at.astimezone(UTC)


def to_us(value: datetime, *, name: str = "at", error: ErrorClass = InvalidArguments) -> int:
    """Microseconds since 1970 UTC of an aware datetime; a naive one is refused, because its zone would be a guess."""
    if not isinstance(value, datetime):
        raise error(f"{name} must be a datetime with a timezone, not {short_repr(value)}", name)
    if value.utcoffset() is None:
        raise error(
            f"{name} must have a timezone, but {value.isoformat()} has none: "
            "add one, for example datetime(..., tzinfo=timezone.utc) or value.astimezone()",
            name,
        )
    us = (value - EPOCH) // MICROSECOND
    if not _FIRST_US <= us <= _LAST_US:
        # Its offset moves it before year 1 or after 9999: it could not be read back in UTC.
        raise error(f"{name} must lie in the years 1 to 9999 UTC, but is {value.isoformat()}", name)
    return us


def from_us(us: int) -> datetime:
    """The aware UTC datetime of this number of microseconds since 1970, clamped to the years 1 to 9999."""
    try:
        return EPOCH + timedelta(microseconds=us)
    except OverflowError:  # a row written by another program: it must not make all others unreadable
        return MAX_DATETIME if us > 0 else MIN_DATETIME
