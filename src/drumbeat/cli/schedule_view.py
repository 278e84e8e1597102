"""Schedules, their fires and previews as rows and pages."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from drumbeat.cli import formatting, output
from drumbeat.durations import format_utc
from drumbeat.plural import format_count

if TYPE_CHECKING:
    from drumbeat.admin import FireInfo, ScheduleInfo
    from drumbeat.schedules.preview import PreviewedFire

COLUMNS = output.TableColumns(
    names=("schedule", "task", "state", "when", "next (UTC)", "last (UTC)", "from"),
    elastic=frozenset({"schedule", "task", "when", "from"}),
    droppable=("from", "last (UTC)", "task"),
)
FIRE_COLUMNS = output.TableColumns(
    names=("fire time (UTC)", "outcome", "late", "job", "state", "took", "instance", "error"),
    elastic=frozenset({"outcome", "error"}),
    droppable=("instance", "took", "late"),
)
PREVIEW_COLUMNS = output.TableColumns(names=("fire time", "UTC", "in", "note"), droppable=("in",))


def schedule_row(schedule: ScheduleInfo, now: datetime) -> list[str]:
    return [
        formatting.format_value(schedule.name, 40),
        formatting.format_value(schedule.task, 40),
        str(schedule.state),
        formatting.format_value(schedule.when, 60),
        formatting.format_timestamp(schedule.next_at, now),
        formatting.format_timestamp(schedule.last_at, now),
        _format_origin(schedule),
    ]


def _format_origin(schedule: ScheduleInfo) -> str:
    app = formatting.format_value(f"{schedule.app} {schedule.version}".strip(), 40)
    return f"code of {app}" if schedule.origin == "code" else formatting.format_value(schedule.changed_by, 40)


def show_schedule(schedule: ScheduleInfo, now: datetime) -> None:
    """Everything about one schedule."""
    changed_by = formatting.format_value(schedule.changed_by, 100)
    facts = {
        "schedule": formatting.format_value(schedule.name, 100),
        "task": formatting.format_value(schedule.task, 100),
        "state": str(schedule.state)
        + (f": {formatting.format_value(schedule.reason, 200)}" if schedule.reason else ""),
        "when": formatting.format_value(schedule.when, 300),
        "next": formatting.format_exact(schedule.next_at, now),
        "last": formatting.format_exact(schedule.last_at, now),
        "job": formatting.format_value(schedule.job),
        "catch up": _format_catch_up(schedule),
        "overlap": str(schedule.overlap),
        "jitter": formatting.format_seconds(schedule.jitter or None),
        "start": formatting.format_exact(schedule.start, now),
        "end": formatting.format_exact(schedule.end, now),
        "queue": formatting.format_value(schedule.queue),
        "priority": str(schedule.priority),
        "retries": formatting.format_value(schedule.retries),
        "timeout": formatting.format_seconds(schedule.timeout),
        "from": _format_origin(schedule),
        "changed": f"{formatting.format_exact(schedule.changed_at, now)} by {changed_by}",
        "declared": formatting.format_exact(schedule.declared_at, now),
    }
    output.show_page(
        {name: value for name, value in facts.items() if value != formatting.EMPTY},
        {"Arguments": formatting.format_arguments_indented(schedule.args)},
    )


def _format_catch_up(schedule: ScheduleInfo) -> str:
    limit = f", at most {schedule.catch_up_limit}" if schedule.catch_up == "all" else ""
    late = "" if schedule.max_late is None else f", none older than {formatting.format_seconds(schedule.max_late)}"
    return f"{schedule.catch_up}{limit}{late}"


def preview_row(fire: PreviewedFire, now: datetime) -> list[str]:
    local = f"{fire.at:%a %Y-%m-%d %H:%M:%S %Z}"
    return [local, format_utc(fire.at, milliseconds=True), formatting.format_ago(fire.at, now), fire.note]


def fire_row(fire: FireInfo, now: datetime) -> list[str]:
    many = f" ({format_count(fire.count, 'fire')})" if fire.count > 1 else ""
    return [
        formatting.format_timestamp(fire.at, now),
        f"{fire.outcome}{many}" + (f": {formatting.format_value(fire.reason)}" if fire.reason else ""),
        formatting.format_seconds(fire.late),
        formatting.format_value(fire.job),
        formatting.format_value(fire.state),
        formatting.format_elapsed(fire.started_at, fire.finished_at),
        formatting.format_value(fire.instance),
        formatting.format_error(fire.error),
    ]
