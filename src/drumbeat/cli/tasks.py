"""`drumbeat tasks`: list, show, weeks, history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.connection import call_app
from drumbeat.cli.options import CliTarget, argument, limit_option, option, watch_option
from drumbeat.cli.output import Column
from drumbeat.cli.resource_group import ResourceGroup

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from drumbeat.admin import Run, TaskInfo
    from drumbeat.core.weeks import TaskWeeks, WeekFigures

command = ResourceGroup("tasks", "Tasks: the functions that jobs are calls of.")
task_argument = argument("task", shell_complete=completion.tasks)

COUNTS = ("pending", "running", "succeeded", "dead", "cancelled", "expired")


def _count_column(state: str) -> Column[TaskInfo]:
    return Column(state, lambda task, _: f"{getattr(task, state):,}", number=True)


TASKS: output.TextTable[TaskInfo] = output.TextTable(
    Column("task", lambda task, _: formatting.format_value(task.name, 60), elastic=True), *map(_count_column, COUNTS)
)
RUNS: output.TextTable[Run] = output.TextTable(
    Column("job", lambda run, _: run.job),
    Column("run", lambda run, _: str(run.number), number=True),
    Column("schedule", lambda run, _: formatting.format_value(run.schedule), elastic=True, drop=1),
    Column("due (UTC)", lambda run, now: formatting.format_timestamp(run.due_at, now), drop=3),
    Column("late", lambda run, _: formatting.format_seconds(run.late), number=True),
    Column("started (UTC)", lambda run, now: formatting.format_timestamp(run.started_at, now)),
    Column("took", lambda run, _: formatting.format_elapsed(run.started_at, run.finished_at), drop=4),
    Column("instance", lambda run, _: formatting.format_value(run.instance), drop=2),
    Column("ended", lambda run, _: run.outcome),
    Column("error", lambda run, _: formatting.format_error(run.error), elastic=True),
)


def _two_weeks(name: str, get: Callable[[WeekFigures], str], drop: int = 0) -> Column[TaskWeeks]:
    """This week's figure, and the last week's in parentheses."""
    return Column(name, lambda each, _: f"{get(each.this_week)} ({get(each.last_week)})", number=True, drop=drop)


def _format_share(share: float | None) -> str:
    return formatting.EMPTY if share is None else f"{share * 100:.1f} %"


WEEKS: output.TextTable[TaskWeeks] = output.TextTable(
    Column("task", lambda each, _: formatting.format_value(each.task, 60), elastic=True),
    _two_weeks("runs (last week)", lambda week: f"{week.runs:,}", 1),
    _two_weeks("failed", lambda week: _format_share(week.failure_rate)),
    _two_weeks("run p95", lambda week: formatting.format_seconds(week.run_p95)),
    _two_weeks("wait p95", lambda week: formatting.format_seconds(week.wait_p95), 2),
)


@command.verb("list", watch_option)
def list_(target: CliTarget) -> None:
    """List the tasks that have jobs, or that a living instance or the app knows."""
    empty = "No task has jobs, or a worker that knows it, in {store}."
    output.list_and_show(target, lambda app: app.tasks.list(), TASKS, empty=empty)


@command.verb("show", task_argument)
def show(target: CliTarget, task: str) -> None:
    """Show one task; with --app also how it is called and run."""
    output.show_record(target, call_app(target, lambda app: app.tasks.show(task)), _show_task)


@command.verb("weeks", option("--task", metavar="TASK", shell_complete=completion.tasks, help="Only this task."))
def weeks(target: CliTarget, task: str | None) -> None:
    """Compare the last 7 days of each task with the 7 days before: runs, failures, run times and waits (p95)."""
    empty = "No task has run in the last two weeks in {store}."
    output.list_and_show(target, lambda app: app.stats.weeks(task=task), WEEKS, empty=empty)


@command.verb(
    "history",
    task_argument,
    option("--before", metavar="ID", help="Only runs of jobs older than this one: the next page."),
    limit_option(100_000, "jobs whose runs are shown"),
    watch_option,
)
def history(target: CliTarget, task: str, before: str | None, limit: int) -> None:
    """Show every run of a task: when it was due and ran, where, and how it ended."""
    empty = f"No run of {task} is on record in {{store}}."
    output.list_and_show(target, lambda app: app.history(task=task, before=before, limit=limit), RUNS, empty=empty)


def _show_task(task: TaskInfo, _now: datetime) -> None:
    facts = {"task": formatting.format_value(task.name, 100)} | {count: f"{getattr(task, count):,}" for count in COUNTS}
    if not task.registered:
        output.show_page(facts | {"called": "unknown here: add --app module:attr"})
        return
    facts |= {
        "called": formatting.format_value(task.call, 400),
        "defined at": formatting.format_value(task.place, 400),
        "queue": formatting.format_value(task.queue),
        "priority": formatting.format_value(task.priority),
        "retries": formatting.format_value(task.retries),
        "backoff": formatting.format_value(task.backoff, 400),
        "retried": "every exception" if task.retry_on is None else ", ".join(task.retry_on),
        "not retried": formatting.format_value(", ".join(task.no_retry_on) or None, 400),
        "timeout": formatting.format_seconds(task.timeout),
        "expires": formatting.format_seconds(task.expires),
        "runs in": {"loop": "the event loop", "thread": "a thread", "process": "a process"}.get(task.pool or "", "?"),
        "batch": formatting.format_value(task.batch),
        "on dead": formatting.format_value(task.on_dead),
        "on success": formatting.format_value(task.on_success),
    }
    output.show_page(facts)
