"""Cron expressions: read, checked, and made into sets of seconds, minutes, hours and days.

Five fields, or six with the seconds first; names, lists, ranges, steps, `L`, `LW` and `#`, as cronsim reads them; on top of
that `H`, a value chosen by a stable hash of the schedule's name, and macros. Which moments this means in a time zone is the
business of `calendar.py`. What is hostile is refused by its length or its form, before anything is counted or walked.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from functools import lru_cache
from hashlib import blake2b

from cronsim.cronsim import CronSim, CronSimError, Field

from drumbeat.errors import ConfigError
from drumbeat.names import short_repr

MAX_EXPRESSION_LENGTH = 200
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIELDS = ("second", "minute", "hour", "day of month", "month", "day of week")
_ALLOWED = ("0-59", "0-59", "0-23", "1-31, L or LW", "1-12 or JAN-DEC", "0-7 or SUN-SAT, 5L, 5#2")
_LOWEST = (0, 0, 0, 1, 1, 0)
_HIGHEST = (59, 59, 23, 31, 12, 7)
# Not 31, and not 7: a hashed day must be in every month, and Sunday must not be twice as likely.
_HIGHEST_HASHED = (59, 59, 23, 28, 12, 6)
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

_HASHED = re.compile(r"H(?:\((\d{1,2})-(\d{1,2})\))?(?:/(\d{1,2}))?")
_DAY = re.compile(rf"(?<![A-Z])(?:{'|'.join(_DAYS)})(?![A-KM-Z])")
_STEP = re.compile(r"/(\d+)$")
_BEGIN = date(2024, 1, 1).toordinal()
_CYCLE = 28 * 366
"""Weekdays and leap years come round every 28 years; what has no day within that has none."""


class Cron:
    """An expression as sets. `is_wall`: it names times of day, which on a day of changing clocks are still run once."""

    def __init__(self, text: str, parts: list[str]) -> None:
        self.text = text
        self._sim = CronSim(" ".join(parts), datetime(2024, 1, 1))
        self.seconds = tuple(sorted(self._sim.seconds))
        self.minutes = tuple(sorted(self._sim.minutes))
        self.hours = tuple(sorted(self._sim.hours))
        self.months = frozenset(self._sim.months)
        # As cronsim has them, for wording.py: negative numbers and pairs stand for L, LW, 5L and 5#2.
        self.days = frozenset(self._sim.days)
        self.weekdays = frozenset(self._sim.weekdays)
        self.needs_both_days = self._sim.day_and
        # As Debian's cron has it for minutes and hours.
        self.is_wall_clock = not any(part.startswith("*") for part in parts[:3])

    def has_day(self, day: date) -> bool:
        return day.month in self.months and self._sim.match_day(day)

    def __repr__(self) -> str:
        return f"<Cron {self.text}>"


@lru_cache(maxsize=16_384)
def parse(expression: str, name: str) -> Cron:
    """Read an expression; `name` is the schedule's, for `H`.

    Raises:
        ConfigError: which field, and what it may be; or that no day has it.
    """
    parts = [_replace_hash(part, place, name, expression) for place, part in enumerate(_split_fields(expression))]
    for place, part in enumerate(parts):
        _check_field(part, place, expression)
    try:
        cron = Cron(expression, parts)
    except CronSimError:
        raise _never_fires_error(expression) from None
    if not any(cron.has_day(date.fromordinal(_BEGIN + day)) for day in range(_CYCLE)):
        raise _never_fires_error(expression)
    return cron


def _split_fields(expression: object) -> list[str]:
    """The six fields, in capitals."""
    if not isinstance(expression, str) or len(expression) > MAX_EXPRESSION_LENGTH or not expression.isascii():
        raise ConfigError(
            f"cron must be an expression such as '0 3 * * *', of at most {MAX_EXPRESSION_LENGTH} characters, not {short_repr(expression)}",
            "cron",
        )
    text = expression.strip()
    if text.startswith("@"):
        return ["0", *_expand_macro(text).split()]
    parts = text.upper().split()
    if len(parts) not in (5, 6):
        raise ConfigError(
            f"cron {short_repr(expression)} must have 5 fields (minute, hour, day of month, month, day of week), "
            f"or 6 with the seconds first, not {len(parts)}",
            "cron",
        )
    parts[-1] = _weekdays_to_numbers(parts[-1])
    return parts if len(parts) == 6 else ["0", *parts]


def _weekdays_to_numbers(days: str) -> str:
    """Days of the week as numbers: cronsim knows 5L and not FRIL, and FRI-SUN is a range that people write."""
    return _DAY.sub(lambda found: str(_DAYS.index(found[0])), days.replace("-SUN", "-7"))


def _expand_macro(text: str) -> str:
    known = MACROS.get(text.lower())
    if known is None:
        hint = ": use @app.on_start for that" if text.lower() == "@reboot" else f"; there are {', '.join(MACROS)}"
        raise ConfigError(f"cron has no {short_repr(text)}{hint}", "cron")
    return known


def _replace_hash(part: str, place: int, name: str, expression: str) -> str:
    """The field with each `H` replaced by what the name's hash chooses."""
    terms = part.split(",")
    for index, term in enumerate(terms):
        if found := _HASHED.fullmatch(term):
            low, high, step = (None if group is None else int(group) for group in found.groups())
            low = _LOWEST[place] if low is None else low
            high = _HIGHEST_HASHED[place] if high is None else high
            if not _LOWEST[place] <= low <= high <= _HIGHEST[place] or step == 0:
                raise _field_error(place, term, expression)
            span = high - low + 1 if step is None else min(step, high - low + 1)
            first = low + _hash(name, place) % span
            terms[index] = str(first) if step is None else f"{first}-{high}/{step}"
    return ",".join(terms)


def _hash(name: str, place: int) -> int:
    """Stable in every process and version, and another one for each field."""
    return int.from_bytes(blake2b(f"{name}\0{place}".encode(), digest_size=8).digest(), "big")


def _check_field(part: str, place: int, expression: str) -> None:
    field = Field(place)
    for term in part.split(","):
        step = _STEP.search(term)
        # A step beyond the field is a slip: `*/90` minutes would be every hour, not every hour and a half.
        if step is not None and int(step[1]) > _HIGHEST[place] - _LOWEST[place] + 1:
            raise _field_error(place, term, expression)
        try:
            field.parse(term)
        except CronSimError:
            raise _field_error(place, term, expression) from None


def _field_error(place: int, term: str, expression: str) -> ConfigError:
    return ConfigError(
        f"cron {short_repr(expression)}: {short_repr(term, 30)} is not a valid {FIELDS[place]}: use {_ALLOWED[place]}, "
        "with * , - / or H",
        "cron",
    )


def _never_fires_error(expression: str) -> ConfigError:
    return ConfigError(
        f"cron {short_repr(expression)} never fires: no day of month, month and day of week fit together", "cron"
    )
