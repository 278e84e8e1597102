"""The next moments of a definition for people, with a word where the clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from drumbeat.durations import from_us
from drumbeat.model.schedule import NewSchedule, RuleKind

from .calendar import Calendar
from .localday import change_between
from .planner import first_moment
from .rules import rule_of, zone

_SECOND = 1_000_000


class Previewed(msgspec.Struct, frozen=True, kw_only=True):
    """One moment to come, in the schedule's own zone."""

    at: datetime
    note: str = ""
    """What is unusual about it; empty almost always."""


def preview(definition: NewSchedule, now: int, count: int) -> list[Previewed]:
    """The next moments, at most `count`. An interval by completion is shown as if its runs took no time."""
    rule, tz = rule_of(definition), zone(definition.tz)
    found: list[Previewed] = []
    at, before = first_moment(definition, now), now
    while at is not None and len(found) < count:
        note = _note(definition, before // _SECOND, at // _SECOND) if definition.kind is RuleKind.CRON else ""
        found.append(Previewed(at=from_us(at).astimezone(tz), note=note))
        before = at
        at = rule.next_after(at)
    return found


def _note(definition: NewSchedule, before: int, second: int) -> str:
    from .cron import parse

    tz, cron = zone(definition.tz), parse(definition.rule, definition.name)
    parts: list[str] = []
    if (change := change_between(before, second, tz)) is not None:
        way = "forward" if change.after > change.before else "back"
        left, right = _local(change.at + change.before), _local(change.at + change.after)
        parts.append(f"the clocks go {way} on {left:%Y-%m-%d}, from {left:%H:%M} to {right:%H:%M}")
        if Calendar(cron, tz).is_leapt(second):
            parts.append("a time in between is run after it")
    if _comes_twice(second, tz):
        parts.append("this time comes twice" + (", it is run the first time" if cron.is_wall else ""))
    return "; ".join(parts)


def _local(second: int) -> datetime:
    """Local seconds as a datetime to be shown."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def _comes_twice(second: int, tz: tzinfo) -> bool:
    local = datetime.fromtimestamp(second, tz)
    first, again = (local.replace(fold=fold).utcoffset() for fold in (0, 1))
    return first is not None and again is not None and first > again
