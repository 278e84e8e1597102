"""`drumbeat locks`: list, show, release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat import durations
from drumbeat.cli import completion, output, words
from drumbeat.cli.acting import act, person
from drumbeat.cli.connection import ask, look, now
from drumbeat.cli.failures import NotDone
from drumbeat.cli.noun import noun
from drumbeat.cli.options import NAME, Target, pass_target, target_options, watch_option

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.model.lock import LockInfo, TicketInfo

command = noun("locks", "Locks: whose turn it is in the cluster.")

COLUMNS = output.Columns(
    names=("lock", "holders", "waiting", "held by", "for", "token", "lease left"),
    numbers=frozenset({"waiting", "token"}),
    elastic=frozenset({"lock", "held by", "for"}),
    spare=("for", "token", "held by"),
)
LINE = output.Columns(
    names=("place", "ticket", "token", "owner", "for", "since (UTC)", "lease left"),
    numbers=frozenset({"token"}),
    elastic=frozenset({"owner", "for"}),
    spare=("for", "since (UTC)", "owner"),
)


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that nobody holds or wants just now.")
@watch_option
@target_options
@pass_target
def list_(target: Target, everything: bool) -> None:
    """List the locks that somebody holds or waits for."""
    look(target, lambda app: app.locks.list(all=everything), lambda locks: _show_list(target, locks))


def _show_list(target: Target, locks: list[LockInfo]) -> None:
    if target.json:
        output.json_lines(locks)
        return
    output.show_table(COLUMNS, [_row(lock) for lock in locks], empty=f"Nobody holds or wants a lock in {target.place}.")


def _row(lock: LockInfo) -> list[str]:
    first = lock.holders[0] if lock.holders else None
    return [
        words.word(lock.name, 40),
        f"{lock.holding} of {_limit(lock)}",
        f"{lock.waiting:,}",
        words.NOTHING if first is None else words.word(first.owner, 40),
        words.NOTHING if first is None else words.word(first.what, 50),
        words.NOTHING if first is None else str(first.token),
        words.NOTHING if first is None else _left(first),
    ]


@command.command("show")
@click.argument("lock", type=NAME, shell_complete=completion.locks)
@target_options
@pass_target
def show(target: Target, lock: str) -> None:
    """Show one lock: its holders, then its line in the order of turns."""
    found = ask(target, lambda app: app.locks.show(lock))
    if target.json:
        output.json_document(found)
        return
    moment = now()
    facts = {"lock": words.word(found.name, 100), "holders": f"{found.holding} of {_limit(found)}"}
    facts["waiting"] = f"{found.waiting:,}"
    if found.opens_at is not None:
        facts["window"] = f"full, opens at {words.exactly(found.opens_at, moment)}"
    if found.released_at is not None:
        by, why = words.word(found.released_by, 100), words.word(found.released_why, 200)
        facts["released by force"] = f"{words.exactly(found.released_at, moment)} by {by}: {why}"
    output.show_page(facts)
    rows = [_place("holds", ticket, moment) for ticket in found.holders]
    rows += [_place(str(place), ticket, moment) for place, ticket in enumerate(found.waiters, start=1)]
    if rows:
        output.say("")
        output.show_table(LINE, rows, empty="")


def _place(place: str, ticket: TicketInfo, moment: datetime) -> list[str]:
    return [
        place,
        words.word(ticket.id),
        str(ticket.token),
        words.word(ticket.owner, 60),
        words.word(ticket.what, 60),
        words.when(ticket.granted_at or ticket.entered_at, moment),
        _left(ticket),
    ]


@command.command("release")
@click.argument("lock", type=NAME, shell_complete=completion.locks)
@click.option("--ticket", metavar="ID", help="Only this holder, or this one who waits; else all holders.")
@click.option("--why", required=True, metavar="TEXT", help="Told to whoever loses it, and shown at the lock.")
@target_options
@pass_target
def release(target: Target, lock: str, ticket: str | None, why: str) -> None:
    """Take a lock away by force. Its holder is told, but may still be at work: only tokens keep its late writes out."""
    target.why = why
    count = act(
        target,
        "locks.release",
        lock if ticket is None else f"{lock} ticket {ticket}",
        lambda app: app.locks.release(lock, ticket, why=why, by=person()),
        touched=int,
    )
    if target.json:
        output.json_document({"lock": lock, "released": count})
    else:
        output.say(f"{words.count(count, 'ticket')} of lock {lock} released.")
    if not count:
        raise NotDone("nobody held it" if ticket is None else "there is no such ticket")


def _limit(lock: LockInfo) -> str:
    return str(lock.limit) if lock.per is None else f"{lock.limit} per {durations.text(round(lock.per * 1_000_000))}"


def _left(ticket: TicketInfo) -> str:
    return durations.text(round(ticket.lease_left * 1_000_000))
