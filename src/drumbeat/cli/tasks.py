"""`drumbeat tasks`: list, show."""

from __future__ import annotations

import click

from drumbeat.cli import output, words
from drumbeat.cli.connection import ask
from drumbeat.cli.noun import noun
from drumbeat.cli.options import Target, pass_target, target_options

command = noun("tasks", "Tasks: the functions that jobs are calls of.")

COUNTS = ("pending", "running", "succeeded", "dead", "cancelled")


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
    output.show_table(("task", *COUNTS), rows, numbers=COUNTS, empty="No task has jobs or a worker that knows it.")


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
    output.show_page({"task": words.word(found.name, 100)} | {count: f"{getattr(found, count):,}" for count in COUNTS})
