"""`drumbeat tasks`: list, show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import output, words
from drumbeat.cli.connection import ask
from drumbeat.cli.noun import noun
from drumbeat.cli.options import Target, pass_target, target_options

if TYPE_CHECKING:
    from drumbeat.nouns import TaskInfo

command = noun("tasks", "Tasks: the functions that jobs are calls of.")

COUNTS = ("pending", "running", "succeeded", "dead", "cancelled")
COLUMNS = output.Columns(names=("task", *COUNTS), numbers=frozenset(COUNTS), elastic=frozenset({"task"}))


@command.command("list")
@target_options
@pass_target
def list_(target: Target) -> None:
    """List tasks that have jobs, or that a living instance or the app knows."""
    tasks = ask(target, lambda app: app.tasks.list())
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
@click.argument("task")
@target_options
@pass_target
def show(target: Target, task: str) -> None:
    """Show one task; with --app also how it is called and run."""
    found = ask(target, lambda app: app.tasks.show(task))
    if target.json:
        output.json_document(found)
        return
    output.show_page(_facts(found))


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
