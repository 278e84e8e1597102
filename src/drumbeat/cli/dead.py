"""`drumbeat dead`: list, show, replay, discard."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from drumbeat.cli import output, words
from drumbeat.cli.connection import ask, look, now
from drumbeat.cli.failures import NotDone, Refused
from drumbeat.cli.noun import noun
from drumbeat.cli.options import F, Target, common_options, filter_options, pass_target, target_options, watch_option

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat
    from drumbeat.model.job import Job, Replayed

command = noun("dead", "Dead letters: jobs that were given up and wait for a person.")

PAGE = 1_000


@command.command("list")
@filter_options
@watch_option
@target_options
@pass_target
def list_(target: Target, /, **wanted: Any) -> None:
    """List dead letters, newest first."""
    look(target, lambda app: app.dead.list(**wanted), lambda letters: _show_list(target, letters, wanted["limit"]))


def _show_list(target: Target, letters: list[Job], limit: int) -> None:
    from drumbeat.cli.page import DEAD_COLUMNS, dead_row, for_programs

    moment = now()
    if target.json:
        output.json_lines(for_programs(job, moment) for job in letters)
        return
    rows = [dead_row(job, moment) for job in letters]
    output.show_table(DEAD_COLUMNS, rows, empty=f"No dead letters in {target.place}.")
    if len(letters) == limit:
        output.say(f"The newest {len(letters)}; go on with --before {letters[-1].id}, or raise --limit.")


@command.command("show")
@click.argument("id")
@target_options
@pass_target
def show(target: Target, /, id: str) -> None:
    """Show a dead letter with its error and all of its runs."""
    from drumbeat.cli.page import for_programs, show_job

    job, attempts = ask(target, _both(id))
    if target.json:
        output.json_document(for_programs(job, now(), attempts=attempts))
    else:
        show_job(job, attempts, now())


def _both(id: str) -> Callable[[Drumbeat], Awaitable[Any]]:
    async def question(app: Drumbeat) -> Any:
        return await app.dead.show(id), await app.jobs.attempts(id)

    return question


def _many(command: F) -> F:
    """The arguments of a verb that may act on many."""
    command = click.option("--yes", "-y", is_flag=True, help="Do not ask.")(command)
    command = click.option("--all", "everything", is_flag=True, help="All dead letters.")(command)
    return click.argument("ids", nargs=-1, metavar="[ID]...")(common_options(command))


@command.command("replay")
@_many
@click.option("--rate", type=float, metavar="N", help="At most N in a second.")
@target_options
@pass_target
def replay(
    target: Target, /, ids: tuple[str, ...], everything: bool, yes: bool, rate: float | None, **common: str | None
) -> None:
    """Give dead letters a new life: those of the ids, or of the filters, or --all."""

    async def replayed(app: Drumbeat) -> list[Replayed]:
        meant = await _meant(app, ids, everything, common)
        _confirm("Replay", len(meant), ids, yes)
        if len(ids) == 1:
            return await app.dead.replay(ids[0])  # one single id is refused with the reason
        return await app.dead.replay(meant, rate=rate) if meant else []

    answers = ask(target, replayed)
    done = sum(answer.done for answer in answers)
    if target.json:
        output.json_document(answers)
    else:
        output.say(f"{words.count(done, 'dead letter')} replayed.")
    for answer in answers:
        if answer.conflict is not None:
            click.echo(f"{answer.id} was not: job {answer.conflict} is live with the same key.", err=True)
    if done < len(answers):
        raise NotDone(f"{words.count(len(answers) - done, 'dead letter')} not replayed")


@command.command("discard")
@_many
@target_options
@pass_target
def discard(target: Target, /, ids: tuple[str, ...], everything: bool, yes: bool, **common: str | None) -> None:
    """Let dead letters go: they stay in history until it is pruned."""

    async def discarded(app: Drumbeat) -> tuple[int, int]:
        meant = await _meant(app, ids, everything, common)
        _confirm("Discard", len(meant), ids, yes)
        if len(ids) == 1:
            return await app.dead.discard(ids[0]), 1
        return await app.dead.discard(meant) if meant else 0, len(meant)

    done, meant = ask(target, discarded)
    if target.json:
        output.json_document({"discarded": done})
    else:
        output.say(f"{words.count(done, 'dead letter')} discarded.")
    if done < meant:
        raise NotDone(f"{words.count(meant - done, 'id')} of no dead letter")


async def _meant(app: Drumbeat, ids: tuple[str, ...], everything: bool, common: dict[str, str | None]) -> list[str]:
    """The ids that an act is about, oldest first; nobody acts on all of them by leaving something out."""
    has_filter = any(value is not None for value in common.values())
    if [bool(ids), has_filter, everything].count(True) != 1:
        raise Refused("say which dead letters: their ids, or filters such as --task, or --all")
    if ids:
        return list(dict.fromkeys(ids))
    found: list[str] = []
    before: str | None = None
    while page := await app.dead.list(before=before, limit=PAGE, **common):
        found += [job.id for job in page]
        before = page[-1].id
        if len(page) < PAGE:
            break
    return found[::-1]


def _confirm(verb: str, number: int, ids: tuple[str, ...], yes: bool) -> None:
    if number <= 1 or ids or yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"this would {verb.lower()} {words.count(number, 'dead letter')}: add --yes to do it")
    if not click.confirm(f"{verb} {words.count(number, 'dead letter')}?", err=True):
        raise NotDone("nothing was done")
