"""`drumbeat schedules`: list, show, create, change, pause, resume, delete, run-now, backfill, preview, history."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.audit_scope import current_user, run_audited
from drumbeat.cli.connection import call_and_show, call_app, utc_now
from drumbeat.cli.failures import BadInput
from drumbeat.cli.options import (
    DURATION,
    NAME,
    TIMESTAMP,
    CliTarget,
    F,
    pass_target,
    reason_option,
    target_options,
    watch_option,
)
from drumbeat.cli.resource_group import resource_group

if TYPE_CHECKING:
    from drumbeat.admin import BackfillResult, FireInfo, ScheduleInfo
    from drumbeat.app import Drumbeat

command = resource_group("schedules", "Schedules: when tasks run by themselves, and what became of each moment.")


def _rule_options(command: F) -> F:
    """What `@app.cron` and `@app.every` take."""
    for option in (
        click.option("--timeout", type=DURATION, help="Of its jobs, instead of the task's own."),
        click.option("--retries", type=click.IntRange(min=0), help="Likewise."),
        click.option("--priority", type=click.IntRange(0, 9), help="Likewise."),
        click.option("--queue", type=NAME, help="Likewise."),
        click.option("--end", type=TIMESTAMP, help="No moment at or after this."),
        click.option("--start", type=TIMESTAMP, help="No moment before this."),
        click.option("--jitter", type=DURATION, help="Each job is due up to so much later."),
        click.option(
            "--overlap",
            type=click.Choice(["skip", "queue", "allow", "cancel"]),
            help="What if the job before is not done. [skip]",
        ),
        click.option("--max-late", type=DURATION, help="Skip a moment that is older."),
        click.option("--catch-up-limit", type=click.IntRange(1, 1_000), help="With --catch-up all. [100]"),
        click.option(
            "--catch-up", type=click.Choice(["latest", "none", "all"]), help="Moments nobody was there for. [latest]"
        ),
        click.option("--args", "document", metavar="JSON", help="All arguments as one JSON object."),
        _timing_options,
    ):
        command = option(command)
    return command


def _timing_options(command: F) -> F:
    for option in (
        click.option("--tz", metavar="ZONE", help="Time zone of --cron, such as Europe/Berlin. [UTC]"),
        click.option(
            "--grid/--no-grid", default=None, help="With --every: at fixed moments, not counted from the end of a run."
        ),
        click.option("--every", type=DURATION, help="An interval, such as 30s, 5m or 1h30m."),
        click.option("--cron", metavar="EXPRESSION", help="Such as '0 3 * * *'."),
    ):
        command = option(command)
    return command


_by_option = click.option("--by", metavar="NAME", help="Who does it; shown with the schedule.")


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that are retired.")
@watch_option
@target_options
@pass_target
def list_(target: CliTarget, /, everything: bool) -> None:
    """List schedules, by name."""
    call_and_show(
        target, lambda app: app.schedules.list(all=everything), lambda schedules: _show_list(target, schedules)
    )


def _show_list(target: CliTarget, schedules: list[ScheduleInfo]) -> None:
    if target.json:
        output.print_json_lines(schedules)
        return
    from drumbeat.cli.schedule_view import COLUMNS, schedule_row

    moment = utc_now()
    rows = [schedule_row(schedule, moment) for schedule in schedules]
    output.show_table(COLUMNS, rows, empty=f"No schedules in {target.store_url}.")


@command.command("show")
@click.argument("name", shell_complete=completion.schedules)
@target_options
@pass_target
def show(target: CliTarget, /, name: str) -> None:
    """Show one schedule, also one that is retired."""
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
@_rule_options
@reason_option
@_by_option
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
    """Make a schedule for a task of an app. Needs --app, or DRUMBEAT_APP.

    \b
      drumbeat schedules create report kind=long --cron "0 3 * * *" --tz Europe/Berlin --app shop:app
    """
    from drumbeat.cli.arguments import parse_arguments

    typed = parse_arguments(arguments, document)
    given = _drop_none(options)

    async def made(app: Drumbeat) -> ScheduleInfo:
        return await app.schedules.create(
            task, name=name, by=by or current_user(), args=_decode_args(app, task, typed), **given
        )

    _report_schedule(target, run_audited(target, "schedules.create", name or task, made, needs_app=True))


@command.command("change")
@click.argument("name", shell_complete=completion.schedules)
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE | NAME:=JSON]...")
@_rule_options
@reason_option
@_by_option
@target_options
@pass_target
def change(
    target: CliTarget, /, name: str, arguments: tuple[str, ...], document: str | None, by: str | None, **options: Any
) -> None:
    """Change a schedule that was made at run time; what is not given stays. New arguments need --app."""
    from drumbeat.cli.arguments import parse_arguments

    typed = parse_arguments(arguments, document)
    given = _drop_none(options)
    if not given and not typed and document is None:
        raise BadInput("say what to change, such as --cron '0 4 * * *'")

    async def changed(app: Drumbeat) -> ScheduleInfo:
        if typed or document is not None:
            given["args"] = _decode_args(app, (await app.schedules.show(name)).task, typed)
        return await app.schedules.change(name, by=by or current_user(), **given)

    _report_schedule(target, run_audited(target, "schedules.change", name, changed, needs_app=bool(typed)))


def _drop_none(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _decode_args(app: Drumbeat, task: str, typed: Any) -> tuple[Any, ...] | dict[str, Any]:
    from drumbeat.cli.arguments import decode_by_signature
    from drumbeat.codec import Signature

    signature = app._internals.registry[task].signature
    if not isinstance(signature, Signature):
        raise BadInput(f"task {task} is called by the death of a job, and in no other way")
    by_place, by_name = decode_by_signature(signature, task, typed)
    if by_place and by_name:
        raise BadInput(
            f"task {task} takes some arguments only by place and some by name: no schedule can be made for it here"
        )
    return tuple(by_place) if by_place else by_name


@command.command("pause")
@click.argument("name", shell_complete=completion.schedules)
@reason_option
@_by_option
@target_options
@pass_target
def pause(target: CliTarget, /, name: str, by: str | None) -> None:
    """Fire nothing of a schedule from now on. Jobs that are there go on."""
    done = run_audited(
        target,
        "schedules.pause",
        name,
        lambda app: app.schedules.pause(name, reason=target.reason, by=by or current_user()),
        count_touched=int,
    )
    _report(target, {"paused": done}, f"Schedule {name} is paused{'' if done else ' already'}.")


@command.command("resume")
@click.argument("name", shell_complete=completion.schedules)
@reason_option
@_by_option
@target_options
@pass_target
def resume(target: CliTarget, /, name: str, by: str | None) -> None:
    """Go on with a paused schedule. The moments of the pause are skipped, on record."""
    done = run_audited(
        target,
        "schedules.resume",
        name,
        lambda app: app.schedules.resume(name, by=by or current_user()),
        count_touched=int,
    )
    _report(target, {"resumed": done}, f"Schedule {name} goes on." if done else f"Schedule {name} was not paused.")


@command.command("delete")
@click.argument("name", shell_complete=completion.schedules)
@reason_option
@_by_option
@target_options
@pass_target
def delete(target: CliTarget, /, name: str, by: str | None) -> None:
    """Retire a schedule; its record stays. One that code declares comes back when an instance of that program starts."""
    run_audited(
        target,
        "schedules.delete",
        name,
        lambda app: app.schedules.delete(name, reason=target.reason, by=by or current_user()),
    )
    _report(target, {"deleted": True}, f"Schedule {name} is retired.")


def _report(target: CliTarget, answer: object, line: str) -> None:
    if target.json:
        output.print_json(answer)
    else:
        output.print_line(line)


@command.command("run-now")
@click.argument("name", shell_complete=completion.schedules)
@reason_option
@target_options
@pass_target
def run_now(target: CliTarget, /, name: str) -> None:
    """Enqueue a schedule's job at once, beside its own moments. Prints the job's id."""
    job = run_audited(
        target,
        "schedules.run_now",
        name,
        lambda app: app.schedules.run_now(name),
        to_answer=lambda job: json.dumps({"id": job.id}),
    )
    _report(target, {"id": job.id, "created": job.created}, job.id)


@command.command("backfill")
@click.argument("name", shell_complete=completion.schedules)
@click.argument("first", type=TIMESTAMP, metavar="FROM")
@click.argument("last", type=TIMESTAMP, metavar="TO")
@click.option("--force", is_flag=True, help="Also moments that are older than the record of fires.")
@reason_option
@target_options
@pass_target
def backfill(target: CliTarget, /, name: str, first: datetime, last: datetime, force: bool) -> None:
    """Fire the moments between two that were not fired, as far as its overlap allows.

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
    _report(
        target,
        filled,
        f"{formatting.format_count(len(filled.jobs), 'job')} enqueued, {formatting.format_count(filled.skipped, 'moment')} skipped: "
        "fired before, or not allowed by overlap.",
    )


