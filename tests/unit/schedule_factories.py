"""Definitions and schedules for tests of the pure part."""

from datetime import datetime
from typing import Any

from drumbeat.core.schedule import NewSchedule, RuleKind, Schedule, ScheduleState
from drumbeat.durations import to_us
from drumbeat.ids import JobId

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND


def parse_us(text: str) -> int:
    """A moment as text with an offset."""
    return to_us(datetime.fromisoformat(text))


def cron(rule: str, **more: Any) -> NewSchedule:
    return definition(RuleKind.CRON, rule, **more)


def grid(step: int, **more: Any) -> NewSchedule:
    return definition(RuleKind.GRID, str(step), **more)


def after(step: int, **more: Any) -> NewSchedule:
    return definition(RuleKind.AFTER, str(step), **more)


def definition(kind: RuleKind, rule: str, **more: Any) -> NewSchedule:
    given = {"name": "nightly", "task": "report", "queue": "default", "args": "{}", "signature": "s", **more}
    return NewSchedule(kind=kind, rule=rule, **given)


def build_schedule(made: NewSchedule, *, next_at: int | None, cursor: int | None = None, **more: Any) -> Schedule:
    given = {"state": ScheduleState.ACTIVE, "revision": 1, "current": None, "declared_at": None, **more}
    return Schedule(definition=made, cursor=cursor, next_at=next_at, created_at=0, changed_at=0, **given)


def sequential_ids() -> Any:
    """A maker of ids that are told apart."""
    numbers = iter(range(1_000_000))
    return lambda now: JobId(f"{now}-{next(numbers)}")
