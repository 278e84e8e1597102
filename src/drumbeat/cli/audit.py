"""`drumbeat audit`: list, show. Read-only: entries are written by the actions themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import formatting, output
from drumbeat.cli.connection import call_app, utc_now
from drumbeat.cli.options import CliTarget, pass_target, target_options, watch_option
from drumbeat.cli.resource_group import resource_group

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.core.audit import AuditEntry

command = resource_group("audit", "The audit log: who did what, when, to how many, and for which reason.")

COLUMNS = output.TableColumns(
    names=("id", "at (UTC)", "who", "via", "verb", "target", "touched", "outcome", "reason"),
    numbers=frozenset({"touched"}),
    elastic=frozenset({"who", "target", "outcome", "reason"}),
    droppable=("via", "id", "reason", "touched"),
)


@command.command("list")
@click.option("--who", metavar="NAME", help="Only entries of this user.")
@click.option("--verb", metavar="VERB", help="Only verbs with this prefix, such as queues. or dead.replay.")
@click.option("--target", "on", metavar="TEXT", help="Only entries with this target.")
@click.option("--before", metavar="ID", help="Only entries older than this one: the next page.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Number of entries.")
@watch_option
@target_options
@pass_target
def list_(
    target: CliTarget, /, who: str | None, verb: str | None, on: str | None, before: str | None, limit: int
) -> None:
    """List audit entries, newest first."""
    output.list_and_show(
        target,
        lambda app: app.audit.list(who=who, verb=verb, target=on, before=before, limit=limit),
        COLUMNS,
        _row,
        empty="The audit log of {store} has no such entries.",
        limit=limit,
    )


def _row(entry: AuditEntry, now: datetime) -> list[str]:
    return [
        entry.id,
        formatting.format_timestamp(entry.at, now),
        formatting.format_value(entry.who, 40),
        formatting.format_value(entry.via),
        formatting.format_value(entry.verb),
        formatting.format_value(entry.target, 60),
        formatting.EMPTY if entry.touched is None else f"{entry.touched:,}",
        _format_outcome(entry),
        formatting.format_value(entry.reason, 60),
    ]


def _format_outcome(entry: AuditEntry) -> str:
    return formatting.format_value(entry.outcome or "not ended", 60)


@command.command("show")
@click.argument("id")
@target_options
@pass_target
def show(target: CliTarget, /, id: str) -> None:
    """Show one audit entry."""
    entry = call_app(target, lambda app: app.audit.show(id))
    if target.json:
        output.print_json(entry)
        return
    now = utc_now()
    facts = {
        "id": entry.id,
        "who": formatting.format_value(entry.who, 200),
        "role": formatting.format_value(entry.role),
        "via": formatting.format_value(entry.via),
        "verb": formatting.format_value(entry.verb),
        "target": formatting.format_value(entry.target, 500),
        "reason": formatting.format_value(entry.reason, 2_000),
        "started at": formatting.format_exact(entry.at, now),
        "ended at": formatting.format_exact(entry.done_at, now),
        "outcome": formatting.format_value(entry.outcome or "not ended: it is still running, or was interrupted", 500),
        "touched": formatting.format_value(entry.touched),
        "request key": formatting.format_value(entry.request_key, 200),
    }
    blocks = {} if entry.answer is None else {"Answer": formatting.escape_lines(entry.answer)}
    output.show_page({name: value for name, value in facts.items() if value != formatting.EMPTY}, blocks)
