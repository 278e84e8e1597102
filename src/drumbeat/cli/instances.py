"""`drumbeat instances`: list, show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import output, words
from drumbeat.cli.connection import ask, look, now
from drumbeat.cli.noun import noun
from drumbeat.cli.options import Target, pass_target, target_options, watch_option

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.model.instance import Instance

command = noun("instances", "Instances: the processes that run jobs.")

COLUMNS = output.Columns(
    names=("id", "state", "app", "host", "pid", "roles", "queues", "running", "refused", "started (UTC)", "last beat"),
    numbers=frozenset({"pid", "running", "refused"}),
    elastic=frozenset({"app", "host", "queues"}),
    spare=("roles", "refused", "started (UTC)", "queues", "host", "app"),
)


@command.command("list")
@click.option("--all", "everyone", is_flag=True, help="Also those that left or died in the last day.")
@watch_option
@target_options
@pass_target
def list_(target: Target, everyone: bool) -> None:
    """List the living instances."""
    look(target, lambda app: app.instances.list(all=everyone), lambda instances: _show_list(target, instances))


def _show_list(target: Target, instances: list[Instance]) -> None:
    if target.json:
        output.json_lines(instances)
        return
    moment = now()
    rows = [_row(instance, moment) for instance in instances]
    output.show_table(
        COLUMNS,
        rows,
        empty=f"No instance is alive in {target.place}: `drumbeat run app:app` starts one.",
    )


def _row(instance: Instance, moment: datetime) -> list[str]:
    name = f"{instance.app} {instance.version}".strip()
    return [
        instance.id,
        str(instance.state),
        words.word(name, 30),
        words.word(instance.host, 30),
        str(instance.pid),
        output.seen(instance.roles),
        words.cut(output.seen(instance.queues), 40),
        f"{instance.running}/{instance.concurrency}",
        str(instance.refused),
        words.when(instance.started_at, moment),
        words.ago(instance.beat_at, moment),
    ]


@command.command("show")
@click.argument("id")
@target_options
@pass_target
def show(target: Target, id: str) -> None:
    """Show one instance, also one that left or died."""
    instance = ask(target, lambda app: app.instances.show(id))
    if target.json:
        output.json_document(instance)
        return
    moment = now()
    facts = {
        "id": instance.id,
        "state": str(instance.state),
        "ended": f"{words.exactly(instance.ended_at, moment)}: {words.word(instance.ended_why, 200)}"
        if instance.ended_at
        else words.NOTHING,
        "app": words.word(f"{instance.app} {instance.version}".strip(), 100),
        "host": words.word(instance.host, 100),
        "pid": str(instance.pid),
        "roles": output.seen(instance.roles),
        "queues": output.seen(instance.queues),
        "running": f"{instance.running} of {instance.concurrency} at its last beat",
        "refused": f"{instance.refused} stale results",
        "started at": words.exactly(instance.started_at, moment),
        "last beat": f"{words.exactly(instance.beat_at, moment)}, number {instance.beat}",
        "tasks": output.seen(sorted(instance.tasks)),
        "rooms": output.seen(sorted(instance.rooms)),
    }
    output.show_page(facts)
