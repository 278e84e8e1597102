"""`drumbeat audit`: list, show. Acts are put on record by whoever does them; nothing can be changed here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import output, words
from drumbeat.cli.connection import ask, look, now
from drumbeat.cli.noun import noun
from drumbeat.cli.options import Target, pass_target, target_options, watch_option

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.model.audit import Act

command = noun("audit", "The record of what people did: who, what, to how many, and why.")

COLUMNS = output.Columns(
    names=("id", "at (UTC)", "who", "via", "verb", "target", "touched", "outcome", "why"),
    numbers=frozenset({"touched"}),
    elastic=frozenset({"who", "target", "outcome", "why"}),
    spare=("via", "id", "why", "touched"),
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
def list_(target: Target, /, who: str | None, verb: str | None, on: str | None, before: str | None, limit: int) -> None:
    """List acts, newest first."""
    look(
        target,
        lambda app: app.audit.list(who=who, verb=verb, target=on, before=before, limit=limit),
        lambda acts: _show_list(target, acts, limit),
    )


def _show_list(target: Target, acts: list[Act], limit: int) -> None:
    if target.json:
        output.json_lines(acts)
        return
    moment = now()
    rows = [_row(act, moment) for act in acts]
    output.show_table(COLUMNS, rows, empty=f"No act is on record in {target.place}.")
    if len(acts) == limit:
        output.say(f"The newest {len(acts)}; go on with --before {acts[-1].id}, or raise --limit.")


def _row(act: Act, moment: datetime) -> list[str]:
    return [
        act.id,
        words.when(act.at, moment),
        words.word(act.who, 40),
        words.word(act.via),
        words.word(act.verb),
        words.word(act.target, 60),
        words.NOTHING if act.touched is None else f"{act.touched:,}",
        _outcome(act),
        words.word(act.why, 60),
    ]


def _outcome(act: Act) -> str:
    return words.word(act.outcome or "not ended", 60)


@command.command("show")
@click.argument("id")
@target_options
@pass_target
def show(target: Target, /, id: str) -> None:
    """Show one act."""
    act = ask(target, lambda app: app.audit.show(id))
    if target.json:
        output.json_document(act)
        return
    moment = now()
    facts = {
        "id": act.id,
        "who": words.word(act.who, 200),
        "role": words.word(act.role),
        "via": words.word(act.via),
        "verb": words.word(act.verb),
        "target": words.word(act.target, 500),
        "why": words.word(act.why, 2_000),
        "begun at": words.exactly(act.at, moment),
        "ended at": words.exactly(act.done_at, moment),
        "outcome": words.word(act.outcome or "not ended: it is under way, or was broken off", 500),
        "touched": words.word(act.touched),
        "request key": words.word(act.request_key, 200),
    }
    blocks = {} if act.answer is None else {"Answer": words.lines(act.answer)}
    output.show_page({name: value for name, value in facts.items() if value != words.NOTHING}, blocks)
