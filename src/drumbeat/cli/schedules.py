"""`drumbeat schedules`: list, show, create, change, pause, resume, delete, run-now, backfill, preview, history."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from drumbeat.cli import completion, output, words
from drumbeat.cli.acting import act, person
from drumbeat.cli.connection import ask, look, now
from drumbeat.cli.failures import Refused
from drumbeat.cli.noun import noun
from drumbeat.cli.options import (
    DURATION,
    MOMENT,
    NAME,
    F,
    Target,
    pass_target,
    target_options,
    watch_option,
    why_option,
)

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat
    from drumbeat.nouns import Backfilled, FireInfo, ScheduleInfo

command = noun("schedules", "Schedules: when tasks run by themselves, and what became of each moment.")


def _rule_options(command: F) -> F:
    """What `@app.cron` and `@app.every` take."""
    for option in (
        click.option("--timeout", type=DURATION, help="Of its jobs, instead of the task's own."),
        click.option("--retries", type=click.IntRange(min=0), help="Likewise."),
        click.option("--priority", type=click.IntRange(0, 9), help="Likewise."),
        click.option("--queue", type=NAME, help="Likewise."),
        click.option("--end", type=MOMENT, help="No moment at or after this."),
        click.option("--start", type=MOMENT, help="No moment before this."),
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


_who = click.option("--by", metavar="NAME", help="Who does it; shown with the schedule.")


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that are retired.")
@watch_option
@target_options
@pass_target
def list_(target: Target, /, everything: bool) -> None:
    """List schedules, by name."""
    look(target, lambda app: app.schedules.list(all=everything), lambda schedules: _show_list(target, schedules))


def _show_list(target: Target, schedules: list[ScheduleInfo]) -> None:
    if target.json:
        output.json_lines(schedules)
        return
    from drumbeat.cli.timetable import COLUMNS, row

    moment = now()
    rows = [row(schedule, moment) for schedule in schedules]
    output.show_table(COLUMNS, rows, empty=f"No schedules in {target.place}.")


@command.command("show")
@click.argument("name", shell_complete=completion.schedules)
@target_options
@pass_target
def show(target: Target, /, name: str) -> None:
    """Show one schedule, also one that is retired."""
    _tell(target, ask(target, lambda app: app.schedules.show(name)))


def _tell(target: Target, schedule: ScheduleInfo) -> None:
    if target.json:
        output.json_document(schedule)
        return
    from drumbeat.cli.timetable import show_schedule

    show_schedule(schedule, now())


@command.command("create")
@click.argument("task", shell_complete=completion.tasks)
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE | NAME:=JSON]...")
@click.option("--name", metavar="NAME", help="The schedule's name. [the task's]")
@_rule_options
@why_option
@_who
@target_options
@pass_target
def create(
    target: Target,
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
    from drumbeat.cli.arguments import parse

    typed = parse(arguments, document)
    given = _given(options)

    async def made(app: Drumbeat) -> ScheduleInfo:
        return await app.schedules.create(task, name=name, by=by or person(), args=_args(app, task, typed), **given)

    _tell(target, act(target, "schedules.create", name or task, made, needs_app=True))


@command.command("change")
@click.argument("name", shell_complete=completion.schedules)
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE | NAME:=JSON]...")
@_rule_options
@why_option
@_who
@target_options
@pass_target
def change(
    target: Target, /, name: str, arguments: tuple[str, ...], document: str | None, by: str | None, **options: Any
) -> None:
    """Change a schedule that was made at run time; what is not given stays. New arguments need --app."""
    from drumbeat.cli.arguments import parse

    typed = parse(arguments, document)
    given = _given(options)
    if not given and not typed and document is None:
        raise Refused("say what to change, such as --cron '0 4 * * *'")

    async def changed(app: Drumbeat) -> ScheduleInfo:
        if typed or document is not None:
            given["args"] = _args(app, (await app.schedules.show(name)).task, typed)
        return await app.schedules.change(name, by=by or person(), **given)

    _tell(target, act(target, "schedules.change", name, changed, needs_app=bool(typed)))


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _args(app: Drumbeat, task: str, typed: Any) -> tuple[Any, ...] | dict[str, Any]:
    from drumbeat.cli.arguments import typed_by
    from drumbeat.codec import Signature

    signature = app.registry[task].signature
    if not isinstance(signature, Signature):
        raise Refused(f"task {task} is called by the death of a job, and in no other way")
    by_place, by_name = typed_by(signature, task, typed)
    if by_place and by_name:
        raise Refused(
            f"task {task} takes some arguments only by place and some by name: no schedule can be made for it here"
        )
    return tuple(by_place) if by_place else by_name


@command.command("pause")
@click.argument("name", shell_complete=completion.schedules)
@why_option
@_who
@target_options
@pass_target
def pause(target: Target, /, name: str, by: str | None) -> None:
    """Fire nothing of a schedule from now on. Jobs that are there go on."""
    done = act(
        target,
        "schedules.pause",
        name,
        lambda app: app.schedules.pause(name, why=target.why, by=by or person()),
        touched=int,
    )
    _say(target, {"paused": done}, f"Schedule {name} is paused{'' if done else ' already'}.")


@command.command("resume")
@click.argument("name", shell_complete=completion.schedules)
@why_option
@_who
@target_options
@pass_target
def resume(target: Target, /, name: str, by: str | None) -> None:
    """Go on with a paused schedule. The moments of the pause are skipped, on record."""
    done = act(target, "schedules.resume", name, lambda app: app.schedules.resume(name, by=by or person()), touched=int)
    _say(target, {"resumed": done}, f"Schedule {name} goes on." if done else f"Schedule {name} was not paused.")


@command.command("delete")
@click.argument("name", shell_complete=completion.schedules)
@why_option
@_who
@target_options
@pass_target
def delete(target: Target, /, name: str, by: str | None) -> None:
    """Retire a schedule; its record stays. One that code declares comes back when an instance of that program starts."""
    act(
        target,
        "schedules.delete",
        name,
        lambda app: app.schedules.delete(name, why=target.why, by=by or person()),
    )
    _say(target, {"deleted": True}, f"Schedule {name} is retired.")


def _say(target: Target, answer: object, line: str) -> None:
    if target.json:
        output.json_document(answer)
    else:
        output.say(line)


@command.command("run-now")
@click.argument("name", shell_complete=completion.schedules)
@why_option
@target_options
@pass_target
def run_now(target: Target, /, name: str) -> None:
    """Enqueue a schedule's job at once, beside its own moments. Prints the job's id."""
    job = act(
        target,
        "schedules.run-now",
        name,
        lambda app: app.schedules.run_now(name),
        kept=lambda job: json.dumps({"id": job.id}),
    )
    _say(target, {"id": job.id, "created": job.created}, job.id)


@command.command("backfill")
@click.argument("name", shell_complete=completion.schedules)
@click.argument("first", type=MOMENT, metavar="FROM")
@click.argument("last", type=MOMENT, metavar="TO")
@click.option("--force", is_flag=True, help="Also moments that are older than the record of fires.")
@why_option
@target_options
@pass_target
def backfill(target: Target, /, name: str, first: datetime, last: datetime, force: bool) -> None:
    """Fire the moments between two that were not fired, as far as its overlap allows.

    \b
      drumbeat schedules backfill nightly 2026-11-01T00:00Z 2026-11-08T00:00Z
    """
    filled: Backfilled = act(
        target,
        "schedules.backfill",
        f"{name} {first.isoformat()} to {last.isoformat()}",
        lambda app: app.schedules.backfill(name, first, last, force=force),
        touched=lambda filled: len(filled.jobs),
    )
    _say(
        target,
        filled,
        f"{words.count(len(filled.jobs), 'job')} enqueued, {words.count(filled.skipped, 'moment')} skipped: "
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
    target: Target, /, rule: str | None, cron: str | None, count: int, name: str | None, **options: Any
) -> None:
    """Show the next moments of a schedule, or of a rule (no store is asked then).

    \b
      drumbeat schedules preview nightly
      drumbeat schedules preview "0 3 * * *" --tz Europe/Berlin
      drumbeat schedules preview --every 90m --grid
    """
    given = _given(options)
    if rule is not None and _is_expression(rule):
        cron, rule = rule, None
    if cron is not None:
        given["cron"] = cron
    if rule is not None and given:
        raise Refused("say which schedule, or a rule, not both")
    if rule is None and not given:
        raise Refused("say which schedule, or a rule such as '0 3 * * *'")
    if rule is not None:
        found = ask(target, lambda app: app.schedules.preview(rule, count=count))
    else:
        from drumbeat.app import Drumbeat

        found = asyncio.run(Drumbeat().schedules.preview(name, count=count, **given))
    if target.json:
        output.json_lines(found)
        return
    from drumbeat.cli.timetable import PREVIEW_COLUMNS, preview_rows

    output.show_table(PREVIEW_COLUMNS, preview_rows(found, now()), empty="It has no moments to come.")


def _is_expression(text: str) -> bool:
    """No name of a schedule has a space in it or begins with @, and hardly one has no letter."""
    return " " in text.strip() or text.startswith("@") or not any(char.isalpha() for char in text)


@command.command("history")
@click.argument("name", shell_complete=completion.schedules)
@click.option("--before", type=MOMENT, help="Only moments before this: the next page.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@watch_option
@target_options
@pass_target
def history(target: Target, /, name: str, before: datetime | None, limit: int) -> None:
    """Show what became of a schedule's moments, the newest first."""
    look(
        target,
        lambda app: app.schedules.history(name, before=before, limit=limit),
        lambda fires: _show_fires(target, name, fires, limit),
    )


def _show_fires(target: Target, name: str, fires: list[FireInfo], limit: int) -> None:
    if target.json:
        output.json_lines(fires)
        return
    from drumbeat.cli.timetable import FIRE_COLUMNS, fire_row

    rows = [fire_row(fire, now()) for fire in fires]
    output.show_table(FIRE_COLUMNS, rows, empty=f"No moment of {name} is on record.")
    if len(fires) == limit:
        output.say(
            f"The newest {len(fires)}; go on with --before {fires[-1].at:%Y-%m-%dT%H:%M:%S.%fZ}, or raise --limit."
        )
