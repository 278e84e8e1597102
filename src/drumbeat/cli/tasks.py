"""`drumbeat tasks`: list, show, history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.connection import call_app
from drumbeat.cli.options import CliTarget, pass_target, target_options, watch_option
from drumbeat.cli.resource_group import resource_group

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.admin import Run, TaskInfo

command = resource_group("tasks", "Tasks: the functions that jobs are calls of.")

COUNTS = ("pending", "running", "succeeded", "dead", "cancelled")
COLUMNS = output.TableColumns(names=("task", *COUNTS), numbers=frozenset(COUNTS), elastic=frozenset({"task"}))
RUN_COLUMNS = output.TableColumns(
    names=("job", "run", "schedule", "due (UTC)", "late", "started (UTC)", "took", "instance", "ended", "error"),
    numbers=frozenset({"run", "late"}),
    elastic=frozenset({"schedule", "error"}),
    droppable=("schedule", "instance", "due (UTC)", "took"),
)


@command.command("list")
@watch_option
@target_options
@pass_target
def list_(target: CliTarget) -> None:
    """List the tasks that have jobs, or that a living instance or the app knows."""
    empty = "No task has jobs, or a worker that knows it, in {store}."
    output.list_and_show(target, lambda app: app.tasks.list(), COLUMNS, _row, empty=empty)


def _row(task: TaskInfo, _now: datetime) -> list[str]:
    return [formatting.format_value(task.name, 60), *(f"{getattr(task, count):,}" for count in COUNTS)]


@command.command("show")
@click.argument("task", shell_complete=completion.tasks)
@target_options
@pass_target
def show(target: CliTarget, task: str) -> None:
    """Show one task; with --app also how it is called and run."""
    found = call_app(target, lambda app: app.tasks.show(task))
    if target.json:
        output.print_json(found)
        return
    output.show_page(_facts(found))


@command.command("history")
@click.argument("task", shell_complete=completion.tasks)
@click.option("--before", metavar="ID", help="Only runs of jobs older than this one: the next page.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="Number of jobs whose runs are shown.",
)
@watch_option
@target_options
@pass_target
def history(target: CliTarget, task: str, before: str | None, limit: int) -> None:
    """Show every run of a task: when it was due and ran, where, and how it ended."""
    output.list_and_show(
        target,
        lambda app: app.history(task=task, before=before, limit=limit),
        RUN_COLUMNS,
        _run_row,
        empty=f"No run of {task} is on record in {{store}}.",
    )


def _run_row(run: Run, now: datetime) -> list[str]:
    return [
        run.job,
        str(run.number),
        formatting.format_value(run.schedule),
        formatting.format_timestamp(run.due_at, now),
        formatting.format_seconds(run.late),
        formatting.format_timestamp(run.started_at, now),
        formatting.format_elapsed(run.started_at, run.finished_at),
        formatting.format_value(run.instance),
        run.outcome,
        formatting.format_error(run.error),
    ]


def _facts(task: TaskInfo) -> dict[str, str]:
    facts = {"task": formatting.format_value(task.name, 100)} | {count: f"{getattr(task, count):,}" for count in COUNTS}
    if not task.registered:
        return facts | {"called": "unknown here: add --app module:attr"}
    return facts | {
        "called": formatting.format_value(task.call, 400),
        "defined at": formatting.format_value(task.place, 400),
        "queue": formatting.format_value(task.queue),
        "priority": formatting.format_value(task.priority),
        "retries": formatting.format_value(task.retries),
        "timeout": formatting.format_seconds(task.timeout),
        "runs in": {"loop": "the event loop", "thread": "a thread", "process": "a process"}.get(task.pool or "", "?"),
        "batch": formatting.format_value(task.batch),
        "on dead": formatting.format_value(task.on_dead),
    }