@command.command("preview")
@click.argument("rule", metavar="NAME | EXPRESSION", required=False)
@_timing_options
@click.option("--count", type=click.IntRange(1, 10_000), default=10, show_default=True, help="So many moments.")
@click.option("--name", metavar="NAME", help="The schedule's name, which H is chosen by.")
@target_options
@pass_target
def preview(
    target: CliTarget, /, rule: str | None, cron: str | None, count: int, name: str | None, **options: Any
) -> None:
    """Show the next moments of a schedule, or of a rule (no store is asked then).

    \b
      drumbeat schedules preview nightly
      drumbeat schedules preview "0 3 * * *" --tz Europe/Berlin
      drumbeat schedules preview --every 90m --grid
    """
    given = _drop_none(options)
    if rule is not None and _is_expression(rule):
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
    if target.json:
        output.print_json_lines(found)
        return
    from drumbeat.cli.schedule_view import PREVIEW_COLUMNS, preview_rows

    output.show_table(PREVIEW_COLUMNS, preview_rows(found, utc_now()), empty="It has no moments to come.")


def _is_expression(text: str) -> bool:
    """No name of a schedule has a space in it or begins with @, and hardly one has no letter."""
    return " " in text.strip() or text.startswith("@") or not any(char.isalpha() for char in text)


@command.command("history")
@click.argument("name", shell_complete=completion.schedules)
@click.option("--before", type=TIMESTAMP, help="Only moments before this: the next page.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@watch_option
@target_options
@pass_target
def history(target: CliTarget, /, name: str, before: datetime | None, limit: int) -> None:
    """Show what became of a schedule's moments, the newest first."""
    call_and_show(
        target,
        lambda app: app.schedules.history(name, before=before, limit=limit),
        lambda fires: _show_history(target, name, fires, limit),
    )


def _show_history(target: CliTarget, name: str, fires: list[FireInfo], limit: int) -> None:
    if target.json:
        output.print_json_lines(fires)
        return
    from drumbeat.cli.schedule_view import FIRE_COLUMNS, fire_row

    rows = [fire_row(fire, utc_now()) for fire in fires]
    output.show_table(FIRE_COLUMNS, rows, empty=f"No moment of {name} is on record.")
    if len(fires) == limit:
        output.print_line(
            f"The newest {len(fires)}; go on with --before {fires[-1].at:%Y-%m-%dT%H:%M:%S.%fZ}, or raise --limit."
        )
