"""The rule of a definition, whatever its kind: its fire times, within its time zone, start and end.

In microseconds UTC. All entry points (decorators, admin, CLI) validate definitions with `check_definition`.
"""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from functools import lru_cache
from typing import Protocol

from drumbeat import durations
from drumbeat.core.schedule import NewSchedule, RuleKind
from drumbeat.errors import ConfigError
from drumbeat.names import check_name, check_number, check_priority, short_repr

from . import interval
from .calendar import Calendar

MAX_CATCH_UP = 1_000
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_TODAY_US = 1_767_225_600_000_000  # 2026: by the current rules of time zones, not those of 1970
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,32}(?:/[A-Za-z0-9_+-]{1,32}){0,2}")
_LATEST_US = 253_370_764_800_000_000 - durations.MAX_DURATION_US
"""There are no fire times after about the year 9899: datetimes would overflow."""


class Series(Protocol):
    """All fire times of a rule, in a unit of the implementation."""

    def next_from(self, at: int) -> int | None: ...

    def last_until(self, at: int) -> int | None: ...

    def count(self, first: int, last: int) -> int: ...


class Rule:
    """Fire times within [start, end). Every method takes microseconds, however many fire times there are."""

    def __init__(self, series: Series, unit: int, start: int | None, end: int | None) -> None:
        self._series = series
        self._unit = unit
        self.start = start
        self.end = end

    def next_after(self, at: int) -> int | None:
        """The first fire time after this time; None: there is none."""
        first = at + 1 if self.start is None else max(at + 1, self.start)
        if first > _LATEST_US:
            return None
        found = self._series.next_from(-(-first // self._unit))
        if found is None or (self.end is not None and found * self._unit >= self.end):
            return None
        return found * self._unit

    def last_until(self, at: int) -> int | None:
        """The last fire time at or before this time."""
        last = at if self.end is None else min(at, self.end - 1)
        found = self._series.last_until(min(last, _LATEST_US) // self._unit)
        if found is None or (self.start is not None and found * self._unit < self.start):
            return None
        return found * self._unit

    def count(self, after: int, until: int) -> int:
        """The number of fire times in (after, until]."""
        first = after + 1 if self.start is None else max(after + 1, self.start)
        last = until if self.end is None else min(until, self.end - 1)
        if last < first:
            return 0
        return self._series.count(-(-first // self._unit), last // self._unit)


class AfterCompletion:
    """An interval after completion, as a Series: each fire time is one interval after the end of the run before."""

    def __init__(self, step: int) -> None:
        self.step = step

    def next_from(self, at: int) -> int:
        return at - 1 + self.step

    def last_until(self, at: int) -> int | None:
        return None

    def count(self, first: int, last: int) -> int:
        return 0


def rule_of(definition: NewSchedule) -> Rule:
    """The rule of a definition.

    With AFTER, `next_after(at)` is the fire time that follows a run which ended at `at`.

    Raises:
        ConfigError: the expression, the interval or the zone is not acceptable.
    """
    d = definition
    # Only H depends on the name: without it, schedules with the same expression share a parsed rule.
    named = d.name if d.kind is RuleKind.CRON and "h" in d.rule.lower() else ""
    return _rule(d.kind, d.rule, named, d.tz, d.start, d.end)


@lru_cache(maxsize=16_384)
def _rule(kind: RuleKind, text: str, name: str, tz: str, start: int | None, end: int | None) -> Rule:
    match kind:
        case RuleKind.CRON:
            # Imported late: programs without cron expressions start faster without cronsim.
            from .cron import parse

            return Rule(Calendar(parse(text, name), get_zone(tz)), _SECOND, start, end)
        case RuleKind.GRID:
            return Rule(interval.Grid(start or 0, interval.parse_interval(text)), 1, start, end)
        case RuleKind.AFTER:
            return Rule(AfterCompletion(interval.parse_interval(text)), 1, start, end)


@lru_cache(maxsize=1_024)
def get_zone(name: str) -> tzinfo:
    """The time zone of an IANA name.

    Raises:
        ConfigError: there is none of this name.
    """
    if name == "UTC":
        return UTC
    import zoneinfo  # imported late: most programs need none

    # The form is checked first: a name is also a path in the folder of zones. `localtime` differs between hosts.
    if _ZONE.fullmatch(name) and name != "localtime":
        try:
            return zoneinfo.ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            pass
    if not zoneinfo.available_timezones():
        raise ConfigError("this machine has no time zones but UTC: run `pip install drumbeat[tz]`", "tz")
    raise ConfigError(f"tz {short_repr(name)} is not a time zone: use an IANA name such as Europe/Berlin, or UTC", "tz")


def check_definition(definition: NewSchedule) -> None:
    """Refuse an impossible definition.

    Raises:
        ConfigError: which field, and what it may be.
    """
    check_name("name", definition.name, ConfigError)
    check_name("task", definition.task, ConfigError)
    check_name("queue", definition.queue, ConfigError)
    check_priority(definition.priority, ConfigError)
    get_zone(definition.tz)
    start, end = definition.start, definition.end
    if start is not None and end is not None and end <= start:
        raise ConfigError(f"end must be after start, but is {durations.from_us(end).isoformat()}", "end")
    _check_numbers(definition)
    # An `end` in the past is no error: a program that declares one must still start.
    since = start - 1 if start is not None else _TODAY_US if end is None else min(_TODAY_US, end - 366 * _DAY)
    rule = rule_of(definition)
    if definition.kind is not RuleKind.AFTER and rule.next_after(since) is None:
        field = "cron" if definition.kind is RuleKind.CRON else "every"
        raise ConfigError(f"{field} {short_repr(definition.rule)} has no fire time between start and end", field)


def _check_numbers(definition: NewSchedule) -> None:
    check_number("catch_up_limit", definition.catch_up_limit, 1, MAX_CATCH_UP, ConfigError)
    if definition.max_late is not None and not 0 < definition.max_late <= durations.MAX_DURATION_US:
        raise ConfigError("max_late must be more than 0, and at most 100 years", "max_late")
    if not 0 <= definition.jitter <= durations.MAX_DURATION_US:
        raise ConfigError("jitter must be from 0 to 100 years", "jitter")


def describe_rule(definition: NewSchedule) -> str:
    """The rule in short: `0 3 * * * (Europe/Berlin)`, `every 5m, on a grid`, `3s after each run`. Accepts anything."""
    if definition.kind is RuleKind.CRON:
        return f"{definition.rule} ({definition.tz})"
    length = interval.try_parse_us(definition.rule)
    text = short_repr(definition.rule) if length is None else durations.format_length(length)
    return f"every {text}, on a grid" if definition.kind is RuleKind.GRID else f"{text} after each run"
