"""`drumbeat dead`: list, show, groups, replay, discard."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from drumbeat.cli import completion, output, words
from drumbeat.cli.acting import common, recorded, these
from drumbeat.cli.connection import ask, look, now
from drumbeat.cli.failures import NotDone, Refused
from drumbeat.cli.noun import noun
from drumbeat.cli.options import (
    F,
    Target,
    common_options,
    dry_option,
    filter_options,
    pass_target,
    search_options,
    target_options,
    watch_option,
    why_option,
)

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat
    from drumbeat.model.death import DeadGroup
    from drumbeat.model.job import Job, Replayed

command = noun("dead", "Dead letters: jobs that were given up and wait for a person.")

PAGE = 1_000
GROUP_COLUMNS = output.Columns(
    names=("task", "error", "letters", "first (UTC)", "last (UTC)", "newest", "its message"),
    numbers=frozenset({"letters"}),
    elastic=frozenset({"task", "error", "its message"}),
    spare=("first (UTC)", "its message", "last (UTC)"),
)


@command.command("list")
@search_options
@filter_options
@watch_option
@target_options
@pass_target
def list_(target: Target, /, **wanted: Any) -> None:
    """List dead letters, newest first."""
    from drumbeat.cli.page import preview

    wanted |= preview(target.json)
    look(target, lambda app: app.dead.list(**wanted), lambda letters: _show_list(target, letters, wanted["limit"]))


def _show_list(target: Target, letters: list[Job], limit: int) -> None:
    from drumbeat.cli.page import DEAD_COLUMNS, Listing, dead_row, show_list

    how = Listing(DEAD_COLUMNS, dead_row, f"No dead letters in {target.place}.")
    show_list(letters, how, now=now(), limit=limit, json=target.json)


@command.command("show")
@click.argument("id", shell_complete=completion.letters)
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


@command.command("groups")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="At most so many groups.")
@watch_option
@target_options
@pass_target
def groups(target: Target, /, limit: int) -> None:
    """Show what dead letters have in common: task and type of error, the largest groups first.

    The newest 10,000 dead letters are looked at.
    """
    look(target, lambda app: app.dead.groups(limit=limit), lambda found: _show_groups(target, found))


def _show_groups(target: Target, found: list[DeadGroup]) -> None:
    if target.json:
        output.json_lines(found)
        return
    moment = now()
    rows = [
        [
            words.word(group.task, 40),
            words.word(group.error.rpartition(".")[2], 40),
            f"{group.count:,}",
            words.when(group.first_at, moment),
            words.when(group.last_at, moment),
            group.sample,
            words.word(group.message),
        ]
        for group in found
    ]
    output.show_table(GROUP_COLUMNS, rows, empty=f"No dead letters in {target.place}.")


def _many(command: F) -> F:
    """The arguments of a verb that may act on many."""
    for option in (
        why_option,
        dry_option,
        click.option("--yes", "-y", is_flag=True, help="Do not ask."),
        click.option("--all", "everything", is_flag=True, help="All dead letters."),
        search_options,
        common_options,
        click.argument("ids", nargs=-1, shell_complete=completion.letters, metavar="[ID]..."),
    ):
        command = option(command)
    return command


class Wish(NamedTuple):
    """Which dead letters somebody means, and how sure."""

    ids: tuple[str, ...]
    everything: bool
    yes: bool
    dry_run: bool
    common: dict[str, Any]

    @property
    def words(self) -> str:
        """For the record."""
        return these(self.ids) if self.ids else common(self.common)


@command.command("replay")
@_many
@click.option("--rate", type=float, metavar="N", help="At most N in a second.")
@target_options
@pass_target
def replay(
    target: Target,
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
    wish = Wish(ids, everything, yes, dry_run, given)

    async def replayed(app: Drumbeat) -> list[Replayed] | None:
        meant = await _meant(app, wish)
        if _is_told(target, "replay", meant, wish):
            return None
        async with recorded(app, target, "dead.replay", wish.words) as act:
            # One single id is refused with the reason.
            which = ids[0] if len(ids) == 1 else [job.id for job in meant]
            answers = await app.dead.replay(which, rate=rate) if meant or ids else []
            act.touched = sum(answer.done for answer in answers)
        return answers

    answers = ask(target, replayed)
    if answers is not None:
        _tell_replayed(target, answers)


def _tell_replayed(target: Target, answers: list[Replayed]) -> None:
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
def discard(target: Target, /, ids: tuple[str, ...], everything: bool, yes: bool, dry_run: bool, **given: Any) -> None:
    """Let dead letters go: they stay in history until it is pruned."""
    wish = Wish(ids, everything, yes, dry_run, given)

    async def discarded(app: Drumbeat) -> tuple[int, int] | None:
        meant = await _meant(app, wish)
        if _is_told(target, "discard", meant, wish):
            return None
        async with recorded(app, target, "dead.discard", wish.words) as act:
            which = ids[0] if len(ids) == 1 else [job.id for job in meant]
            act.touched = await app.dead.discard(which) if meant or ids else 0
        return act.touched, len(meant)

    answer = ask(target, discarded)
    if answer is None:
        return
    done, meant = answer
    if target.json:
        output.json_document({"discarded": done})
    else:
        output.say(f"{words.count(done, 'dead letter')} discarded.")
    if done < meant:
        raise NotDone(f"{words.count(meant - done, 'id')} of no dead letter")


class Meant(NamedTuple):
    id: str
    task: str | None
    """None: it was given by its id, and nobody has looked."""


async def _meant(app: Drumbeat, wish: Wish) -> list[Meant]:
    """What an act is about, oldest first; nobody acts on all of them by leaving something out."""
    has_filter = any(value is not None for value in wish.common.values())
    if [bool(wish.ids), has_filter, wish.everything].count(True) != 1:
        raise Refused("say which dead letters: their ids, or filters such as --task, or --all")
    if wish.ids:
        ids = list(dict.fromkeys(wish.ids))
        return [await _looked_up(app, id) for id in ids] if wish.dry_run else [Meant(id, None) for id in ids]
    found: list[Meant] = []
    before: str | None = None
    while page := await app.dead.list(before=before, limit=PAGE, preview=0, **wish.common):
        found += [Meant(job.id, job.task) for job in page]
        before = page[-1].id
        if len(page) < PAGE:
            break
    return found[::-1]


async def _looked_up(app: Drumbeat, id: str) -> Meant:
    job = await app.dead.show(id)
    if not await app.dead.list(id=job.id):
        raise Refused(f"job {id} is no dead letter any more: somebody has discarded it")
    return Meant(id, job.task)


def _is_told(target: Target, verb: str, meant: list[Meant], wish: Wish) -> bool:
    """A dry run is told here and is all. Else many are confirmed, or it ends here."""
    if not wish.dry_run:
        _confirm(verb.title(), len(meant), wish.ids, wish.yes)
        return False
    tasks = Counter(job.task or "?" for job in meant)
    if target.json:
        output.json_document({"dry_run": True, "matched": len(meant), "tasks": tasks, "ids": [job.id for job in meant]})
    else:
        by_task = ", ".join(f"{words.word(task)} {count:,}" for task, count in tasks.most_common())
        output.say(f"This would {verb} {words.count(len(meant), 'dead letter')}{': ' + by_task if by_task else ''}.")
        output.say("Nothing was done.")
    return True


def _confirm(verb: str, number: int, ids: tuple[str, ...], yes: bool) -> None:
    if number <= 1 or ids or yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"this would {verb.lower()} {words.count(number, 'dead letter')}: add --yes to do it")
    try:
        is_wanted = click.confirm(f"{verb} {words.count(number, 'dead letter')}?", err=True)
    except UnicodeDecodeError:
        raise Refused("what was typed is not UTF-8: nothing was done") from None
    if not is_wanted:
        raise NotDone("nothing was done")
