"""`drumbeat audit`: list, show, stop. Entries are written by the actions themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from drumbeat.cli import formatting, output
from drumbeat.cli.audit_scope import current_user, run_audited
from drumbeat.cli.connection import call_app
from drumbeat.cli.options import CliTarget, limit_option, reason_option, watch_option
from drumbeat.cli.output import Column
from drumbeat.cli.resource_group import ResourceGroup
from drumbeat.core.audit import ActState, act_state

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.core.audit import AuditEntry

command = ResourceGroup("audit", "The audit log: who did what, when, to how many, and for which reason.")

ENTRIES: output.TextTable[AuditEntry] = output.TextTable(
    Column("id", lambda entry, _: entry.id, drop=2),
    Column("at (UTC)", lambda entry, now: formatting.format_timestamp(entry.at, now)),
    Column("who", lambda entry, _: formatting.format_value(entry.who, 40), elastic=True),
    Column("via", lambda entry, _: formatting.format_value(entry.via), drop=1),
    Column("verb", lambda entry, _: formatting.format_value(entry.verb)),
    Column("target", lambda entry, _: formatting.format_value(entry.target, 60), elastic=True),
    Column("touched", lambda entry, _: _format_progress(entry), number=True, drop=4),
    Column("outcome", lambda entry, now: formatting.format_value(_format_outcome(entry, now), 60), elastic=True),
    Column("reason", lambda entry, _: formatting.format_value(entry.reason, 60), elastic=True, drop=3),
)


def _format_progress(entry: AuditEntry) -> str:
    """ "120", or of one that has not ended "120 of 1,000"."""
    done = formatting.format_number(entry.touched)
    return done if entry.done_at is not None or entry.matched is None else f"{done} of {entry.matched:,}"


def _format_outcome(entry: AuditEntry, now: datetime) -> str:
    if entry.outcome is not None:
        return entry.outcome
    if act_state(entry, now) is ActState.INTERRUPTED:
        return "interrupted: its process ended first"
    return "running" if entry.stopped_by is None else f"stopping: asked by {entry.stopped_by}"


@command.verb("list", limit_option(10_000, "entries"), watch_option)
@click.option("--who", metavar="NAME", help="Only entries of this user.")
@click.option("--verb", metavar="VERB", help="Only verbs with this prefix, such as queues. or dead.replay.")
@click.option("--target", "on", metavar="TEXT", help="Only entries with this target.")
@click.option("--unended", is_flag=True, help="Only acts on many jobs that are running, or were interrupted.")
@click.option("--before", metavar="ID", help="Only entries older than this one: the next page.")
def list_(target: CliTarget, /, on: str | None, limit: int, **query: Any) -> None:
    """List audit entries, newest first."""
    empty = "The audit log of {store} has no such entries."
    output.list_and_show(
        target, lambda app: app.audit.list(target=on, limit=limit, **query), ENTRIES, empty=empty, limit=limit
    )


@command.verb("show")
@click.argument("id")
def show(target: CliTarget, /, id: str) -> None:
    """Show one audit entry."""
    output.show_record(target, call_app(target, lambda app: app.audit.show(id)), _show_entry)


@command.verb("stop", reason_option)
@click.argument("id")
def stop(target: CliTarget, /, id: str) -> None:
    """Stop an act on many jobs, wherever it runs. What is done stays done."""
    entry = run_audited(target, "audit.stop", id, lambda app: app.audit.stop(id, by=current_user()))
    done = f"Act {entry.id} is asked to stop: {_format_progress(entry)} done so far."
    output.report(target, entry, done)


def _show_entry(entry: AuditEntry, now: datetime) -> None:
    facts = {
        "who": formatting.format_value(entry.who, 200),
        "role": formatting.format_value(entry.role),
        "via": formatting.format_value(entry.via),
        "verb": formatting.format_value(entry.verb),
        "target": formatting.format_value(entry.target, 500),
        "reason": formatting.format_value(entry.reason, 2_000),
        "started at": formatting.format_exact(entry.at, now),
        "ended at": formatting.format_exact(entry.done_at, now),
        "outcome": formatting.format_value(_format_outcome(entry, now), 500),
        "touched": _format_progress(entry),
        "last report": formatting.format_exact(entry.reported_at, now),
        "stopped by": formatting.format_value(entry.stopped_by, 200),
        "request key": formatting.format_value(entry.request_key, 200),
    }
    blocks = {} if entry.answer is None else {"Answer": formatting.escape_lines(entry.answer)}
    output.show_page({"id": entry.id}, facts, blocks)
