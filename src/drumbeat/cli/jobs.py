"""`drumbeat jobs`: list, show, lineage, cancel, run-now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.audit_scope import describe_ids, run_audited
from drumbeat.cli.connection import call_app
from drumbeat.cli.failures import BadInput, NotDone
from drumbeat.cli.options import KEY, NAME, PAST, CliTarget, dry_option, job_list_options, reason_option
from drumbeat.cli.resource_group import ResourceGroup
from drumbeat.core.job import CancelAnswer
from drumbeat.plural import format_count

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat
    from drumbeat.core.job import Job

command = ResourceGroup("jobs", "Jobs: every queued call of a task, and how it ended.")

CANCEL_MESSAGES = {
    CancelAnswer.CANCELLED: "is cancelled: it will not run",
    CancelAnswer.REQUESTED: "is running and was asked to stop",
    CancelAnswer.SUCCEEDED: "had succeeded already",
    CancelAnswer.DEAD: "is a dead letter already (`drumbeat dead discard` removes it)",
    CancelAnswer.EXPIRED: "had expired already",
    CancelAnswer.UNKNOWN: "is not known here",
}
MAX_LISTED = 10_000


@command.verb("list", *job_list_options)
@click.option(
    "--state",
    metavar="STATE",
    shell_complete=completion.states,
    help="pending, running, succeeded, dead or cancelled; of pending ones ready, scheduled, retrying or waiting.",
)
@click.option("--id", metavar="ID", help="Only jobs whose id begins like this: at least 4 characters.")
@click.option("--ended-since", type=PAST, metavar="WHEN", help="Ended at this time or later, or within: 2h.")
@click.option("--ended-until", type=PAST, metavar="WHEN", help="Ended before this time, or longer ago: 2h.")
@click.option("--parent", metavar="ID", help="Only jobs that this job enqueued.")
def list_(target: CliTarget, /, **query: Any) -> None:
    """List jobs, newest first."""
    from drumbeat.cli.job_view import JOBS, show_jobs

    show_jobs(target, lambda app: app.jobs.list, JOBS, query, empty="No jobs match in {store}.")


@command.verb("show")
@click.argument("id", shell_complete=completion.jobs)
def show(target: CliTarget, /, id: str) -> None:
    """Show a job with all of its runs."""
    from drumbeat.cli.job_view import show_job

    show_job(target, id, lambda app: app.jobs.show(id))


@command.verb("lineage")
@click.argument("id", shell_complete=completion.jobs)
@click.option("--before", metavar="ID", help="Only children older than this job: the next page.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Jobs below it to list.")
def lineage(target: CliTarget, /, id: str, before: str | None, limit: int) -> None:
    """Show which job enqueued it, and which jobs it enqueued, as a tree."""
    from drumbeat.cli.job_view import show_lineage

    show_lineage(target, id, before, limit)


@command.verb("cancel", dry_option, reason_option)
@click.argument("ids", nargs=-1, shell_complete=completion.jobs, metavar="[ID]...")
@click.option(
    "--task",
    type=NAME,
    shell_complete=completion.tasks,
    help="Together with --key: all live jobs of this task and key.",
)
@click.option("--key", "keys", type=KEY, multiple=True, help="Together with --task; may be given several times.")
def cancel(target: CliTarget, /, ids: tuple[str, ...], task: str | None, keys: tuple[str, ...], dry_run: bool) -> None:
    """Cancel jobs, by their ids, or by task and key."""
    if bool(ids) == bool(task or keys) or bool(task) != bool(keys):
        raise BadInput("say which jobs to cancel: their ids, or --task and --key together")
    if dry_run:
        _report_cancellable(target, call_app(target, lambda app: _find_cancellable(app, ids, task, keys)))
        return
    if ids:
        answers = run_audited(
            target, "jobs.cancel", describe_ids(ids), lambda app: app.jobs.cancel(ids), count_touched=_count_stopped
        )
        _report_cancelled(target, dict(zip(dict.fromkeys(ids), answers, strict=True)))
        return
    assert task is not None
    on = f"task={task} key={keys[0]}" if len(keys) == 1 else f"task={task} keys={', '.join(keys)}"
    answer = run_audited(
        target,
        "jobs.cancel",
        on,
        lambda app: app.cancel(task=task, keys=keys),
        count_touched=lambda cancelled: cancelled.cancelled + cancelled.requested,
    )
    if target.json:
        output.print_json({"cancelled": answer.cancelled, "requested": answer.requested})
        return
    named = f"key {formatting.format_value(keys[0])}" if len(keys) == 1 else f"{len(keys)} keys"
    output.print_line(f"{format_count(answer.cancelled, 'job')} of task {task} with {named} cancelled.")
    if answer.requested:
        output.print_line(
            f"{format_count(answer.requested, 'job')} running: asked to stop, and may still end otherwise."
        )


async def _find_cancellable(app: Drumbeat, ids: tuple[str, ...], task: str | None, keys: tuple[str, ...]) -> list[Job]:
    """The jobs that would be cancelled."""
    if ids:
        return [await app.jobs.show(id) for id in dict.fromkeys(ids)]
    return [
        job
        for state in ("pending", "running")
        for key in keys
        for job in await app.jobs.list(task=task, key=key, state=state, limit=MAX_LISTED)
    ]


def _report_cancellable(target: CliTarget, jobs: list[Job]) -> None:
    if target.json:
        output.print_json({"dry_run": True, "jobs": {job.id: str(job.state) for job in jobs}})
        return
    would = {"pending": "would be cancelled", "running": "is running: it would be asked to stop"}
    for job in jobs:
        output.print_line(f"job {job.id} {would.get(job.state, f'has ended: it is {job.state}')}")
    output.print_line(f"{format_count(sum(job.state in would for job in jobs), 'job')} to cancel; nothing was done.")


def _count_stopped(answers: list[CancelAnswer]) -> int:
    return sum(answer in (CancelAnswer.CANCELLED, CancelAnswer.REQUESTED) for answer in answers)


def _report_cancelled(target: CliTarget, answers: dict[str, CancelAnswer]) -> None:
    if target.json:
        output.print_json(answers)
    else:
        for id, answer in answers.items():
            output.print_line(f"job {formatting.format_value(id)} {CANCEL_MESSAGES[answer]}")
    if unknown := [id for id, answer in answers.items() if answer is CancelAnswer.UNKNOWN]:
        raise BadInput(f"no job {unknown[0]}: `drumbeat jobs list` shows those that there are")


@command.verb("run-now", reason_option)
@click.argument("ids", nargs=-1, shell_complete=completion.jobs, required=True, metavar="ID...")
def run_now(target: CliTarget, /, ids: tuple[str, ...]) -> None:
    """Make pending jobs due at once."""
    # One single id that is not pending is refused with the reason.
    which = ids[0] if len(ids) == 1 else ids
    made_due = run_audited(target, "jobs.run_now", describe_ids(ids), lambda app: app.jobs.run_now(which))
    output.report(target, {"due": made_due}, f"{format_count(made_due, 'job')} due now.")
    if made_due < len(set(ids)):
        raise NotDone(f"{format_count(len(set(ids)) - made_due, 'job')} not pending: only a pending job can be run now")
