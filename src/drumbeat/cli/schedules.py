"""`drumbeat schedules`: list, show, create, change, pause, resume, delete, run-now, backfill, preview, history."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from drumbeat.cli import completion, output
from drumbeat.cli.audit_scope import current_user, run_audited
from drumbeat.cli.connection import call_app, utc_now
from drumbeat.cli.failures import BadInput
from drumbeat.cli.options import TIMESTAMP, CliTarget, pass_target, reason_option, target_options, watch_option
from drumbeat.cli.resource_group import resource_group
from drumbeat.cli.schedule_options import (
    by_option,
    decode_task_arguments,
    drop_none,
    is_cron_expression,
    rule_options,
    timing_options,
)
from drumbeat.durations import to_iso
from drumbeat.plural import format_count

if TYPE_CHECKING:
    from drumbeat.admin import BackfillResult, ScheduleInfo
    from drumbeat.app import Drumbeat

command = resource_group("schedules", "Schedules: when tasks are enqueued by themselves, and the result of each fire.")


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also retired schedules.")
@watch_option
@target_options
@pass_target
def list_(target: CliTarget, /, everything: bool) -> None:
    """List schedules, by name."""
    from drumbeat.cli.schedule_view import COLUMNS, schedule_row

    output.list_and_show(
        target, lambda app: app.schedules.list(all=everything), COLUMNS, schedule_row, empty="No schedules in {store}."
    )


@command.command("show")
@click.argument("name", shell_complete=completion.schedules)
@target_options
@pass_target
def show(target: CliTarget, /, name: str) -> None:
    """Show one schedule, also a retired one."""
    _report_schedule(target, call_app(target, lambda app: app.schedules.show(name)))


def _report_schedule(target: CliTarget, schedule: ScheduleInfo) -> None:
    if target.json:
        output.print_json(schedule)
        return
    from drumbeat.cli.schedule_view import show_schedule

    show_schedule(schedule, utc_now())


@command.command("create")
@click.argument("task", shell_complete=completion.tasks)
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE | NAME:=JSON]...")
@click.option("--name", metavar="NAME", help="The schedule's name. [the task's]")
@rule_options
@reason_option
@by_option
@target_options
@pass_target
def create(
    target: CliTarget,
    /,
    task: str,
    arguments: tuple[str, ...],
    document: str | None,
    name: str | None,
    by: str | None,
    **options: Any,
) -> None:
    """Create a schedule for a task of an app. Needs --app, or DRUMBEAT_APP.

    \b
      drumbeat schedules create report kind=long --cron "0 3 * * *" --tz Europe/Berlin --app shop:app
    """
    from drumbeat.cli.arguments import parse_arguments

    typed = parse_arguments(arguments, document)
    given = drop_none(options)

    async def create_schedule(app: Drumbeat) -> ScheduleInfo:
        return await app.schedules.create(
            task, name=name, by=by or current_user(), args=decode_task_arguments(app, task, typed), **given
        )

    _report_schedule(target, run_audited(target, "schedules.create", name or task, create_schedule, needs_app=True))


@command.command("change")
@click.argument("name", shell_complete=completion.schedules)
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE | NAME:=JSON]...")
@rule_options
@reason_option
@by_option
@target_options
@pass_target
def change(
    target: CliTarget, /, name: str, arguments: tuple[str, ...], document: str | None, by: str | None, **options: Any
) -> None:
    """Change a schedule that was created at run time; what is not given stays. New arguments need --app."""
    from drumbeat.cli.arguments import parse_arguments

    typed = parse_arguments(arguments, document)
    given = drop_none(options)
    if not given and not typed and document is None:
        raise BadInput("say what to change, such as --cron '0 4 * * *'")

    async def change_schedule(app: Drumbeat) -> ScheduleInfo:
        if typed or document is not None:
            given["args"] = decode_task_arguments(app, (await app.schedules.show(name)).task, typed)
        return await app.schedules.change(name, by=by or current_user(), **given)

    _report_schedule(target, run_audited(target, "schedules.change", name, change_schedule, needs_app=bool(typed)))


@command.command("pause")
@click.argument("name", shell_complete=completion.schedules)
@reason_option
@by_option
@target_options
@pass_target
def pause(target: CliTarget, /, name: str, by: str | None) -> None:
    """Stop a schedule from firing. Its jobs are not affected."""
    done = run_audited(
        target,
        "schedules.pause",
        name,
        lambda app: app.schedules.pause(name, reason=target.reason, by=by or current_user()),
        count_touched=int,
    )
    output.report(target, {"paused": done}, f"Schedule {name} is paused{'' if done else ' already'}.")


@command.command("resume")
@click.argument("name", shell_complete=completion.schedules)
@reason_option
@by_option
@target_options
@pass_target
def resume(target: CliTarget, /, name: str, by: str | None) -> None:
    """Resume a paused schedule. The fires of the pause are recorded as skipped."""
    done = run_audited(
        target,
        "schedules.resume",
        name,
        lambda app: app.schedules.resume(name, by=by or current_user()),
        count_touched=int,
    )
    output.report(
        target, {"resumed": done}, f"Schedule {name} is resumed." if done else f"Schedule {name} was not paused."
    )


@command.command("delete")
@click.argument("name", shell_complete=completion.schedules)
@reason_option
@by_option
@target_options
@pass_target
def delete(target: CliTarget, /, name: str, by: str | None) -> None:
    """Retire a schedule; its history stays. One that code declares returns when an instance of that program starts."""
    run_audited(
        target,
        "schedules.delete",
        name,
        lambda app: app.schedules.delete(name, reason=target.reason, by=by or current_user()),
    )
    output.report(target, {"deleted": True}, f"Schedule {name} is retired.")


@command.command("run-now")
@click.argument("name", shell_complete=completion.schedules)
@reason_option
@target_options
@pass_target
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


@command.command("backfill")
@click.argument("name", shell_complete=completion.schedules)
@click.argument("first", type=TIMESTAMP, metavar="FROM")
@click.argument("last", type=TIMESTAMP, metavar="TO")
@click.option("--force", is_flag=True, help="Also fire times older than the recorded history.")
@reason_option
@target_options
@pass_target
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


@command.command("preview")
@click.argument("rule", metavar="NAME | EXPRESSION", required=False)
@timing_options
@click.option("--count", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Number of fires.")
@click.option("--name", metavar="NAME", help="The schedule's name, which H in a cron expression depends on.")
@target_options
@pass_target
def preview(
    target: CliTarget, /, rule: str | None, cron: str | None, count: int, name: str | None, **options: Any
) -> None:
    """Show the next fires of a schedule, or of a rule (without a store).

    \b
      drumbeat schedules preview nightly
      drumbeat schedules preview "0 3 * * *" --tz Europe/Berlin
      drumbeat schedules preview --every 90m --grid
    """
    given = drop_none(options)
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
    from drumbeat.cli.schedule_view import PREVIEW_COLUMNS, preview_row

    output.show_list(target, found, PREVIEW_COLUMNS, preview_row, empty="It will not fire again.")


@command.command("history")
@click.argument("name", shell_complete=completion.schedules)
@click.option("--before", type=TIMESTAMP, help="Only fires before this time: the next page.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Number of fires.")
@watch_option
@target_options
@pass_target
def history(target: CliTarget, /, name: str, before: datetime | None, limit: int) -> None:
    """Show the fires of a schedule and the result of each, newest first."""
    from drumbeat.cli.schedule_view import FIRE_COLUMNS, fire_row

    output.list_and_show(
        target,
        lambda app: app.schedules.history(name, before=before, limit=limit),
        FIRE_COLUMNS,
        fire_row,
        empty=f"No fire of {name} is on record.",
        limit=limit,
        cursor=lambda fire: to_iso(fire.at),
    )
