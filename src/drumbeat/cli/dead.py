"""`drumbeat dead`: list, show, groups, replay, discard."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.audit_scope import audited, describe_filter, describe_ids
from drumbeat.cli.connection import call_app
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
from drumbeat.plural import format_count
from drumbeat.redaction import redact

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.admin.dead import SelectedLetter
    from drumbeat.app import Drumbeat
    from drumbeat.core.dead_letter import DeadLetterGroup
    from drumbeat.core.job import ReplayResult

T = TypeVar("T")

command = resource_group("dead", "Dead letters: jobs that were given up and wait for a person.")

GROUP_COLUMNS = output.TableColumns(
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
def list_(target: CliTarget, /, **query: Any) -> None:
    """List dead letters, newest first."""
    from drumbeat.cli.job_view import DEAD_COLUMNS, dead_row, preview_options, show_jobs

    query |= preview_options(target.json)
    empty = "No dead letters in {store}."
    show_jobs(target, lambda app: app.dead.list(**query), DEAD_COLUMNS, dead_row, empty=empty, limit=query["limit"])


@command.command("show")
@click.argument("id", shell_complete=completion.dead_letters)
@target_options
@pass_target
def show(target: CliTarget, /, id: str) -> None:
    """Show a dead letter with its error and all its runs."""
    from drumbeat.cli.job_view import show_job

    show_job(target, id, lambda app: app.dead.show(id))


@command.command("groups")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="Number of groups.")
@watch_option
@target_options
@pass_target
def groups(target: CliTarget, /, limit: int) -> None:
    """Group the newest 10,000 dead letters by task and type of error, the largest groups first."""
    output.list_and_show(
        target, lambda app: app.dead.groups(limit=limit), GROUP_COLUMNS, _group_row, empty="No dead letters in {store}."
    )


def _group_row(group: DeadLetterGroup, now: datetime) -> list[str]:
    return [
        formatting.format_value(group.task, 40),
        formatting.format_value(group.error.rpartition(".")[2], 40),
        f"{group.count:,}",
        formatting.format_timestamp(group.first_at, now),
        formatting.format_timestamp(group.last_at, now),
        group.sample,
        formatting.format_value(redact(group.message)),
    ]


def _bulk_options(command: F) -> F:
    """The arguments of a command that may act on many."""
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
    """Which dead letters an action is about, and whether it needs a confirmation."""

    ids: tuple[str, ...]
    everything: bool
    yes: bool
    dry_run: bool
    criteria: dict[str, Any]

    @property
    def description(self) -> str:
        """For the audit."""
        return describe_ids(self.ids) if self.ids else describe_filter(self.criteria)

    def check(self) -> None:
        """Refuse an action on all dead letters that only comes from leaving something out."""
        has_filter = any(value is not None for value in self.criteria.values())
        if [bool(self.ids), has_filter, self.everything].count(True) != 1:
            raise BadInput("say which dead letters: their ids, or filters such as --task, or --all")


@command.command("replay")
@_bulk_options
@click.option("--rate", type=float, metavar="N", help="At most N a second.")
@target_options
@pass_target
def replay(target: CliTarget, /, rate: float | None, **given: Any) -> None:
    """Run dead letters again: by id, by filter, or --all.

    \b
      drumbeat dead replay --match "connection refused" --rate 10 --dry-run
    """

    async def replay_letters(app: Drumbeat, which: str | list[str]) -> tuple[list[ReplayResult], int]:
        answers = await app.dead.replay(which, rate=rate)
        return answers, sum(answer.replayed for answer in answers)

    done = _run(target, "replay", _read_selection(given), replay_letters)
    if done is None:
        return
    answers, touched, requested = done
    output.report(target, answers or [], f"{format_count(touched, 'dead letter')} replayed.")
    for answer in answers or []:
        if answer.conflict is not None:
            click.echo(f"{answer.id} was not: job {answer.conflict} is live with the same key.", err=True)
    if touched < requested:
        raise NotDone(f"{format_count(requested - touched, 'dead letter')} not replayed")


@command.command("discard")
@_bulk_options
@target_options
@pass_target
def discard(target: CliTarget, /, **given: Any) -> None:
    """Discard dead letters: they stay in history until it is pruned."""

    async def discard_letters(app: Drumbeat, which: str | list[str]) -> tuple[None, int]:
        return None, await app.dead.discard(which)

    done = _run(target, "discard", _read_selection(given), discard_letters)
    if done is None:
        return
    _, touched, requested = done
    output.report(target, {"discarded": touched}, f"{format_count(touched, 'dead letter')} discarded.")
    if touched < requested:
        raise NotDone(f"{format_count(requested - touched, 'id')} of no dead letter")


def _read_selection(given: dict[str, Any]) -> LetterSelection:
    own = {name: given.pop(name) for name in ("ids", "everything", "yes", "dry_run")}
    return LetterSelection(**own, criteria=given)


def _run(
    target: CliTarget,
    verb: str,
    selection: LetterSelection,
    act: Callable[[Drumbeat, str | list[str]], Awaitable[tuple[T, int]]],
) -> tuple[T | None, int, int] | None:
    """Run an action on exactly the letters that were confirmed: what it gives, how many it changed, and of how many.

    None: it was a dry run, which is reported here.
    """

    async def run(app: Drumbeat) -> tuple[T | None, int, int] | None:
        selection.check()
        ids: list[str] = list(dict.fromkeys(selection.ids))
        if not ids or selection.dry_run:
            letters = await app.dead.select(ids or None, all=selection.everything, **selection.criteria)
            ids = [letter.id for letter in letters]
            if selection.dry_run:
                _report_dry_run(target, verb, letters)
                return None
        if not selection.ids and not selection.yes:
            _confirm(verb, len(ids))
        answer, touched = None, 0
        async with audited(app, target, f"dead.{verb}", selection.description) as acting:
            if ids:
                # One single id is refused with the reason.
                answer, touched = await act(app, ids[0] if len(selection.ids) == 1 else ids)
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
