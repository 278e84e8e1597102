"""Jobs, dead letters and their runs as rows and pages, for `jobs` and `dead`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from drumbeat.admin.explain.parents import describe_wait
from drumbeat.admin.explain.suspended import never_ends
from drumbeat.cli import formatting, output
from drumbeat.cli.connection import call_app, utc_now
from drumbeat.cli.options import CliTarget
from drumbeat.cli.output import Column
from drumbeat.cli.step_view import show_steps
from drumbeat.core.job import Attempt, Job, JobState
from drumbeat.core.suspension import awaited_signal
from drumbeat.plural import format_count
from drumbeat.redaction import mask_urls

if TYPE_CHECKING:
    from drumbeat.admin.lineage import Lineage
    from drumbeat.app import Drumbeat
    from drumbeat.core.dependencies import ParentLink

MAX_ARGUMENTS_READ = 2_000
"""Characters of the arguments that a list reads: enough for a cell, and for secret names to be recognised."""


def format_state(job: Job, now: datetime) -> str:
    word = str(job.view(now))
    if job.open_parents and word == "waiting":
        return f"waiting ({format_count(job.open_parents, 'parent')})"
    if job.suspended is not None and job.state is JobState.PENDING:
        return f"{word} ({format_suspension(job.suspended)})"
    return f"{word} (cancelling)" if job.cancel_requested and job.state is JobState.RUNNING else word


def format_suspension(suspended: str) -> str:
    signal = awaited_signal(suspended)
    return "asleep" if signal is None else f"signal {formatting.format_value(signal, 40)}"


def format_attempts(job: Job) -> str:
    """How often a job was tried, including the current run; crashes of its worker are counted separately."""
    crashes = f" + {format_count(job.crashes, 'crash', 'crashes')}" if job.crashes else ""
    return f"{job.attempts}{crashes}"


def _last_change(job: Job) -> datetime | None:
    return job.finished_at or (job.started_at if job.state is JobState.RUNNING else None) or _next_run(job)


def _next_run(job: Job) -> datetime | None:
    return None if never_ends(job.run_at) else job.run_at


_NAMES: tuple[Column[Job], ...] = (
    Column("id", lambda job, _: job.id),
    Column("task", lambda job, _: formatting.format_value(job.task, 40), elastic=True),
    Column("queue", lambda job, _: formatting.format_value(job.queue, 30), elastic=True, drop=1),
)
_ATTEMPTS: Column[Job] = Column("attempts", lambda job, _: format_attempts(job), number=True, drop=2)
JOBS = output.TextTable(
    *_NAMES,
    Column("state", format_state),
    _ATTEMPTS,
    Column("at (UTC)", lambda job, now: formatting.format_timestamp(_last_change(job), now), drop=5),
    Column("key", lambda job, _: formatting.format_value(job.key, 30), elastic=True, drop=3),
    Column("arguments", lambda job, _: formatting.format_arguments(job.args), elastic=True, drop=4),
)
DEAD_LETTERS = output.TextTable(
    *_NAMES,
    _ATTEMPTS,
    Column("died at (UTC)", lambda job, now: formatting.format_timestamp(job.finished_at, now), drop=4),
    Column("error", lambda job, _: formatting.format_error(job.error), elastic=True),
    Column("arguments", lambda job, _: formatting.format_arguments(job.args, 40), elastic=True, drop=3),
)
RUNS: output.TextTable[tuple[int, Attempt]] = output.TextTable(
    Column("run", lambda run, _: str(run[0]), number=True),
    Column("ended", lambda run, _: str(run[1].outcome)),
    Column("started at (UTC)", lambda run, now: formatting.format_exact(run[1].started_at, now)),
    Column("took", lambda run, _: formatting.format_elapsed(run[1].started_at, run[1].finished_at)),
    Column("instance", lambda run, _: formatting.format_value(run[1].instance), drop=1),
    Column("error", lambda run, _: formatting.format_error(run[1].error, 80), elastic=True),
)

LINKS: output.TextTable[ParentLink] = output.TextTable(
    Column("job", lambda link, _: link.id),
    Column("task", lambda link, _: formatting.format_value(link.task, 40), elastic=True),
    Column("state", lambda link, _: str(link.state or "pruned")),
    Column("waits", lambda link, _: "yes" if link.is_open else "no"),
    Column("if the parent fails", lambda link, _: str(link.if_fails), drop=2),
    Column("passes on", lambda link, _: _format_binding(link), elastic=True, drop=1),
)
"""Parents or children of a job."""
MAX_LINKS = 50


def _format_binding(link: ParentLink) -> str:
    return f"{link.binding} as {formatting.format_value(link.argument, 40)}" if link.binding else formatting.EMPTY


def show_jobs(
    target: CliTarget,
    list_: Callable[..., Callable[..., Awaitable[Sequence[Job]]]],
    table: output.TextTable[Job],
    query: dict[str, Any],
    *,
    empty: str,
) -> None:
    """List jobs with what `list_` finds. A table needs only the beginning of the arguments; JSON is exact."""
    preview = {} if target.json else {"preview": MAX_ARGUMENTS_READ}
    output.list_and_show(
        target,
        lambda app: list_(app)(**query, **preview),
        table,
        empty=empty,
        limit=query["limit"],
        to_json=lambda job: to_json_record(job, utc_now()),
    )


def show_job(target: CliTarget, id: str, find: Callable[[Drumbeat], Awaitable[Job]]) -> None:
    """Everything about one job: a page, or JSON."""

    async def read(app: Drumbeat) -> tuple[Job, dict[str, Any]]:
        jobs, job = app.jobs, await find(app)
        return job, {
            "attempts": await jobs.attempts(id),
            "steps": await jobs.steps(id),
            "signals": await jobs.signals(id),
            "parents": await jobs.parents(id),
            "children": await jobs.children(id),
        }

    job, more = call_app(target, read)
    now = utc_now()
    if target.json:
        output.print_json(to_json_record(job, now, **more))
        return
    blocks = {"Arguments": formatting.format_arguments_indented(job.args)}
    if job.progress is not None:
        blocks["Progress"] = formatting.format_json(job.progress)
    if job.result is not None:
        blocks["Result"] = formatting.format_json(job.result)
    if job.error is not None:
        blocks["Error"] = formatting.escape_lines(
            mask_urls(job.error.traceback or f"{job.error.type}: {job.error.message}")
        )
    facts = {
        "id": job.id,
        "task": formatting.format_value(job.task, 200),
        "queue": formatting.format_value(job.queue, 200),
        "state": format_state(job, now),
    }
    output.show_page(facts, _optional_facts(job, now), blocks)
    if more["attempts"]:
        output.print_line("")
        RUNS.show(list(enumerate(more["attempts"], start=1)), now)
    show_steps(more["steps"], more["signals"], now)
    for title, links in (("It depends on", more["parents"]), ("Jobs that depend on it", more["children"])):
        if links:
            output.print_line(f"\n{title}{':' if len(links) < MAX_LINKS else f' (the first {MAX_LINKS}):'}")
            LINKS.show(links, now)


def show_lineage(target: CliTarget, id: str, before: str | None, limit: int) -> None:
    """The ancestors of a job and the tree below it: a tree, or JSON."""

    async def read(app: Drumbeat) -> tuple[Job, Lineage]:
        return await app.jobs.show(id), await app.jobs.lineage(id, before=before, limit=limit)

    job, found = call_app(target, read)
    now = utc_now()
    if target.json:
        output.print_json(
            {
                "ancestors": [to_json_record(each, now) for each in found.ancestors],
                "missing": found.missing,
                "descendants": [
                    {"depth": each.depth, "has_more": each.has_more, "job": to_json_record(each.job, now)}
                    for each in found.descendants
                ],
                "next": found.next,
            }
        )
        return
    if found.missing is not None:
        output.print_line(f"{found.missing} (no longer on record)")
    top = 0 if found.missing is None else 1
    for depth, ancestor in enumerate(found.ancestors, start=top):
        output.print_line(_tree_line(ancestor, depth, now))
    top += len(found.ancestors)
    output.print_line(f"{_tree_line(job, top, now)}  <- this job")
    for each in found.descendants:
        output.print_line(_tree_line(each.job, top + each.depth, now))
    if found.next is not None:
        output.print_line(f"There are older children: --before {found.next}")


def _tree_line(job: Job, depth: int, now: datetime) -> str:
    branch = f"{'   ' * (depth - 1)}└─ " if depth else ""
    return f"{branch}{job.id} {formatting.format_value(job.task, 60)} {format_state(job, now)}"


def _optional_facts(job: Job, now: datetime) -> dict[str, str]:
    return {
        "key": formatting.format_value(job.key, 200) + (f" (unique: {job.unique})" if job.unique else ""),
        "priority": str(job.priority),
        "attempts": f"{format_attempts(job)} (failures {job.failures}, crashes {job.crashes} of {job.crash_limit})",
        "created at": formatting.format_exact(job.created_at, now),
        "due at": formatting.format_exact(job.due_at, now),
        "run at": formatting.format_exact(_next_run(job), now),
        "expires at": formatting.format_exact(job.expires_at, now),
        "started at": formatting.format_exact(job.started_at, now),
        "finished at": formatting.format_exact(job.finished_at, now),
        "took": formatting.format_elapsed(job.started_at, job.finished_at),
        "instance": formatting.format_value(job.instance),
        "waits for": formatting.format_value(describe_wait(job), 200),
        "workflow": formatting.format_value(job.workflow),
        "enqueued by": formatting.format_value(job.parent),
        "on dead": formatting.format_value(job.on_dead, 200),
        "replays": str(job.replays) if job.replays else formatting.EMPTY,
        "result error": formatting.format_value(mask_urls(job.result_error or ""), 400),
    }


def to_json_record(job: Job, now: datetime, **more: object) -> dict[str, object]:
    """A job for --json: its fields as stored, the number of its attempt, and its view."""
    return output.record_fields(job, attempt=job.attempt, view=str(job.view(now)), **more)
