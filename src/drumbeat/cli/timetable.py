"""Schedules, their moments and what became of these, as rows and pages."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from drumbeat.cli import output, words
from drumbeat.cli.page import error_line

if TYPE_CHECKING:
    from drumbeat.nouns import FireInfo, ScheduleInfo
    from drumbeat.schedules.preview import Previewed

COLUMNS = output.Columns(
    names=("schedule", "task", "state", "when", "next (UTC)", "last (UTC)", "from"),
    elastic=frozenset({"schedule", "task", "when", "from"}),
    spare=("from", "last (UTC)", "task"),
)
FIRE_COLUMNS = output.Columns(
    names=("moment (UTC)", "outcome", "late", "job", "state", "took", "instance", "error"),
    elastic=frozenset({"outcome", "error"}),
    spare=("instance", "took", "late"),
)
PREVIEW_COLUMNS = output.Columns(names=("moment", "UTC", "in", "note"), spare=("in",))


def row(schedule: ScheduleInfo, moment: datetime) -> list[str]:
    return [
        words.word(schedule.name, 40),
        words.word(schedule.task, 40),
        str(schedule.state),
        words.word(schedule.when, 60),
        words.when(schedule.next_at, moment),
        words.when(schedule.last_at, moment),
        _origin(schedule),
    ]


def _origin(schedule: ScheduleInfo) -> str:
    app = words.word(f"{schedule.app} {schedule.version}".strip(), 40)
    return f"code of {app}" if schedule.origin == "code" else words.word(schedule.changed_by, 40)


def show_schedule(schedule: ScheduleInfo, moment: datetime) -> None:
    """Everything about one schedule."""
    facts = {
        "schedule": words.word(schedule.name, 100),
        "task": words.word(schedule.task, 100),
        "state": str(schedule.state) + (f": {words.word(schedule.why, 200)}" if schedule.why else ""),
        "when": words.word(schedule.when, 300),
        "next": words.exactly(schedule.next_at, moment),
        "last": words.exactly(schedule.last_at, moment),
        "job": words.word(schedule.job),
        "catch up": _catch_up(schedule),
        "overlap": str(schedule.overlap),
        "jitter": f"{schedule.jitter:g} s" if schedule.jitter else words.NOTHING,
        "start": words.exactly(schedule.start, moment),
        "end": words.exactly(schedule.end, moment),
        "queue": words.word(schedule.queue),
        "priority": str(schedule.priority),
        "retries": words.word(schedule.retries),
        "timeout": words.NOTHING if schedule.timeout is None else f"{schedule.timeout:g} s",
        "from": _origin(schedule),
        "changed": f"{words.exactly(schedule.changed_at, moment)} by {words.word(schedule.changed_by, 100)}",
        "declared": words.exactly(schedule.declared_at, moment),
    }
    output.show_page(
        {name: value for name, value in facts.items() if value != words.NOTHING},
        {"Arguments": words.pretty_arguments(schedule.args)},
    )


def _catch_up(schedule: ScheduleInfo) -> str:
    limit = f", at most {schedule.catch_up_limit}" if schedule.catch_up == "all" else ""
    late = "" if schedule.max_late is None else f", none older than {schedule.max_late:g} s"
    return f"{schedule.catch_up}{limit}{late}"


def preview_rows(found: list[Previewed], moment: datetime) -> list[list[str]]:
    return [
        [
            f"{each.at:%a %Y-%m-%d %H:%M:%S %Z}",
            words.exactly(each.at, moment).split(" (")[0],
            words.ago(each.at, moment),
            each.note,
        ]
        for each in found
    ]


def fire_row(fire: FireInfo, moment: datetime) -> list[str]:
    many = f" ({words.count(fire.count, 'moment')})" if fire.count > 1 else ""
    return [
        words.when(fire.at, moment),
        f"{fire.outcome}{many}" + (f": {words.word(fire.reason)}" if fire.reason else ""),
        f"{fire.late:.3f} s",
        words.word(fire.job),
        words.word(fire.state),
        words.took(fire.started_at, fire.finished_at),
        words.word(fire.instance),
        error_line(fire.error),
    ]
