"""`drumbeat jobs`: list, show, cancel, run-now, retry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from drumbeat.cli import completion, output, words
from drumbeat.cli.acting import act, these
from drumbeat.cli.connection import ask, look, now
from drumbeat.cli.failures import NotDone, Refused
from drumbeat.cli.noun import noun
from drumbeat.cli.options import (
    KEY,
    NAME,
    Target,
    dry_option,
    filter_options,
    pass_target,
    search_options,
    target_options,
    watch_option,
    why_option,
)
from drumbeat.model.job import CancelAnswer

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat
    from drumbeat.model.job import Attempt, Job

command = noun("jobs", "Jobs: every queued call of a task, and what became of it.")

MOST_LISTED = 10_000
SAID = {
    CancelAnswer.CANCELLED: "is cancelled: it will not run",
    CancelAnswer.REQUESTED: "is running and was asked to stop",
    CancelAnswer.SUCCEEDED: "had succeeded already",
    CancelAnswer.DEAD: "is a dead letter already (`drumbeat dead discard` removes it)",
    CancelAnswer.UNKNOWN: "is not known here",
}


@command.command("list")
@click.option(
    "--state",
    metavar="STATE",
    shell_complete=completion.states,
    help="pending, running, succeeded, dead or cancelled; of pending ones ready, scheduled, retrying or waiting.",
)
@click.option("--id", metavar="ID", help="Whose id begins so: at least 4 characters.")
@search_options
@filter_options
@watch_option
@target_options
@pass_target
def list_(target: Target, /, **wanted: Any) -> None:
    """List jobs, newest first."""
    from drumbeat.cli.page import preview

    wanted |= preview(target.json)
    look(target, lambda app: app.jobs.list(**wanted), lambda jobs: _show_list(target, jobs, wanted["limit"]))


def _show_list(target: Target, jobs: list[Job], limit: int) -> None:
    from drumbeat.cli.page import JOB_COLUMNS, Listing, job_row, show_list

    how = Listing(JOB_COLUMNS, job_row, f"No jobs match in {target.place}.")
    show_list(jobs, how, now=now(), limit=limit, json=target.json)


@command.command("show")
@click.argument("id", shell_complete=completion.jobs)
@target_options
@pass_target
def show(target: Target, /, id: str) -> None:
    """Show a job with all of its runs."""
    show_one(target, id)


def show_one(target: Target, id: str) -> None:
    from drumbeat.cli.page import for_programs, show_job

    async def question(app: Drumbeat) -> tuple[Job, list[Attempt]]:
        return await app.jobs.show(id), await app.jobs.attempts(id)

    job, attempts = ask(target, question)
    if target.json:
        output.json_document(for_programs(job, now(), attempts=attempts))
    else:
        show_job(job, attempts, now())


@command.command("cancel")
@click.argument("ids", nargs=-1, shell_complete=completion.jobs, metavar="[ID]...")
@click.option(
    "--task",
    type=NAME,
    shell_complete=completion.tasks,
    help="Together with --key: all live jobs of this task and key.",
)
@click.option("--key", "keys", type=KEY, multiple=True, help="Together with --task; may be given several times.")
@dry_option
@why_option
@target_options
@pass_target
def cancel(target: Target, /, ids: tuple[str, ...], task: str | None, keys: tuple[str, ...], dry_run: bool) -> None:
    """Cancel jobs, by their ids, or by task and key."""
    if bool(ids) == bool(task or keys) or bool(task) != bool(keys):
        raise Refused("say which jobs to cancel: their ids, or --task and --key together")
    if dry_run:
        _tell_cancellable(target, ask(target, lambda app: _live(app, ids, task, keys)))
        return
    if ids:
        answers = act(target, "jobs.cancel", these(ids), lambda app: app.jobs.cancel(ids), touched=_stopped)
        _tell_cancelled(target, dict(zip(dict.fromkeys(ids), answers, strict=True)))
        return
    assert task is not None
    on = f"task={task} key={keys[0]}" if len(keys) == 1 else f"task={task} keys={', '.join(keys)}"
    answer = act(
        target,
        "jobs.cancel",
        on,
        lambda app: app.cancel(task=task, keys=keys),
        touched=lambda cancelled: cancelled.cancelled + cancelled.requested,
    )
    if target.json:
        output.json_document({"cancelled": answer.cancelled, "requested": answer.requested})
        return
    named = f"key {words.word(keys[0])}" if len(keys) == 1 else f"{len(keys)} keys"
    output.say(f"{words.count(answer.cancelled, 'job')} of task {task} with {named} cancelled.")
    if answer.requested:
        output.say(f"{words.count(answer.requested, 'job')} running: asked to stop, and may still end otherwise.")


async def _live(app: Drumbeat, ids: tuple[str, ...], task: str | None, keys: tuple[str, ...]) -> list[Job]:
    """What a cancellation would be about."""
    if ids:
        return [await app.jobs.show(id) for id in dict.fromkeys(ids)]
    return [
        job
        for state in ("pending", "running")
        for key in keys
        for job in await app.jobs.list(task=task, key=key, state=state, limit=MOST_LISTED)
    ]


def _tell_cancellable(target: Target, jobs: list[Job]) -> None:
    if target.json:
        output.json_document({"dry_run": True, "jobs": {job.id: str(job.state) for job in jobs}})
        return
    would = {"pending": "would be cancelled", "running": "is running: it would be asked to stop"}
    for job in jobs:
        output.say(f"job {job.id} {would.get(job.state, f'has ended: it is {job.state}')}")
    output.say(f"{words.count(sum(job.state in would for job in jobs), 'job')} to cancel; nothing was done.")


def _stopped(answers: list[CancelAnswer]) -> int:
    return sum(answer in (CancelAnswer.CANCELLED, CancelAnswer.REQUESTED) for answer in answers)


def _tell_cancelled(target: Target, answers: dict[str, CancelAnswer]) -> None:
    if target.json:
        output.json_document(answers)
    else:
        for id, answer in answers.items():
            output.say(f"job {words.word(id)} {SAID[answer]}")
    if unknown := [id for id, answer in answers.items() if answer is CancelAnswer.UNKNOWN]:
        raise Refused(f"no job {unknown[0]}: `drumbeat jobs list` shows those that there are")


@command.command("run-now")
@click.argument("ids", nargs=-1, shell_complete=completion.jobs, required=True, metavar="ID...")
@why_option
@target_options
@pass_target
def run_now(target: Target, /, ids: tuple[str, ...]) -> None:
    """Make waiting jobs due at once."""
    # One single id that is not waiting is refused with the reason.
    which = ids[0] if len(ids) == 1 else ids
    made_due = act(target, "jobs.run-now", these(ids), lambda app: app.jobs.run_now(which), touched=int)
    if target.json:
        output.json_document({"due": made_due})
    else:
        output.say(f"{words.count(made_due, 'job')} due now.")
    if made_due < len(set(ids)):
        raise NotDone(f"{words.count(len(set(ids)) - made_due, 'job')} not pending: only a waiting job can be run now")


@command.command("retry")
@click.argument("id", shell_complete=completion.jobs)
@why_option
@target_options
@pass_target
def retry(target: Target, /, id: str) -> None:
    """Let a job run now: a dead letter gets a new life, a waiting job is due at once."""
    job = act(target, "jobs.retry", id, lambda app: app.jobs.retry(id))
    if target.json:
        from drumbeat.cli.page import for_programs

        output.json_document(for_programs(job, now()))
    else:
        output.say(f"job {job.id} is {job.view(now())}.")
