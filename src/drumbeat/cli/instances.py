"""`drumbeat instances`: list, show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.connection import call_and_show, call_app, utc_now
from drumbeat.cli.options import CliTarget, pass_target, target_options, watch_option
from drumbeat.cli.resource_group import resource_group

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.app import Drumbeat
    from drumbeat.core.instance import Instance, LeaderInfo

    Both = tuple[list[Instance], LeaderInfo | None]

command = resource_group("instances", "Instances: the running processes of the cluster.")

COLUMNS = output.TableColumns(
    names=("id", "state", "app", "host", "pid", "roles", "queues", "running", "refused", "started (UTC)", "last beat"),
    numbers=frozenset({"pid", "running", "refused"}),
    elastic=frozenset({"app", "host", "queues"}),
    droppable=("roles", "refused", "started (UTC)", "queues", "host", "app"),
)


@command.command("list")
@click.option("--all", "everyone", is_flag=True, help="Also those that left or died in the last day.")
@watch_option
@target_options
@pass_target
def list_(target: CliTarget, everyone: bool) -> None:
    """List the instances that are alive."""

    async def question(app: Drumbeat) -> Both:
        return await app.instances.list(all=everyone), await app.instances.leader()

    call_and_show(target, question, lambda found: _show_list(target, *found))


def _show_list(target: CliTarget, instances: list[Instance], leader: LeaderInfo | None) -> None:
    empty = "No instance is alive in {store}: `drumbeat run app:app` starts one."
    output.show_list(target, instances, COLUMNS, lambda instance, now: _row(instance, leader, now), empty=empty)


def _row(instance: Instance, leader: LeaderInfo | None, now: datetime) -> list[str]:
    name = f"{instance.app} {instance.version}".strip()
    return [
        instance.id,
        str(instance.state),
        formatting.format_value(name, 30),
        formatting.format_value(instance.host, 30),
        str(instance.pid),
        _roles(instance, leader),
        formatting.truncate(output.join_words(instance.queues), 40),
        f"{instance.running}/{instance.concurrency}",
        str(instance.refused),
        formatting.format_timestamp(instance.started_at, now),
        formatting.format_ago(instance.beat_at, now),
    ]


def _roles(instance: Instance, leader: LeaderInfo | None) -> str:
    leads = leader is not None and leader.instance == instance.id
    return output.join_words([*instance.roles, *(["leads"] if leads else [])])


@command.command("show")
@click.argument("id", shell_complete=completion.instances)
@target_options
@pass_target
def show(target: CliTarget, id: str) -> None:
    """Show one instance, also one that left or died."""

    async def question(app: Drumbeat) -> tuple[Instance, LeaderInfo | None]:
        return await app.instances.show(id), await app.instances.leader()

    instance, leader = call_app(target, question)
    if target.json:
        output.print_json(instance)
        return
    now = utc_now()
    facts = {
        "id": instance.id,
        "state": str(instance.state),
        "ended": f"{formatting.format_exact(instance.ended_at, now)}: {formatting.format_value(instance.ended_reason, 200)}"
        if instance.ended_at
        else formatting.EMPTY,
        "app": formatting.format_value(f"{instance.app} {instance.version}".strip(), 100),
        "host": formatting.format_value(instance.host, 100),
        "pid": str(instance.pid),
        "roles": _roles(instance, leader),
        "queues": output.join_words(instance.queues),
        "running": f"{instance.running} of {instance.concurrency} at its last heartbeat",
        "refused": f"{instance.refused} late results",
        "started at": formatting.format_exact(instance.started_at, now),
        "last beat": f"{formatting.format_exact(instance.beat_at, now)}, number {instance.beat}",
        "tasks": output.join_words(sorted(instance.tasks)),
        "rooms": output.join_words(sorted(instance.rooms)),
    }
    output.show_page(facts)
