"""The next fire times of a definition, with notes where the clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated

import msgspec

from drumbeat.core.field_doc import doc
from drumbeat.core.schedule import NewSchedule, RuleKind
from drumbeat.durations import from_us

from .calendar import Calendar
from .local_day import find_change_between
from .planner import first_fire_time
from .rules import get_zone, rule_of

_SECOND = 1_000_000


class PreviewedFire(msgspec.Struct, frozen=True, kw_only=True):
    """One future fire time, in the schedule's own time zone."""

    at: datetime
    note: Annotated[str, doc("What a change of the clocks does to it; empty almost always.")] = ""


def preview(definition: NewSchedule, now: int, count: int) -> list[PreviewedFire]:
    """The next fire times, at most `count`. An interval after completion is shown as if its runs took no time."""
    rule, tz = rule_of(definition), get_zone(definition.tz)
    found: list[PreviewedFire] = []
    at, before = first_fire_time(definition, now), now
    while at is not None and len(found) < count:
        note = (
            _describe_clock_change(definition, before // _SECOND, at // _SECOND)
            if definition.kind is RuleKind.CRON
            else ""
        )
        found.append(PreviewedFire(at=from_us(at).astimezone(tz), note=note))
        before = at
        at = rule.next_after(at)
    return found


def _describe_clock_change(definition: NewSchedule, before: int, second: int) -> str:
    from .cron import parse

    tz, cron = get_zone(definition.tz), parse(definition.rule, definition.name)
    parts: list[str] = []
    if (change := find_change_between(before, second, tz)) is not None:
        direction = "forward" if change.after > change.before else "back"
        left, right = _local(change.at + change.before), _local(change.at + change.after)
        parts.append(f"the clocks go {direction} on {left:%Y-%m-%d}, from {left:%H:%M} to {right:%H:%M}")
        if Calendar(cron, tz).is_after_gap(second):
            parts.append("a time in between is run after it")
    if _is_ambiguous(second, tz):
        parts.append("this time comes twice" + (", it is run the first time" if cron.is_wall_clock else ""))
    return "; ".join(parts)


def _local(second: int) -> datetime:
    """Local seconds as a datetime for display."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def _is_ambiguous(second: int, tz: tzinfo) -> bool:
    local = datetime.fromtimestamp(second, tz)
    first, again = (local.replace(fold=fold).utcoffset() for fold in (0, 1))
    return first is not None and again is not None and first > again
