"""Schedules, their fires and previews as rows and pages."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from drumbeat.cli import formatting, output
from drumbeat.cli.output import Column
from drumbeat.durations import format_utc
from drumbeat.plural import format_count

if TYPE_CHECKING:
    from drumbeat.admin import FireInfo, ScheduleInfo
    from drumbeat.schedules.preview import PreviewedFire


def _format_origin(schedule: ScheduleInfo) -> str:
    app = formatting.format_value(f"{schedule.app} {schedule.version}".strip(), 40)
    return f"code of {app}" if schedule.origin == "code" else formatting.format_value(schedule.changed_by, 40)


def _format_outcome(fire: FireInfo) -> str:
    many = f" ({format_count(fire.count, 'fire')})" if fire.count > 1 else ""
    return f"{fire.outcome}{many}" + (f": {formatting.format_value(fire.reason)}" if fire.reason else "")


SCHEDULES: output.TextTable[ScheduleInfo] = output.TextTable(
    Column("schedule", lambda schedule, _: formatting.format_value(schedule.name, 40), elastic=True),
    Column("task", lambda schedule, _: formatting.format_value(schedule.task, 40), elastic=True, drop=3),
    Column("state", lambda schedule, _: str(schedule.state)),
    Column("when", lambda schedule, _: formatting.format_value(schedule.when, 60), elastic=True),
    Column("next (UTC)", lambda schedule, now: formatting.format_timestamp(schedule.next_at, now)),
    Column("last (UTC)", lambda schedule, now: formatting.format_timestamp(schedule.last_at, now), drop=2),
    Column("from", lambda schedule, _: _format_origin(schedule), elastic=True, drop=1),
)
FIRES: output.TextTable[FireInfo] = output.TextTable(
    Column("fire time (UTC)", lambda fire, now: formatting.format_timestamp(fire.at, now)),
    Column("outcome", lambda fire, _: _format_outcome(fire), elastic=True),
    Column("late", lambda fire, _: formatting.format_seconds(fire.late), drop=3),
    Column("job", lambda fire, _: formatting.format_value(fire.job)),
    Column("state", lambda fire, _: formatting.format_value(fire.state)),
    Column("took", lambda fire, _: formatting.format_elapsed(fire.started_at, fire.finished_at), drop=2),
    Column("instance", lambda fire, _: formatting.format_value(fire.instance), drop=1),
    Column("error", lambda fire, _: formatting.format_error(fire.error), elastic=True),
)
PREVIEW: output.TextTable[PreviewedFire] = output.TextTable(
    Column("fire time", lambda fire, _: f"{fire.at:%a %Y-%m-%d %H:%M:%S %Z}"),
    Column("UTC", lambda fire, _: format_utc(fire.at, milliseconds=True)),
    Column("in", lambda fire, now: formatting.format_ago(fire.at, now), drop=1),
    Column("note", lambda fire, _: fire.note),
)


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
    output.show_page({}, facts, {"Arguments": formatting.format_arguments_indented(schedule.args)})


def _format_catch_up(schedule: ScheduleInfo) -> str:
    limit = f", at most {schedule.catch_up_limit}" if schedule.catch_up == "all" else ""
    late = "" if schedule.max_late is None else f", none older than {formatting.format_seconds(schedule.max_late)}"
    return f"{schedule.catch_up}{limit}{late}"
