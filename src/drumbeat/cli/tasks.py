"""`drumbeat tasks`: list, show, history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import completion, output, words
from drumbeat.cli.connection import ask, look, now
from drumbeat.cli.noun import noun
from drumbeat.cli.options import Target, pass_target, target_options, watch_option

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.nouns import Run, TaskInfo

command = noun("tasks", "Tasks: the functions that jobs are calls of.")

COUNTS = ("pending", "running", "succeeded", "dead", "cancelled")
COLUMNS = output.Columns(names=("task", *COUNTS), numbers=frozenset(COUNTS), elastic=frozenset({"task"}))
RUN_COLUMNS = output.Columns(
    names=("job", "run", "schedule", "due (UTC)", "late", "started (UTC)", "took", "instance", "ended", "error"),
    numbers=frozenset({"run", "late"}),
    elastic=frozenset({"schedule", "error"}),
    spare=("schedule", "instance", "due (UTC)", "took"),
)


@command.command("list")
@watch_option
@target_options
@pass_target
def list_(target: Target) -> None:
    """List tasks that have jobs, or that a living instance or the app knows."""
    look(target, lambda app: app.tasks.list(), lambda tasks: _show_list(target, tasks))


def _show_list(target: Target, tasks: list[TaskInfo]) -> None:
    if target.json:
        output.json_lines(tasks)
        return
    rows = [[words.word(task.name, 60), *(f"{getattr(task, count):,}" for count in COUNTS)] for task in tasks]
    output.show_table(
        COLUMNS,
        rows,
        empty=f"No task has jobs, or a worker that knows it, in {target.place}.",
    )


@command.command("show")
@click.argument("task", shell_complete=completion.tasks)
@target_options
@pass_target
def show(target: Target, task: str) -> None:
    """Show one task; with --app also how it is called and run."""
    found = ask(target, lambda app: app.tasks.show(task))
    if target.json:
        output.json_document(found)
        return
    output.show_page(_facts(found))


@command.command("history")
@click.argument("task", shell_complete=completion.tasks)
@click.option("--before", metavar="ID", help="Only of jobs older than this one: the next page.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Of at most so many jobs."
)
@watch_option
@target_options
@pass_target
def history(target: Target, task: str, before: str | None, limit: int) -> None:
    """Show every run of a task: when it was due and ran, where, and how it ended."""
    look(
        target,
        lambda app: app.history(task=task, before=before, limit=limit),
        lambda runs: _show_runs(target, task, runs),
    )


def _show_runs(target: Target, task: str, runs: list[Run]) -> None:
    if target.json:
        output.json_lines(runs)
        return
    moment = now()
    rows = [_run_row(run, moment) for run in runs]
    output.show_table(RUN_COLUMNS, rows, empty=f"No run of {task} is on record in {target.place}.")


def _run_row(run: Run, moment: datetime) -> list[str]:
    from drumbeat.cli.page import error_line

    return [
        run.job,
        str(run.number),
        words.word(run.schedule),
        words.when(run.due_at, moment),
        words.NOTHING if run.late is None else f"{run.late:.3f} s",
        words.when(run.started_at, moment),
        words.took(run.started_at, run.finished_at),
        words.word(run.instance),
        run.outcome,
        error_line(run.error),
    ]


def _facts(task: TaskInfo) -> dict[str, str]:
    facts = {"task": words.word(task.name, 100)} | {count: f"{getattr(task, count):,}" for count in COUNTS}
    if not task.registered:
        return facts | {"called": "unknown here: --app module:attr tells"}
    return facts | {
        "called": words.word(task.call, 400),
        "defined at": words.word(task.place, 400),
        "queue": words.word(task.queue),
        "priority": words.word(task.priority),
        "retries": words.word(task.retries),
        "timeout": words.NOTHING if task.timeout is None else f"{task.timeout:g} s",
        "runs in": {"loop": "the event loop", "thread": "a thread", "process": "a process"}.get(task.pool or "", "?"),
        "batch": words.word(task.batch),
        "on dead": words.word(task.on_dead),
    }
