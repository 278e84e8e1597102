"""A job, a dead letter and their runs, as rows and pages: what `jobs` and `dead` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from drumbeat.cli import output, words
from drumbeat.model.job import Attempt, Failure, Job, JobState
from drumbeat.redaction import mask_urls

JOB_COLUMNS = output.Columns(
    names=("id", "task", "queue", "state", "attempts", "at (UTC)", "key", "arguments"),
    numbers=frozenset({"attempts"}),
    elastic=frozenset({"task", "queue", "key", "arguments"}),
    spare=("queue", "attempts", "key", "arguments", "at (UTC)"),
)
DEAD_COLUMNS = output.Columns(
    names=("id", "task", "queue", "attempts", "died at (UTC)", "error", "arguments"),
    numbers=frozenset({"attempts"}),
    elastic=frozenset({"task", "queue", "error", "arguments"}),
    spare=("queue", "attempts", "arguments", "died at (UTC)"),
)
RUN_COLUMNS = output.Columns(
    names=("run", "ended", "started at (UTC)", "took", "instance", "error"),
    numbers=frozenset({"run"}),
    elastic=frozenset({"error"}),
    spare=("instance",),
)


MAX_SHOWN = 2_000
"""Characters of arguments that a list reads: enough for a cell, and for their names to be told."""


class Listing(NamedTuple):
    """How a list of jobs is shown."""

    columns: output.Columns
    row: Callable[[Job, datetime], list[str]]
    empty: str


def preview(json: bool) -> dict[str, int]:
    """What a list asks for beyond its filter: a table shows the beginning of arguments, JSON is exact."""
    return {} if json else {"preview": MAX_SHOWN}


def show_list(jobs: Sequence[Job], how: Listing, *, now: datetime, limit: int, json: bool) -> None:
    if json:
        output.json_lines(for_programs(job, now) for job in jobs)
        return
    output.show_table(how.columns, [how.row(job, now) for job in jobs], empty=how.empty)
    if len(jobs) == limit:
        output.say(f"The newest {len(jobs)}; go on with --before {jobs[-1].id}, or raise --limit.")


def job_row(job: Job, now: datetime) -> list[str]:
    moment = job.finished_at or (job.started_at if job.state is JobState.RUNNING else None) or job.run_at
    return [
        job.id,
        words.word(job.task, 40),
        words.word(job.queue, 30),
        state_of(job, now),
        attempts_of(job),
        words.when(moment, now),
        words.word(job.key, 30),
        words.arguments(job.args),
    ]


def dead_row(job: Job, now: datetime) -> list[str]:
    return [
        job.id,
        words.word(job.task, 40),
        words.word(job.queue, 30),
        attempts_of(job),
        words.when(job.finished_at, now),
        error_line(job.error),
        words.arguments(job.args, 40),
    ]


def state_of(job: Job, now: datetime) -> str:
    word = str(job.view(now))
    return f"{word} (cancelling)" if job.cancel_requested and job.state is JobState.RUNNING else word


def attempts_of(job: Job) -> str:
    """How often a job was tried, a run under way included; crashes of its worker are told apart."""
    crashes = f" + {words.count(job.crashes, 'crash', 'crashes')}" if job.crashes else ""
    return f"{job.attempts}{crashes}"


def error_line(error: Failure | None, limit: int = 60) -> str:
    if error is None:
        return words.NOTHING
    kind = error.type.rpartition(".")[2]
    return words.word(mask_urls(": ".join(part for part in (kind, error.message) if part)), limit)


def show_job(job: Job, attempts: Sequence[Attempt], now: datetime) -> None:
    """Everything about one job."""
    facts = _facts(job, now)
    blocks = {"Arguments": words.pretty_arguments(job.args)}
    if job.progress is not None:
        blocks["Progress"] = words.json_lines(job.progress)
    if job.result is not None:
        blocks["Result"] = words.json_lines(job.result)
    if job.error is not None:
        blocks["Error"] = words.lines(mask_urls(job.error.traceback or f"{job.error.type}: {job.error.message}"))
    output.show_page(facts, blocks)
    if attempts:
        show_attempts(attempts, now)


def _facts(job: Job, now: datetime) -> dict[str, str]:
    facts = {
        "id": job.id,
        "task": words.word(job.task, 200),
        "queue": words.word(job.queue, 200),
        "state": state_of(job, now),
        "key": words.word(job.key, 200) + (f" (unique: {job.unique})" if job.unique else ""),
        "priority": str(job.priority),
        "attempts": f"{attempts_of(job)} (failures {job.failures}, crashes {job.crashes} of {job.crash_limit})",
        "created at": words.exactly(job.created_at, now),
        "due at": words.exactly(job.due_at, now),
        "run at": words.exactly(job.run_at, now),
        "started at": words.exactly(job.started_at, now),
        "finished at": words.exactly(job.finished_at, now),
        "took": words.took(job.started_at, job.finished_at),
        "instance": words.word(job.instance),
        "waits for": words.word(job.waits_for, 200),
        "on dead": words.word(job.on_dead, 200),
        "replays": str(job.life) if job.life else words.NOTHING,
        "result error": words.word(job.result_error, 400),
    }
    always = ("id", "task", "queue", "state", "attempts")
    return {name: value for name, value in facts.items() if name in always or value != words.NOTHING}


def show_attempts(attempts: Sequence[Attempt], now: datetime) -> None:
    rows = [
        [
            str(number),
            str(attempt.outcome),
            words.exactly(attempt.started_at, now),
            words.took(attempt.started_at, attempt.finished_at),
            words.word(attempt.instance),
            error_line(attempt.error, 80),
        ]
        for number, attempt in enumerate(attempts, start=1)
    ]
    output.say("")
    output.show_table(RUN_COLUMNS, rows, empty="")


def for_programs(job: Job, now: datetime, **more: object) -> dict[str, object]:
    """A job for --json: its fields as stored, the attempt that people count, and the word they see."""
    return output.fields(job, attempt=job.attempt, view=str(job.view(now)), **more)
