"""`drumbeat schedules`: list, show, create, change, pause, resume, delete, run-now, backfill, preview, history."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from drumbeat.cli import completion, options, output
from drumbeat.cli.audit_scope import run_audited
from drumbeat.cli.connection import call_app
from drumbeat.cli.failures import BadInput
from drumbeat.cli.options import CliTarget, argument, drop_none, option, reason_option, watch_option
from drumbeat.cli.resource_group import ResourceGroup
from drumbeat.cli.schedule_options import (
    by_option,
    decode_task_arguments,
    is_cron_expression,
    rule_options,
    timing_options,
)
from drumbeat.durations import to_iso
from drumbeat.plural import format_count

if TYPE_CHECKING:
    from drumbeat.admin import BackfillResult, ScheduleInfo
    from drumbeat.app import Drumbeat

command = ResourceGroup("schedules", "Schedules: when tasks are enqueued by themselves, and the result of each fire.")
name_argument = argument("name", shell_complete=completion.schedules)


@command.verb("list", watch_option)
@click.option("--all", "everything", is_flag=True, help="Also retired schedules.")
def list_(target: CliTarget, /, everything: bool) -> None:
    """List schedules, by name."""
    from drumbeat.cli.schedule_view import SCHEDULES

    empty = "No schedules in {store}."
    output.list_and_show(target, lambda app: app.schedules.list(all=everything), SCHEDULES, empty=empty)


@command.verb("show", name_argument)
def show(target: CliTarget, /, name: str) -> None:
    """Show one schedule, also a retired one."""
    _report_schedule(target, call_app(target, lambda app: app.schedules.show(name)))


def _report_schedule(target: CliTarget, schedule: ScheduleInfo) -> None:
    from drumbeat.cli.schedule_view import show_schedule

    output.show_record(target, schedule, show_schedule)


@command.verb(
    "create",
    argument("task", shell_complete=completion.tasks),
    options.arguments_argument,
    option("--name", metavar="NAME", help="The schedule's name. [the task's]"),
    option("--replace", is_flag=True, help="Replace a schedule of this name that was created at run time."),
    *rule_options,
    reason_option,
    by_option,
)
def create(
    target: CliTarget, /, task: str, arguments: tuple[str, ...], document: str | None, name: str | None, **given: Any
) -> None:
    """Create a schedule for a task of an app. Needs --app, or DRUMBEAT_APP.

    \b
      drumbeat schedules create report kind=long --cron "0 3 * * *" --tz Europe/Berlin --app shop:app
    """
    from drumbeat.cli.arguments import parse_arguments

    typed = parse_arguments(arguments, document)

    async def create_schedule(app: Drumbeat) -> ScheduleInfo:
        args = decode_task_arguments(app, task, typed)
        return await app.schedules.create(task, name=name, args=args, **drop_none(given))

    _report_schedule(target, run_audited(target, "schedules.create", name or task, create_schedule, needs_app=True))


@command.verb("change", name_argument, options.arguments_argument, *rule_options, reason_option, by_option)
def change(
    target: CliTarget, /, name: str, arguments: tuple[str, ...], document: str | None, by: str, **given: Any
) -> None:
    """Change a schedule that was created at run time; what is not given stays. New arguments need --app."""
    from drumbeat.cli.arguments import parse_arguments

    typed = parse_arguments(arguments, document)
    given = drop_none(given)
    if not given and not typed and document is None:
        raise BadInput("say what to change, such as --cron '0 4 * * *'")

    async def change_schedule(app: Drumbeat) -> ScheduleInfo:
        if typed or document is not None:
            given["args"] = decode_task_arguments(app, (await app.schedules.show(name)).task, typed)
        return await app.schedules.change(name, by=by, **given)

    _report_schedule(target, run_audited(target, "schedules.change", name, change_schedule, needs_app=bool(typed)))


@command.verb("pause", name_argument, reason_option, by_option)
def pause(target: CliTarget, /, name: str, by: str) -> None:
    """Stop a schedule from firing. Its jobs are not affected."""
    done = run_audited(
        target, "schedules.pause", name, lambda app: app.schedules.pause(name, reason=target.reason, by=by)
    )
    output.report(target, {"paused": done}, f"Schedule {name} is paused{'' if done else ' already'}.")


@command.verb("resume", name_argument, reason_option, by_option)
def resume(target: CliTarget, /, name: str, by: str) -> None:
    """Resume a paused schedule. The fires of the pause are recorded as skipped."""
    done = run_audited(target, "schedules.resume", name, lambda app: app.schedules.resume(name, by=by))
    output.report(target, {"resumed": done}, f"Schedule {name} {'is resumed' if done else 'was not paused'}.")


@command.verb("delete", name_argument, reason_option, by_option)
def delete(target: CliTarget, /, name: str, by: str) -> None:
    """Retire a schedule; its history stays. One that code declares returns when an instance of that program starts."""
    run_audited(target, "schedules.delete", name, lambda app: app.schedules.delete(name, reason=target.reason, by=by))
    output.report(target, {"deleted": True}, f"Schedule {name} is retired.")


@command.verb("run-now", name_argument, reason_option)
def run_now(target: CliTarget, /, name: str) -> None:
    """Enqueue a schedule's job at once, in addition to its own fires. Prints the job's id."""
    job = run_audited(
        target,
        "schedules.run_now",
        name,
        lambda app: app.schedules.run_now(name),
        to_answer=lambda job: json.dumps({"id": job.id}),
    )
    output.report(target, {"id": job.id, "created": job.created}, job.id)


@command.verb(
    "backfill",
    name_argument,
    argument("first", type=options.TIMESTAMP, metavar="FROM"),
    argument("last", type=options.TIMESTAMP, metavar="TO"),
    option("--force", is_flag=True, help="Also fire times older than the recorded history."),
    reason_option,
)
def backfill(target: CliTarget, /, name: str, first: datetime, last: datetime, force: bool) -> None:
    """Fire what was missed between two times, as far as --overlap allows.

    \b
      drumbeat schedules backfill nightly 2026-11-01T00:00Z 2026-11-08T00:00Z
    """
    filled: BackfillResult = run_audited(
        target,
        "schedules.backfill",
        f"{name} {first.isoformat()} to {last.isoformat()}",
        lambda app: app.schedules.backfill(name, first, last, force=force),
        count_touched=lambda filled: len(filled.jobs),
    )
    output.report(
        target,
        filled,
        f"{format_count(len(filled.jobs), 'job')} enqueued, {format_count(filled.skipped, 'fire')} skipped: "
        "fired before, or not allowed by overlap.",
    )


@command.verb(
    "preview",
    argument("rule", metavar="NAME | EXPRESSION", required=False),
    *timing_options,
    option("--count", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Number of fires."),
    option("--name", metavar="NAME", help="The schedule's name, which H in a cron expression depends on."),
)
def preview(
    target: CliTarget, /, rule: str | None, cron: str | None, count: int, name: str | None, **given: Any
) -> None:
    """Show the next fires of a schedule, or of a rule (without a store).

    \b
      drumbeat schedules preview nightly
      drumbeat schedules preview "0 3 * * *" --tz Europe/Berlin
      drumbeat schedules preview --every 90m --grid
    """
    given = drop_none(given)
    if rule is not None and is_cron_expression(rule):
        cron, rule = rule, None
    if cron is not None:
        given["cron"] = cron
    if rule is not None and given:
        raise BadInput("say which schedule, or a rule, not both")
    if rule is None and not given:
        raise BadInput("say which schedule, or a rule such as '0 3 * * *'")
    if rule is not None:
        found = call_app(target, lambda app: app.schedules.preview(rule, count=count))
    else:
        from drumbeat.app import Drumbeat

        found = asyncio.run(Drumbeat().schedules.preview(name, count=count, **given))
    from drumbeat.cli.schedule_view import PREVIEW

    output.show_list(target, found, PREVIEW, empty="It will not fire again.")


@command.verb(
    "history",
    name_argument,
    option("--before", type=options.TIMESTAMP, help="Only fires before this time: the next page."),
    options.limit_option(10_000, "fires"),
    watch_option,
)
def history(target: CliTarget, /, name: str, before: datetime | None, limit: int) -> None:
    """Show the fires of a schedule and the result of each, newest first."""
    from drumbeat.cli.schedule_view import FIRES

    output.list_and_show(
        target,
        lambda app: app.schedules.history(name, before=before, limit=limit),
        FIRES,
        empty=f"No fire of {name} is on record.",
        limit=limit,
        cursor=lambda fire: to_iso(fire.at),
    )
