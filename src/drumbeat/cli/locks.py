"""`drumbeat locks`: list, show, release."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.audit_scope import current_user, run_audited
from drumbeat.cli.connection import call_app
from drumbeat.cli.failures import NotDone
from drumbeat.cli.options import NAME, CliTarget, argument, option, watch_option
from drumbeat.cli.output import Column
from drumbeat.cli.resource_group import ResourceGroup
from drumbeat.plural import format_count

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.core.lock import LockInfo, TicketInfo

command = ResourceGroup("locks", "Locks: who holds and who waits for each lock of the cluster.")
lock_argument = argument("lock", type=NAME, shell_complete=completion.locks)


def _format_limit(lock: LockInfo) -> str:
    limit = str(lock.limit) if lock.per is None else f"{lock.limit} per {formatting.format_seconds(lock.per)}"
    return f"{lock.holding} of {limit}"


def _of_first(format: Callable[[TicketInfo], str]) -> Callable[[LockInfo, datetime], str]:
    """The cell of a lock's first holder."""
    return lambda lock, _: format(lock.holders[0]) if lock.holders else formatting.EMPTY


LOCKS: output.TextTable[LockInfo] = output.TextTable(
    Column("lock", lambda lock, _: formatting.format_value(lock.name, 40), elastic=True),
    Column("holders", lambda lock, _: _format_limit(lock)),
    Column("waiting", lambda lock, _: f"{lock.waiting:,}", number=True),
    Column("held by", _of_first(lambda ticket: formatting.format_value(ticket.owner, 40)), elastic=True, drop=3),
    Column("for", _of_first(lambda ticket: formatting.format_value(ticket.what, 50)), elastic=True, drop=1),
    Column("token", _of_first(lambda ticket: str(ticket.token)), number=True, drop=2),
    Column("lease left", _of_first(lambda ticket: formatting.format_seconds(ticket.lease_left))),
)
TICKETS: output.TextTable[tuple[str, TicketInfo]] = output.TextTable(
    Column("place", lambda each, _: each[0]),
    Column("ticket", lambda each, _: formatting.format_value(each[1].id)),
    Column("token", lambda each, _: str(each[1].token), number=True),
    Column("owner", lambda each, _: formatting.format_value(each[1].owner, 60), elastic=True, drop=3),
    Column("for", lambda each, _: formatting.format_value(each[1].what, 60), elastic=True, drop=1),
    Column(
        "since (UTC)",
        lambda each, now: formatting.format_timestamp(each[1].granted_at or each[1].entered_at, now),
        drop=2,
    ),
    Column("lease left", lambda each, _: formatting.format_seconds(each[1].lease_left)),
)


@command.verb("list", watch_option)
@click.option("--all", "everything", is_flag=True, help="Also locks that are not in use.")
def list_(target: CliTarget, everything: bool) -> None:
    """List the locks that have holders or waiters."""
    empty = "No lock is in use in {store}."
    output.list_and_show(target, lambda app: app.locks.list(all=everything), LOCKS, empty=empty)


@command.verb("show", lock_argument)
def show(target: CliTarget, lock: str) -> None:
    """Show one lock: its holders, then its waiters in their order."""
    output.show_record(target, call_app(target, lambda app: app.locks.show(lock)), _show_lock)


def _show_lock(lock: LockInfo, now: datetime) -> None:
    facts = {"lock": formatting.format_value(lock.name, 100), "holders": _format_limit(lock)}
    facts["waiting"] = f"{lock.waiting:,}"
    if lock.opens_at is not None:
        facts["window"] = f"full, opens at {formatting.format_exact(lock.opens_at, now)}"
    if lock.released_at is not None:
        by, reason = formatting.format_value(lock.released_by, 100), formatting.format_value(lock.released_reason, 200)
        facts["released by force"] = f"{formatting.format_exact(lock.released_at, now)} by {by}: {reason}"
    output.show_page(facts)
    tickets = [("holds", ticket) for ticket in lock.holders]
    tickets += [(str(place), ticket) for place, ticket in enumerate(lock.waiters, start=1)]
    if tickets:
        output.print_line("")
        TICKETS.show(tickets, now)


@command.verb(
    "release",
    lock_argument,
    option("--ticket", metavar="ID", help="Only this holder or waiter. Default: all holders."),
    option(
        "--reason", required=True, metavar="TEXT", help="Reported to the holders that lose it, and shown with the lock."
    ),
)
def release(target: CliTarget, lock: str, ticket: str | None, reason: str) -> None:
    """Release a lock by force. Its holder is notified, but may still be working: only tokens reject its late writes."""
    target.reason = reason
    count = run_audited(
        target,
        "locks.release",
        lock if ticket is None else f"{lock} ticket {ticket}",
        lambda app: app.locks.release(lock, ticket, reason=reason, by=current_user()),
    )
    line = f"{format_count(count, 'ticket')} of lock {lock} released."
    output.report(target, {"lock": lock, "released": count}, line)
    if not count:
        raise NotDone("nobody held it" if ticket is None else "there is no such ticket")
