"""Cron expressions, parsed and checked into sets of seconds, minutes, hours and days.

Five fields, or six with seconds first; names, lists, ranges, steps, `L`, `LW` and `#`, as cronsim parses them; in addition
`H`, a value chosen by a stable hash of the schedule's name, and macros. `calendar.py` computes the fire times in a time zone.
Hostile input is refused by its length or form, before anything is computed from it.
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
"""Weekdays and leap years repeat every 28 years: an expression without a day in them has none."""


class Cron:
    """An expression as sets. `is_wall_clock`: it names times of day, which fire once even when the clocks change."""

    def __init__(self, text: str, parts: list[str]) -> None:
        self.text = text
        self._parts = parts
        self._sim = CronSim(" ".join(parts), datetime(2024, 1, 1))
        self.seconds = tuple(sorted(self._sim.seconds))
        self.minutes = tuple(sorted(self._sim.minutes))
        self.hours = tuple(sorted(self._sim.hours))
        self.months = frozenset(self._sim.months)
        self.is_alike_every_hour = all(part == "*" for part in parts[2:])
        # As in Debian's cron for minutes and hours.
        self.is_wall_clock = not any(part.startswith("*") for part in parts[:3])

    def has_day(self, day: date) -> bool:
        return day.month in self.months and self._sim.match_day(day)

    def explain(self) -> str:
        """The expression in words, without a time zone."""
        parts = list(self._parts)
        has_every_date = self._sim.days.issuperset(range(1, 32))
        has_every_weekday = {day % 7 for day in self._sim.weekdays if isinstance(day, int)} == set(range(7))
        if not self._sim.day_and and (has_every_date or has_every_weekday):
            # cronsim explains `1-31 * FRI` as "on Friday", but either field is enough for a fire: it is every day.
            parts[3] = parts[5] = "*"
        return CronSim(" ".join(parts), datetime(2024, 1, 1)).explain()

    def __repr__(self) -> str:
        return f"<Cron {self.text}>"


@lru_cache(maxsize=16_384)
def parse(expression: str, name: str) -> Cron:
    """Parse an expression; `name` is the schedule's, for `H`.

    Raises:
        ConfigError: which field, and what it may be; or that no day matches.
    """
    parts = [_replace_hash(part, index, name, expression) for index, part in enumerate(_split_fields(expression))]
    for index, part in enumerate(parts):
        _check_field(part, index, expression)
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
            f"cron must be an expression such as '0 3 * * *', of at most {MAX_EXPRESSION_LENGTH} characters, "
            f"not {short_repr(expression)}",
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
    """Days of the week as numbers: cronsim parses 5L but not FRIL, and users write FRI-SUN."""
    return _DAY.sub(lambda found: str(_DAYS.index(found[0])), days.replace("-SUN", "-7"))


def _expand_macro(text: str) -> str:
    known = MACROS.get(text.lower())
    if known is None:
        hint = ": use @app.on_start for that" if text.lower() == "@reboot" else f"; there are {', '.join(MACROS)}"
        raise ConfigError(f"cron has no {short_repr(text)}{hint}", "cron")
    return known


def _replace_hash(part: str, index: int, name: str, expression: str) -> str:
    """The field with each `H` replaced by the value that the name's hash chooses."""
    terms = part.split(",")
    for position, term in enumerate(terms):
        if found := _HASHED.fullmatch(term):
            low, high, step = (None if group is None else int(group) for group in found.groups())
            low = _LOWEST[index] if low is None else low
            high = _HIGHEST_HASHED[index] if high is None else high
            if not _LOWEST[index] <= low <= high <= _HIGHEST[index] or step == 0:
                raise _field_error(index, term, expression)
            span = high - low + 1 if step is None else min(step, high - low + 1)
            first = low + _hash(name, index) % span
            terms[position] = str(first) if step is None else f"{first}-{high}/{step}"
    return ",".join(terms)


def _hash(name: str, index: int) -> int:
    """The same in every process and version, and different for each field."""
    return int.from_bytes(blake2b(f"{name}\0{index}".encode(), digest_size=8).digest(), "big")


def _check_field(part: str, index: int, expression: str) -> None:
    field = Field(index)
    for term in part.split(","):
        step = _STEP.search(term)
        # A step beyond the field is a mistake: `*/90` minutes would be every hour, not every hour and a half.
        if step is not None and int(step[1]) > _HIGHEST[index] - _LOWEST[index] + 1:
            raise _field_error(index, term, expression)
        try:
            field.parse(term)
        except CronSimError:
            raise _field_error(index, term, expression) from None


def _field_error(index: int, term: str, expression: str) -> ConfigError:
    return ConfigError(
        f"cron {short_repr(expression)}: {short_repr(term, 30)} is not a valid {FIELDS[index]}: use {_ALLOWED[index]}, "
        "with * , - / or H",
        "cron",
    )


def _never_fires_error(expression: str) -> ConfigError:
    return ConfigError(
        f"cron {short_repr(expression)} never fires: no day of month, month and day of week fit together", "cron"
    )
