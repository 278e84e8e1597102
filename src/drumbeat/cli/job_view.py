"""Jobs, dead letters and their runs as rows and pages, for `jobs` and `dead`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from drumbeat.cli import formatting, output
from drumbeat.cli.connection import call_app, utc_now
from drumbeat.cli.options import CliTarget
from drumbeat.core.job import Attempt, Job, JobState
from drumbeat.plural import format_count
from drumbeat.redaction import mask_urls

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat

JOB_COLUMNS = output.TableColumns(
    names=("id", "task", "queue", "state", "attempts", "at (UTC)", "key", "arguments"),
    numbers=frozenset({"attempts"}),
    elastic=frozenset({"task", "queue", "key", "arguments"}),
    droppable=("queue", "attempts", "key", "arguments", "at (UTC)"),
)
DEAD_COLUMNS = output.TableColumns(
    names=("id", "task", "queue", "attempts", "died at (UTC)", "error", "arguments"),
    numbers=frozenset({"attempts"}),
    elastic=frozenset({"task", "queue", "error", "arguments"}),
    droppable=("queue", "attempts", "arguments", "died at (UTC)"),
)
RUN_COLUMNS = output.TableColumns(
    names=("run", "ended", "started at (UTC)", "took", "instance", "error"),
    numbers=frozenset({"run"}),
    elastic=frozenset({"error"}),
    droppable=("instance",),
)


MAX_ARGUMENTS_READ = 2_000
"""Characters of the arguments that a list reads: enough for a cell, and for secret names to be recognised."""


def preview_options(json: bool) -> dict[str, int]:
    """A table shows the beginning of the arguments; JSON is exact."""
    return {} if json else {"preview": MAX_ARGUMENTS_READ}


def show_jobs(
    target: CliTarget,
    query: Callable[[Drumbeat], Awaitable[Sequence[Job]]],
    columns: output.TableColumns,
    row: output.Row[Job],
    **more: Any,
) -> None:
    output.list_and_show(target, query, columns, row, to_json=lambda job: to_json_record(job, utc_now()), **more)


def job_row(job: Job, now: datetime) -> list[str]:
    at = job.finished_at or (job.started_at if job.state is JobState.RUNNING else None) or job.run_at
    return [
        job.id,
        formatting.format_value(job.task, 40),
        formatting.format_value(job.queue, 30),
        format_state(job, now),
        format_attempts(job),
        formatting.format_timestamp(at, now),
        formatting.format_value(job.key, 30),
        formatting.format_arguments(job.args),
    ]


def dead_row(job: Job, now: datetime) -> list[str]:
    return [
        job.id,
        formatting.format_value(job.task, 40),
        formatting.format_value(job.queue, 30),
        format_attempts(job),
        formatting.format_timestamp(job.finished_at, now),
        formatting.format_error(job.error),
        formatting.format_arguments(job.args, 40),
    ]


def format_state(job: Job, now: datetime) -> str:
    word = str(job.view(now))
    return f"{word} (cancelling)" if job.cancel_requested and job.state is JobState.RUNNING else word


def format_attempts(job: Job) -> str:
    """How often a job was tried, including the current run; crashes of its worker are counted separately."""
    crashes = f" + {format_count(job.crashes, 'crash', 'crashes')}" if job.crashes else ""
    return f"{job.attempts}{crashes}"


def show_job(target: CliTarget, id: str, find: Callable[[Drumbeat], Awaitable[Job]]) -> None:
    """Everything about one job: a page, or JSON."""

    async def read(app: Drumbeat) -> tuple[Job, list[Attempt]]:
        return await find(app), await app.jobs.attempts(id)

    job, attempts = call_app(target, read)
    now = utc_now()
    if target.json:
        output.print_json(to_json_record(job, now, attempts=attempts))
        return
    facts = _facts(job, now)
    blocks = {"Arguments": formatting.format_arguments_indented(job.args)}
    if job.progress is not None:
        blocks["Progress"] = formatting.format_json(job.progress)
    if job.result is not None:
        blocks["Result"] = formatting.format_json(job.result)
    if job.error is not None:
        blocks["Error"] = formatting.escape_lines(
            mask_urls(job.error.traceback or f"{job.error.type}: {job.error.message}")
        )
    output.show_page(facts, blocks)
    if attempts:
        show_attempts(attempts, now)


def _facts(job: Job, now: datetime) -> dict[str, str]:
    facts = {
        "id": job.id,
        "task": formatting.format_value(job.task, 200),
        "queue": formatting.format_value(job.queue, 200),
        "state": format_state(job, now),
        "key": formatting.format_value(job.key, 200) + (f" (unique: {job.unique})" if job.unique else ""),
        "priority": str(job.priority),
        "attempts": f"{format_attempts(job)} (failures {job.failures}, crashes {job.crashes} of {job.crash_limit})",
        "created at": formatting.format_exact(job.created_at, now),
        "due at": formatting.format_exact(job.due_at, now),
        "run at": formatting.format_exact(job.run_at, now),
        "started at": formatting.format_exact(job.started_at, now),
        "finished at": formatting.format_exact(job.finished_at, now),
        "took": formatting.format_elapsed(job.started_at, job.finished_at),
        "instance": formatting.format_value(job.instance),
        "waits for": formatting.format_value(job.blocked_on, 200),
        "on dead": formatting.format_value(job.on_dead, 200),
        "replays": str(job.replays) if job.replays else formatting.EMPTY,
        "result error": formatting.format_value(job.result_error, 400),
    }
    always = ("id", "task", "queue", "state", "attempts")
    return {name: value for name, value in facts.items() if name in always or value != formatting.EMPTY}


def show_attempts(attempts: Sequence[Attempt], now: datetime) -> None:
    rows = [
        [
            str(number),
            str(attempt.outcome),
            formatting.format_exact(attempt.started_at, now),
            formatting.format_elapsed(attempt.started_at, attempt.finished_at),
            formatting.format_value(attempt.instance),
            formatting.format_error(attempt.error, 80),
        ]
        for number, attempt in enumerate(attempts, start=1)
    ]
    output.print_line("")
    output.show_table(RUN_COLUMNS, rows, empty="")


def to_json_record(job: Job, now: datetime, **more: object) -> dict[str, object]:
    """A job for --json: its fields as stored, the number of its attempt, and its view."""
    return output.record_fields(job, attempt=job.attempt, view=str(job.view(now)), **more)
