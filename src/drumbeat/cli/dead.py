"""`drumbeat dead`: list, show, groups, replay, discard."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.audit_scope import audited, describe_filter, describe_ids
from drumbeat.cli.connection import call_and_show, call_app, utc_now
from drumbeat.cli.failures import BadInput, NotDone
from drumbeat.cli.options import (
    CliTarget,
    F,
    common_options,
    dry_option,
    filter_options,
    pass_target,
    reason_option,
    search_options,
    target_options,
    watch_option,
)
from drumbeat.cli.resource_group import resource_group

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat
    from drumbeat.core.dead_letter import DeadLetterGroup
    from drumbeat.core.job import Job, ReplayResult

command = resource_group("dead", "Dead letters: jobs that were given up and wait for a person.")

PAGE = 1_000
GROUP_COLUMNS = output.Columns(
    names=("task", "error", "letters", "first (UTC)", "last (UTC)", "newest", "its message"),
    numbers=frozenset({"letters"}),
    elastic=frozenset({"task", "error", "its message"}),
    droppable=("first (UTC)", "its message", "last (UTC)"),
)


@command.command("list")
@search_options
@filter_options
@watch_option
@target_options
@pass_target
def list_(target: CliTarget, /, **wanted: Any) -> None:
    """List dead letters, newest first."""
    from drumbeat.cli.job_view import preview_options

    wanted |= preview_options(target.json)
    call_and_show(
        target, lambda app: app.dead.list(**wanted), lambda letters: _show_list(target, letters, wanted["limit"])
    )


def _show_list(target: CliTarget, letters: list[Job], limit: int) -> None:
    from drumbeat.cli.job_view import DEAD_COLUMNS, JobListing, dead_row, show_list

    how = JobListing(DEAD_COLUMNS, dead_row, f"No dead letters in {target.store_url}.")
    show_list(letters, how, now=utc_now(), limit=limit, json=target.json)


@command.command("show")
@click.argument("id", shell_complete=completion.dead_letters)
@target_options
@pass_target
def show(target: CliTarget, /, id: str) -> None:
    """Show a dead letter with its error and all of its runs."""
    from drumbeat.cli.job_view import show_job, to_json_record

    job, attempts = call_app(target, _letter_and_attempts(id))
    if target.json:
        output.print_json(to_json_record(job, utc_now(), attempts=attempts))
    else:
        show_job(job, attempts, utc_now())


def _letter_and_attempts(id: str) -> Callable[[Drumbeat], Awaitable[Any]]:
    async def question(app: Drumbeat) -> Any:
        return await app.dead.show(id), await app.jobs.attempts(id)

    return question


@command.command("groups")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="At most so many groups.")
@watch_option
@target_options
@pass_target
def groups(target: CliTarget, /, limit: int) -> None:
    """Show what dead letters have in common: task and type of error, the largest groups first.

    The newest 10,000 dead letters are looked at.
    """
    call_and_show(target, lambda app: app.dead.groups(limit=limit), lambda found: _show_groups(target, found))


def _show_groups(target: CliTarget, found: list[DeadLetterGroup]) -> None:
    if target.json:
        output.print_json_lines(found)
        return
    moment = utc_now()
    rows = [
        [
            formatting.format_value(group.task, 40),
            formatting.format_value(group.error.rpartition(".")[2], 40),
            f"{group.count:,}",
            formatting.format_timestamp(group.first_at, moment),
            formatting.format_timestamp(group.last_at, moment),
            group.sample,
            formatting.format_value(group.message),
        ]
        for group in found
    ]
    output.show_table(GROUP_COLUMNS, rows, empty=f"No dead letters in {target.store_url}.")


def _bulk_options(command: F) -> F:
    """The arguments of a verb that may act on many."""
    for option in (
        reason_option,
        dry_option,
        click.option("--yes", "-y", is_flag=True, help="Do not ask."),
        click.option("--all", "everything", is_flag=True, help="All dead letters."),
        search_options,
        common_options,
        click.argument("ids", nargs=-1, shell_complete=completion.dead_letters, metavar="[ID]..."),
    ):
        command = option(command)
    return command


class LetterSelection(NamedTuple):
    """Which dead letters somebody means, and how sure."""

    ids: tuple[str, ...]
    everything: bool
    yes: bool
    dry_run: bool
    common: dict[str, Any]

    @property
    def description(self) -> str:
        """For the record."""
        return describe_ids(self.ids) if self.ids else describe_filter(self.common)


@command.command("replay")
@_bulk_options
@click.option("--rate", type=float, metavar="N", help="At most N in a second.")
@target_options
@pass_target
def replay(
    target: CliTarget,
    /,
    ids: tuple[str, ...],
    everything: bool,
    yes: bool,
    dry_run: bool,
    rate: float | None,
    **given: Any,
) -> None:
    """Give dead letters a new life: those of the ids, or of the filters, or --all.

    \b
      drumbeat dead replay --match "connection refused" --rate 10 --dry-run
    """
    selection = LetterSelection(ids, everything, yes, dry_run, given)

    async def replay_selected(app: Drumbeat) -> list[ReplayResult] | None:
        meant = await _select_letters(app, selection)
        if _confirm_or_report(target, "replay", meant, selection):
            return None
        async with audited(app, target, "dead.replay", selection.description) as act:
            # One single id is refused with the reason.
            which = ids[0] if len(ids) == 1 else [job.id for job in meant]
            answers = await app.dead.replay(which, rate=rate) if meant or ids else []
            act.touched = sum(answer.replayed for answer in answers)
        return answers

    answers = call_app(target, replay_selected)
    if answers is not None:
        _report_replayed(target, answers)


def _report_replayed(target: CliTarget, answers: list[ReplayResult]) -> None:
    done = sum(answer.replayed for answer in answers)
    if target.json:
        output.print_json(answers)
    else:
        output.print_line(f"{formatting.format_count(done, 'dead letter')} replayed.")
    for answer in answers:
        if answer.conflict is not None:
            click.echo(f"{answer.id} was not: job {answer.conflict} is live with the same key.", err=True)
    if done < len(answers):
        raise NotDone(f"{formatting.format_count(len(answers) - done, 'dead letter')} not replayed")


@command.command("discard")
@_bulk_options
@target_options
@pass_target
def discard(
    target: CliTarget, /, ids: tuple[str, ...], everything: bool, yes: bool, dry_run: bool, **given: Any
) -> None:
    """Let dead letters go: they stay in history until it is pruned."""
    selection = LetterSelection(ids, everything, yes, dry_run, given)

    async def discard_selected(app: Drumbeat) -> tuple[int, int] | None:
        meant = await _select_letters(app, selection)
        if _confirm_or_report(target, "discard", meant, selection):
            return None
        async with audited(app, target, "dead.discard", selection.description) as act:
            which = ids[0] if len(ids) == 1 else [job.id for job in meant]
            act.touched = await app.dead.discard(which) if meant or ids else 0
        return act.touched, len(meant)

    answer = call_app(target, discard_selected)
    if answer is None:
        return
    done, meant = answer
    if target.json:
        output.print_json({"discarded": done})
    else:
        output.print_line(f"{formatting.format_count(done, 'dead letter')} discarded.")
    if done < meant:
        raise NotDone(f"{formatting.format_count(meant - done, 'id')} of no dead letter")


class SelectedLetter(NamedTuple):
    id: str
    task: str | None
    """None: it was given by its id, and nobody has looked."""


async def _select_letters(app: Drumbeat, selection: LetterSelection) -> list[SelectedLetter]:
    """What an act is about, oldest first; nobody acts on all of them by leaving something out."""
    has_filter = any(value is not None for value in selection.common.values())
    if [bool(selection.ids), has_filter, selection.everything].count(True) != 1:
        raise BadInput("say which dead letters: their ids, or filters such as --task, or --all")
    if selection.ids:
        ids = list(dict.fromkeys(selection.ids))
        return (
            [await _find_letter(app, id) for id in ids]
            if selection.dry_run
            else [SelectedLetter(id, None) for id in ids]
        )
    found: list[SelectedLetter] = []
    before: str | None = None
    while page := await app.dead.list(before=before, limit=PAGE, preview=0, **selection.common):
        found += [SelectedLetter(job.id, job.task) for job in page]
        before = page[-1].id
        if len(page) < PAGE:
            break
    return found[::-1]


async def _find_letter(app: Drumbeat, id: str) -> SelectedLetter:
    job = await app.dead.show(id)
    if not await app.dead.list(id=job.id):
        raise BadInput(f"job {id} is no dead letter any more: somebody has discarded it")
    return SelectedLetter(id, job.task)


def _confirm_or_report(target: CliTarget, verb: str, letters: list[SelectedLetter], selection: LetterSelection) -> bool:
    """A dry run is told here and is all. Else many are confirmed, or it ends here."""
    if not selection.dry_run:
        _confirm(verb.title(), len(letters), selection.ids, selection.yes)
        return False
    tasks = Counter(job.task or "?" for job in letters)
    if target.json:
        output.print_json(
            {"dry_run": True, "matched": len(letters), "tasks": tasks, "ids": [job.id for job in letters]}
        )
    else:
        by_task = ", ".join(f"{formatting.format_value(task)} {count:,}" for task, count in tasks.most_common())
        output.print_line(
            f"This would {verb} {formatting.format_count(len(letters), 'dead letter')}{': ' + by_task if by_task else ''}."
        )
        output.print_line("Nothing was done.")
    return True


def _confirm(verb: str, number: int, ids: tuple[str, ...], yes: bool) -> None:
    if number <= 1 or ids or yes:
        return
    if not sys.stdin.isatty():
        raise BadInput(
            f"this would {verb.lower()} {formatting.format_count(number, 'dead letter')}: add --yes to do it"
        )
    try:
        is_wanted = click.confirm(f"{verb} {formatting.format_count(number, 'dead letter')}?", err=True)
    except UnicodeDecodeError:
        raise BadInput("what was typed is not UTF-8: nothing was done") from None
    if not is_wanted:
        raise NotDone("nothing was done")
