"""`drumbeat audit`: list, show. Acts are put on record by whoever does them; nothing can be changed here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import formatting, output
from drumbeat.cli.connection import call_and_show, call_app, utc_now
from drumbeat.cli.options import CliTarget, pass_target, target_options, watch_option
from drumbeat.cli.resource_group import resource_group

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.core.audit import AuditEntry

command = resource_group("audit", "The record of what people did: who, what, to how many, and why.")

COLUMNS = output.Columns(
    names=("id", "at (UTC)", "who", "via", "verb", "target", "touched", "outcome", "reason"),
    numbers=frozenset({"touched"}),
    elastic=frozenset({"who", "target", "outcome", "reason"}),
    droppable=("via", "id", "reason", "touched"),
)


@command.command("list")
@click.option("--who", metavar="NAME", help="Only of this person.")
@click.option("--verb", metavar="VERB", help="Only verbs that begin so, such as queues. or dead.replay.")
@click.option("--target", "on", metavar="TEXT", help="Only those done to this.")
@click.option("--before", metavar="ID", help="Only older ones than this: the next page.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@watch_option
@target_options
@pass_target
def list_(
    target: CliTarget, /, who: str | None, verb: str | None, on: str | None, before: str | None, limit: int
) -> None:
    """List acts, newest first."""
    call_and_show(
        target,
        lambda app: app.audit.list(who=who, verb=verb, target=on, before=before, limit=limit),
        lambda acts: _show_list(target, acts, limit),
    )


def _show_list(target: CliTarget, acts: list[AuditEntry], limit: int) -> None:
    if target.json:
        output.print_json_lines(acts)
        return
    moment = utc_now()
    rows = [_row(act, moment) for act in acts]
    output.show_table(COLUMNS, rows, empty=f"No act is on record in {target.store_url}.")
    if len(acts) == limit:
        output.print_line(f"The newest {len(acts)}; go on with --before {acts[-1].id}, or raise --limit.")


def _row(act: AuditEntry, moment: datetime) -> list[str]:
    return [
        act.id,
        formatting.format_timestamp(act.at, moment),
        formatting.format_value(act.who, 40),
        formatting.format_value(act.via),
        formatting.format_value(act.verb),
        formatting.format_value(act.target, 60),
        formatting.EMPTY if act.touched is None else f"{act.touched:,}",
        _format_outcome(act),
        formatting.format_value(act.reason, 60),
    ]


def _format_outcome(act: AuditEntry) -> str:
    return formatting.format_value(act.outcome or "not ended", 60)


@command.command("show")
@click.argument("id")
@target_options
@pass_target
def show(target: CliTarget, /, id: str) -> None:
    """Show one act."""
    act = call_app(target, lambda app: app.audit.show(id))
    if target.json:
        output.print_json(act)
        return
    moment = utc_now()
    facts = {
        "id": act.id,
        "who": formatting.format_value(act.who, 200),
        "role": formatting.format_value(act.role),
        "via": formatting.format_value(act.via),
        "verb": formatting.format_value(act.verb),
        "target": formatting.format_value(act.target, 500),
        "reason": formatting.format_value(act.reason, 2_000),
        "begun at": formatting.format_exact(act.at, moment),
        "ended at": formatting.format_exact(act.done_at, moment),
        "outcome": formatting.format_value(act.outcome or "not ended: it is under way, or was broken off", 500),
        "touched": formatting.format_value(act.touched),
        "request key": formatting.format_value(act.request_key, 200),
    }
    blocks = {} if act.answer is None else {"Answer": formatting.escape_lines(act.answer)}
    output.show_page({name: value for name, value in facts.items() if value != formatting.EMPTY}, blocks)
