"""`drumbeat instances`: list, show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.connection import call_and_show, call_app
from drumbeat.cli.options import CliTarget, watch_option
from drumbeat.cli.output import Column
from drumbeat.cli.resource_group import ResourceGroup

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.app import Drumbeat
    from drumbeat.core.instance import Instance, LeaderInfo

command = ResourceGroup("instances", "Instances: the running processes of the cluster.")


def _table(leader: LeaderInfo | None) -> output.TextTable[Instance]:
    return output.TextTable(
        Column("id", lambda each, _: each.id),
        Column("state", lambda each, _: str(each.state)),
        Column("app", lambda each, _: format_app(each, 30), elastic=True, drop=6),
        Column("host", lambda each, _: formatting.format_value(each.host, 30), elastic=True, drop=5),
        Column("pid", lambda each, _: str(each.pid), number=True),
        Column("roles", lambda each, _: format_roles(each, leader), drop=1),
        Column("queues", lambda each, _: formatting.truncate(output.join_words(each.queues), 40), elastic=True, drop=4),
        Column("running", lambda each, _: f"{each.running}/{each.concurrency}", number=True),
        Column("refused", lambda each, _: str(each.refused), number=True, drop=2),
        Column("started (UTC)", lambda each, now: formatting.format_timestamp(each.started_at, now), drop=3),
        Column("last beat", lambda each, now: formatting.format_ago(each.beat_at, now)),
    )


def format_app(instance: Instance, limit: int) -> str:
    return formatting.format_value(f"{instance.app} {instance.version}".strip(), limit)


def format_roles(instance: Instance, leader: LeaderInfo | None) -> str:
    leads = leader is not None and leader.instance == instance.id
    return output.join_words([*instance.roles, *(["leads"] if leads else [])])


@command.verb("list", watch_option)
@click.option("--all", "everyone", is_flag=True, help="Also those that left or died in the last day.")
def list_(target: CliTarget, everyone: bool) -> None:
    """List the instances that are alive."""

    async def question(app: Drumbeat) -> tuple[list[Instance], LeaderInfo | None]:
        return await app.instances.list(all=everyone), await app.instances.leader()

    empty = "No instance is alive in {store}: `drumbeat run app:app` starts one."
    call_and_show(target, question, lambda found: output.show_list(target, found[0], _table(found[1]), empty=empty))


@command.verb("show")
@click.argument("id", shell_complete=completion.instances)
def show(target: CliTarget, id: str) -> None:
    """Show one instance, also one that left or died."""

    async def question(app: Drumbeat) -> tuple[Instance, LeaderInfo | None]:
        return await app.instances.show(id), await app.instances.leader()

    instance, leader = call_app(target, question)
    output.show_record(target, instance, lambda found, now: _show_instance(found, leader, now))


def _show_instance(instance: Instance, leader: LeaderInfo | None, now: datetime) -> None:
    reason = formatting.format_value(instance.ended_reason, 200)
    ended = f"{formatting.format_exact(instance.ended_at, now)}: {reason}" if instance.ended_at else formatting.EMPTY
    facts = {
        "id": instance.id,
        "state": str(instance.state),
        "ended": ended,
        "app": format_app(instance, 100),
        "host": formatting.format_value(instance.host, 100),
        "pid": str(instance.pid),
        "roles": format_roles(instance, leader),
        "queues": output.join_words(instance.queues),
        "running": f"{instance.running} of {instance.concurrency} at its last heartbeat",
        "refused": f"{instance.refused} late results",
        "started at": formatting.format_exact(instance.started_at, now),
        "last beat": f"{formatting.format_exact(instance.beat_at, now)}, number {instance.beat}",
        "tasks": output.join_words(sorted(instance.tasks)),
        "rooms": output.join_words(sorted(instance.rooms)),
    }
    output.show_page(facts)
