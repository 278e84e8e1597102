"""`drumbeat instances`: list, show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import completion, output, words
from drumbeat.cli.connection import ask, look, now
from drumbeat.cli.noun import noun
from drumbeat.cli.options import Target, pass_target, target_options, watch_option

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.app import Drumbeat
    from drumbeat.model.instance import Instance, LeaderInfo

    Both = tuple[list[Instance], LeaderInfo | None]

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

    async def question(app: Drumbeat) -> Both:
        return await app.instances.list(all=everyone), await app.instances.leader()

    look(target, question, lambda found: _show_list(target, *found))


def _show_list(target: Target, instances: list[Instance], leader: LeaderInfo | None) -> None:
    if target.json:
        output.json_lines(instances)
        return
    moment = now()
    rows = [_row(instance, leader, moment) for instance in instances]
    output.show_table(
        COLUMNS,
        rows,
        empty=f"No instance is alive in {target.place}: `drumbeat run app:app` starts one.",
    )


def _row(instance: Instance, leader: LeaderInfo | None, moment: datetime) -> list[str]:
    name = f"{instance.app} {instance.version}".strip()
    return [
        instance.id,
        str(instance.state),
        words.word(name, 30),
        words.word(instance.host, 30),
        str(instance.pid),
        _roles(instance, leader),
        words.cut(output.seen(instance.queues), 40),
        f"{instance.running}/{instance.concurrency}",
        str(instance.refused),
        words.when(instance.started_at, moment),
        words.ago(instance.beat_at, moment),
    ]


def _roles(instance: Instance, leader: LeaderInfo | None) -> str:
    leads = leader is not None and leader.instance == instance.id
    return output.seen([*instance.roles, *(["leads"] if leads else [])])


@command.command("show")
@click.argument("id", shell_complete=completion.instances)
@target_options
@pass_target
def show(target: Target, id: str) -> None:
    """Show one instance, also one that left or died."""

    async def question(app: Drumbeat) -> tuple[Instance, LeaderInfo | None]:
        return await app.instances.show(id), await app.instances.leader()

    instance, leader = ask(target, question)
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
        "roles": _roles(instance, leader),
        "queues": output.seen(instance.queues),
        "running": f"{instance.running} of {instance.concurrency} at its last beat",
        "refused": f"{instance.refused} stale results",
        "started at": words.exactly(instance.started_at, moment),
        "last beat": f"{words.exactly(instance.beat_at, moment)}, number {instance.beat}",
        "tasks": output.seen(sorted(instance.tasks)),
        "rooms": output.seen(sorted(instance.rooms)),
    }
    output.show_page(facts)
