"""Definitions of schedules from the options of `app.schedules`: a new one, a changed one, a draft for a preview. No I/O."""

from __future__ import annotations

from typing import Any

import msgspec

from drumbeat.client import Client
from drumbeat.core.schedule import NewSchedule, RuleKind
from drumbeat.durations import SECOND_US, Duration
from drumbeat.errors import InvalidArguments
from drumbeat.schedules.rules import check_definition
from drumbeat.tasks import Task, schedule_options


class RuleOptions(schedule_options.TimingOptions, schedule_options.ScheduleJobOptions, total=False):
    """The options of a schedule: its rule, and what `@app.cron` and `@app.every` take."""

    cron: str
    every: Duration
    grid: bool
    tz: str
    args: schedule_options.Args


def new_definition(client: Client, task: Task[..., Any], name: str | None, options: RuleOptions) -> NewSchedule:
    fields = _parse_rule(options) | _parse_options(options)
    made = schedule_options.build_definition(task.name if name is None else name, task, fields)
    return _complete_definition(client, made, task, options.get("args", ()))


def change_definition(client: Client, old: NewSchedule, options: RuleOptions) -> NewSchedule:
    """The old definition with the given options; what is not given stays."""
    fields = _parse_options(options)
    if {"cron", "every", "grid"} & options.keys():
        every: Any = options.get("every")
        if every is None and "cron" not in options and old.kind is not RuleKind.CRON:
            every = int(old.rule) / SECOND_US
        grid = options.get("grid", "cron" not in options and old.kind is RuleKind.GRID)
        fields |= schedule_options.parse_rule(options.get("cron"), every, grid, options.get("tz", old.tz))
    elif "tz" in options:
        fields["tz"] = options["tz"]
    made = msgspec.structs.replace(old, **fields)
    if made.queue != old.queue:
        made = msgspec.structs.replace(made, lane="")  # another policy stands over it there, or none: its workers know
    if "args" in options:
        return _complete_definition(client, made, client.registry[old.task], options["args"])
    check_definition(made)
    return made


def draft_definition(name: str | None, options: RuleOptions) -> NewSchedule:
    """A definition without a task, for a preview."""
    base = NewSchedule(
        name=name or "preview", task="preview", kind=RuleKind.CRON, rule="", queue="preview", args="{}", signature=""
    )
    made = msgspec.structs.replace(base, **_parse_rule(options), **schedule_options.parse_timing(options))
    check_definition(made)
    return made


def _parse_rule(options: RuleOptions) -> schedule_options.Fields:
    return schedule_options.parse_rule(
        options.get("cron"), options.get("every"), options.get("grid", False), options.get("tz", "UTC")
    )


def _parse_options(options: RuleOptions) -> schedule_options.Fields:
    if unknown := set(options) - set(RuleOptions.__annotations__):
        raise InvalidArguments(
            f"a schedule has no {min(unknown)!r}; it has {', '.join(RuleOptions.__annotations__)}", min(unknown)
        )
    return schedule_options.parse_timing(options) | schedule_options.parse_job_options(options)


def _complete_definition(
    client: Client, made: NewSchedule, task: Task[..., Any], args: schedule_options.Args
) -> NewSchedule:
    check_definition(made)
    if made.queue not in client.declared_queues():
        known = ", ".join(sorted(client.declared_queues()))
        raise InvalidArguments(f"there is no queue {made.queue!r}; known are {known}", "queue")
    by_position, by_name = schedule_options.parse_args(args)
    return schedule_options.complete_definition(made, task, by_position, by_name, client.settings)
