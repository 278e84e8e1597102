"""`drumbeat locks`: list, show, release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.audit_scope import current_user, run_audited
from drumbeat.cli.connection import call_app, utc_now
from drumbeat.cli.failures import NotDone
from drumbeat.cli.options import NAME, CliTarget, pass_target, target_options, watch_option
from drumbeat.cli.resource_group import resource_group
from drumbeat.plural import format_count

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.core.lock import LockInfo, TicketInfo

command = resource_group("locks", "Locks: who holds and who waits for each lock of the cluster.")

COLUMNS = output.TableColumns(
    names=("lock", "holders", "waiting", "held by", "for", "token", "lease left"),
    numbers=frozenset({"waiting", "token"}),
    elastic=frozenset({"lock", "held by", "for"}),
    droppable=("for", "token", "held by"),
)
TICKET_COLUMNS = output.TableColumns(
    names=("place", "ticket", "token", "owner", "for", "since (UTC)", "lease left"),
    numbers=frozenset({"token"}),
    elastic=frozenset({"owner", "for"}),
    droppable=("for", "since (UTC)", "owner"),
)


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also locks that are not in use.")
@watch_option
@target_options
@pass_target
def list_(target: CliTarget, everything: bool) -> None:
    """List the locks that have holders or waiters."""
    output.list_and_show(
        target, lambda app: app.locks.list(all=everything), COLUMNS, _row, empty="No lock is in use in {store}."
    )


def _row(lock: LockInfo, _now: datetime) -> list[str]:
    first = lock.holders[0] if lock.holders else None
    return [
        formatting.format_value(lock.name, 40),
        f"{lock.holding} of {_format_limit(lock)}",
        f"{lock.waiting:,}",
        formatting.EMPTY if first is None else formatting.format_value(first.owner, 40),
        formatting.EMPTY if first is None else formatting.format_value(first.what, 50),
        formatting.EMPTY if first is None else str(first.token),
        formatting.EMPTY if first is None else formatting.format_seconds(first.lease_left),
    ]


@command.command("show")
@click.argument("lock", type=NAME, shell_complete=completion.locks)
@target_options
@pass_target
def show(target: CliTarget, lock: str) -> None:
    """Show one lock: its holders, then its waiters in their order."""
    found = call_app(target, lambda app: app.locks.show(lock))
    if target.json:
        output.print_json(found)
        return
    now = utc_now()
    facts = {"lock": formatting.format_value(found.name, 100), "holders": f"{found.holding} of {_format_limit(found)}"}
    facts["waiting"] = f"{found.waiting:,}"
    if found.opens_at is not None:
        facts["window"] = f"full, opens at {formatting.format_exact(found.opens_at, now)}"
    if found.released_at is not None:
        by, reason = (
            formatting.format_value(found.released_by, 100),
            formatting.format_value(found.released_reason, 200),
        )
        facts["released by force"] = f"{formatting.format_exact(found.released_at, now)} by {by}: {reason}"
    output.show_page(facts)
    rows = [_ticket_row("holds", ticket, now) for ticket in found.holders]
    rows += [_ticket_row(str(place), ticket, now) for place, ticket in enumerate(found.waiters, start=1)]
    if rows:
        output.print_line("")
        output.show_table(TICKET_COLUMNS, rows, empty="")


def _ticket_row(place: str, ticket: TicketInfo, now: datetime) -> list[str]:
    return [
        place,
        formatting.format_value(ticket.id),
        str(ticket.token),
        formatting.format_value(ticket.owner, 60),
        formatting.format_value(ticket.what, 60),
        formatting.format_timestamp(ticket.granted_at or ticket.entered_at, now),
        formatting.format_seconds(ticket.lease_left),
    ]


@command.command("release")
@click.argument("lock", type=NAME, shell_complete=completion.locks)
@click.option("--ticket", metavar="ID", help="Only this holder or waiter. Default: all holders.")
@click.option(
    "--reason", required=True, metavar="TEXT", help="Reported to the holders that lose it, and shown with the lock."
)
@target_options
@pass_target
def release(target: CliTarget, lock: str, ticket: str | None, reason: str) -> None:
    """Release a lock by force. Its holder is notified, but may still be working: only tokens reject its late writes."""
    target.reason = reason
    count = run_audited(
        target,
        "locks.release",
        lock if ticket is None else f"{lock} ticket {ticket}",
        lambda app: app.locks.release(lock, ticket, reason=reason, by=current_user()),
        count_touched=int,
    )
    output.report(
        target, {"lock": lock, "released": count}, f"{format_count(count, 'ticket')} of lock {lock} released."
    )
    if not count:
        raise NotDone("nobody held it" if ticket is None else "there is no such ticket")


def _format_limit(lock: LockInfo) -> str:
    return str(lock.limit) if lock.per is None else f"{lock.limit} per {formatting.format_seconds(lock.per)}"
