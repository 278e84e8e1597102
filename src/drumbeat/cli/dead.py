"""`drumbeat dead`: list, show, groups, replay, discard."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from drumbeat.cli import completion, formatting, options, output
from drumbeat.cli.audit_scope import audited, describe_filter, describe_ids
from drumbeat.cli.connection import call_app
from drumbeat.cli.failures import BadInput, NotDone
from drumbeat.cli.options import CliTarget
from drumbeat.cli.output import Column
from drumbeat.cli.resource_group import ResourceGroup
from drumbeat.plural import format_count
from drumbeat.redaction import redact

if TYPE_CHECKING:
    from drumbeat.admin.bulk import BulkProgress
    from drumbeat.admin.dead import SelectedLetter
    from drumbeat.app import Drumbeat
    from drumbeat.core.dead_letter import DeadLetterGroup
    from drumbeat.core.job import ReplayResult

T = TypeVar("T")

command = ResourceGroup("dead", "Dead letters: jobs that were given up and wait for a person.")

letter_options = (
    options.argument("ids", nargs=-1, shell_complete=completion.dead_letters, metavar="[ID]..."),
    *options.common_options,
    *options.search_options,
    options.option("--all", "everything", is_flag=True, help="All dead letters."),
    options.option("--yes", "-y", is_flag=True, help="Do not ask."),
    options.dry_option,
    options.reason_option,
)
"""Of a command that may act on many."""

GROUPS: output.TextTable[DeadLetterGroup] = output.TextTable(
    Column("task", lambda group, _: formatting.format_value(group.task, 40), elastic=True),
    Column("error", lambda group, _: formatting.format_value(group.error.rpartition(".")[2], 40), elastic=True),
    Column("letters", lambda group, _: f"{group.count:,}", number=True),
    Column("first (UTC)", lambda group, now: formatting.format_timestamp(group.first_at, now), drop=1),
    Column("last (UTC)", lambda group, now: formatting.format_timestamp(group.last_at, now), drop=3),
    Column("newest", lambda group, _: group.sample),
    Column("its message", lambda group, _: formatting.format_value(redact(group.message)), elastic=True, drop=2),
)
EMPTY = "No dead letters in {store}."


@command.verb("list", *options.job_list_options)
def list_(target: CliTarget, /, **query: Any) -> None:
    """List dead letters, newest first."""
    from drumbeat.cli.job_view import DEAD_LETTERS, show_jobs

    show_jobs(target, lambda app: app.dead.list, DEAD_LETTERS, query, empty=EMPTY)


@command.verb("show")
@click.argument("id", shell_complete=completion.dead_letters)
def show(target: CliTarget, /, id: str) -> None:
    """Show a dead letter with its error and all its runs."""
    from drumbeat.cli.job_view import show_job

    show_job(target, id, lambda app: app.dead.show(id))


@command.verb("groups", options.limit_option(1_000, "groups"), options.watch_option)
def groups(target: CliTarget, /, limit: int) -> None:
    """Group the newest 10,000 dead letters by task and type of error, the largest groups first."""
    output.list_and_show(target, lambda app: app.dead.groups(limit=limit), GROUPS, empty=EMPTY)


@command.verb("replay", *letter_options, options.option("--rate", type=float, metavar="N", help="At most N a second."))
def replay(target: CliTarget, /, rate: float | None, **given: Any) -> None:
    """Run dead letters again: by id, by filter, or --all.

    \b
      drumbeat dead replay --match "connection refused" --rate 10 --dry-run
    """

    async def replay_letters(
        app: Drumbeat, which: str | list[str], progress: BulkProgress
    ) -> tuple[list[ReplayResult], int]:
        answers = await app.dead.replay(which, rate=rate, progress=progress)
        return answers, sum(answer.replayed for answer in answers)

    done = _run(target, "replay", given, replay_letters)
    if done is None:
        return
    answers, touched, requested = done
    output.report(target, answers or [], f"{format_count(touched, 'dead letter')} replayed.")
    for answer in answers or []:
        if answer.conflict is not None:
            click.echo(f"{answer.id} was not: job {answer.conflict} is live with the same key.", err=True)
    if touched < requested:
        raise NotDone(f"{format_count(requested - touched, 'dead letter')} not replayed")


@command.verb("discard", *letter_options)
def discard(target: CliTarget, /, **given: Any) -> None:
    """Discard dead letters: they stay in history until it is pruned."""

    async def discard_letters(app: Drumbeat, which: str | list[str], progress: BulkProgress) -> tuple[None, int]:
        return None, await app.dead.discard(which)

    done = _run(target, "discard", given, discard_letters)
    if done is None:
        return
    _, touched, requested = done
    output.report(target, {"discarded": touched}, f"{format_count(touched, 'dead letter')} discarded.")
    if touched < requested:
        raise NotDone(f"{format_count(requested - touched, 'id')} of no dead letter")


def _run(
    target: CliTarget,
    verb: str,
    given: dict[str, Any],
    act: Callable[[Drumbeat, str | list[str], BulkProgress], Awaitable[tuple[T, int]]],
) -> tuple[T | None, int, int] | None:
    """Run an action on exactly the letters that were confirmed: what it gives, how many it changed, and of how many.

    `given` are the values of `letter_options`. None: it was a dry run, which is reported here.
    """
    given_ids, everything, yes, dry_run = (given.pop(name) for name in ("ids", "everything", "yes", "dry_run"))

    async def run(app: Drumbeat) -> tuple[T | None, int, int] | None:
        # Refuses an action on all dead letters that only comes from leaving something out.
        has_filter = any(value is not None for value in given.values())
        if [bool(given_ids), has_filter, everything].count(True) != 1:
            raise BadInput("say which dead letters: their ids, or filters such as --task, or --all")
        ids: list[str] = list(dict.fromkeys(given_ids))
        if not ids or dry_run:
            letters = await app.dead.select(ids or None, all=everything, **given)
            ids = [letter.id for letter in letters]
            if dry_run:
                _report_dry_run(target, verb, letters)
                return None
        if not given_ids and not yes:
            _confirm(verb, len(ids))
        answer, touched = None, 0
        on = describe_ids(given_ids) if given_ids else describe_filter(given)
        async with audited(app, target, f"dead.{verb}", on) as acting:
            if ids:
                progress = await app.audit.progress(acting, matched=len(ids))
                # One single id is refused with the reason.
                answer, touched = await act(app, ids[0] if len(given_ids) == 1 else ids, progress)
                if progress.is_stopped:
                    acting.outcome = f"stopped by {progress.stopped_by}"
                    click.echo(f"Stopped by {formatting.format_value(progress.stopped_by)}.", err=True)
            acting.touched = touched
        return answer, touched, len(ids)

    return call_app(target, run)


def _report_dry_run(target: CliTarget, verb: str, letters: list[SelectedLetter]) -> None:
    tasks = Counter(letter.task for letter in letters)
    by_task = ", ".join(f"{formatting.format_value(task)} {count:,}" for task, count in tasks.most_common())
    many = format_count(len(letters), "dead letter")
    output.report(
        target,
        {"dry_run": True, "matched": len(letters), "tasks": tasks, "ids": [letter.id for letter in letters]},
        f"This would {verb} {many}{': ' + by_task if by_task else ''}.\nNothing was done.",
    )


def _confirm(verb: str, number: int) -> None:
    if number <= 1:
        return
    many = format_count(number, "dead letter")
    if not sys.stdin.isatty():
        raise BadInput(f"this would {verb} {many}: add --yes to do it")
    try:
        is_wanted = click.confirm(f"{verb.title()} {many}?", err=True)
    except UnicodeDecodeError:
        raise BadInput("what was typed is not UTF-8: nothing was done") from None
    if not is_wanted:
        raise NotDone("nothing was done")
