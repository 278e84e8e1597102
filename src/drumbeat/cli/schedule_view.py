"""Schedules, their moments and what became of these, as rows and pages."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from drumbeat.cli import formatting, output
from drumbeat.cli.job_view import format_error

if TYPE_CHECKING:
    from drumbeat.admin import FireInfo, ScheduleInfo
    from drumbeat.schedules.preview import PreviewedFire

COLUMNS = output.Columns(
    names=("schedule", "task", "state", "when", "next (UTC)", "last (UTC)", "from"),
    elastic=frozenset({"schedule", "task", "when", "from"}),
    droppable=("from", "last (UTC)", "task"),
)
FIRE_COLUMNS = output.Columns(
    names=("moment (UTC)", "outcome", "late", "job", "state", "took", "instance", "error"),
    elastic=frozenset({"outcome", "error"}),
    droppable=("instance", "took", "late"),
)
PREVIEW_COLUMNS = output.Columns(names=("moment", "UTC", "in", "note"), droppable=("in",))


def schedule_row(schedule: ScheduleInfo, moment: datetime) -> list[str]:
    return [
        formatting.format_value(schedule.name, 40),
        formatting.format_value(schedule.task, 40),
        str(schedule.state),
        formatting.format_value(schedule.when, 60),
        formatting.format_timestamp(schedule.next_at, moment),
        formatting.format_timestamp(schedule.last_at, moment),
        _format_origin(schedule),
    ]


def _format_origin(schedule: ScheduleInfo) -> str:
    app = formatting.format_value(f"{schedule.app} {schedule.version}".strip(), 40)
    return f"code of {app}" if schedule.origin == "code" else formatting.format_value(schedule.changed_by, 40)


def show_schedule(schedule: ScheduleInfo, moment: datetime) -> None:
    """Everything about one schedule."""
    facts = {
        "schedule": formatting.format_value(schedule.name, 100),
        "task": formatting.format_value(schedule.task, 100),
        "state": str(schedule.state)
        + (f": {formatting.format_value(schedule.reason, 200)}" if schedule.reason else ""),
        "when": formatting.format_value(schedule.when, 300),
        "next": formatting.format_exact(schedule.next_at, moment),
        "last": formatting.format_exact(schedule.last_at, moment),
        "job": formatting.format_value(schedule.job),
        "catch up": _format_catch_up(schedule),
        "overlap": str(schedule.overlap),
        "jitter": f"{schedule.jitter:g} s" if schedule.jitter else formatting.EMPTY,
        "start": formatting.format_exact(schedule.start, moment),
        "end": formatting.format_exact(schedule.end, moment),
        "queue": formatting.format_value(schedule.queue),
        "priority": str(schedule.priority),
        "retries": formatting.format_value(schedule.retries),
        "timeout": formatting.EMPTY if schedule.timeout is None else f"{schedule.timeout:g} s",
        "from": _format_origin(schedule),
        "changed": f"{formatting.format_exact(schedule.changed_at, moment)} by {formatting.format_value(schedule.changed_by, 100)}",
        "declared": formatting.format_exact(schedule.declared_at, moment),
    }
    output.show_page(
        {name: value for name, value in facts.items() if value != formatting.EMPTY},
        {"Arguments": formatting.format_arguments_indented(schedule.args)},
    )


def _format_catch_up(schedule: ScheduleInfo) -> str:
    limit = f", at most {schedule.catch_up_limit}" if schedule.catch_up == "all" else ""
    late = "" if schedule.max_late is None else f", none older than {schedule.max_late:g} s"
    return f"{schedule.catch_up}{limit}{late}"


def preview_rows(found: list[PreviewedFire], moment: datetime) -> list[list[str]]:
    return [
        [
            f"{each.at:%a %Y-%m-%d %H:%M:%S %Z}",
            formatting.format_exact(each.at, moment).split(" (")[0],
            formatting.format_ago(each.at, moment),
            each.note,
        ]
        for each in found
    ]


def fire_row(fire: FireInfo, moment: datetime) -> list[str]:
    many = f" ({formatting.format_count(fire.count, 'moment')})" if fire.count > 1 else ""
    return [
        formatting.format_timestamp(fire.at, moment),
        f"{fire.outcome}{many}" + (f": {formatting.format_value(fire.reason)}" if fire.reason else ""),
        f"{fire.late:.3f} s",
        formatting.format_value(fire.job),
        formatting.format_value(fire.state),
        formatting.format_elapsed(fire.started_at, fire.finished_at),
        formatting.format_value(fire.instance),
        format_error(fire.error),
    ]
