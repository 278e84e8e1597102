"""`drumbeat groups`: the groups of jobs that share limits or take turns: who waits, who runs, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.connection import call_and_show
from drumbeat.cli.limits import format_rate
from drumbeat.cli.options import NAME, CliTarget, limit_option, target_command, target_options, watch_option
from drumbeat.cli.output import Column

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.admin.limit_records import GroupRecord
    from drumbeat.app import Drumbeat

MAX_LISTED = 500


def _format_running(group: GroupRecord) -> str:
    return f"{group.running:,}" if group.concurrency is None else f"{group.running:,} of {group.concurrency:,}"


def _format_exception(group: GroupRecord) -> str:
    own = [] if group.own_limits is None else ["limits"]
    return " and ".join(own + ([] if group.own_weight is None else ["weight"])) or formatting.EMPTY


def _format_opening(group: GroupRecord, now: datetime) -> str:
    return formatting.format_ago(group.opens_at, now) if group.opens_at else formatting.EMPTY


GROUPS: output.TextTable[GroupRecord] = output.TextTable(
    Column("queue", lambda each, _: formatting.format_value(each.queue, 30), elastic=True),
    Column("task", lambda each, _: formatting.format_value(each.task, 30), elastic=True),
    Column("group", lambda each, _: formatting.format_value(each.group, 40), elastic=True),
    Column("waiting", lambda each, _: f"{each.waiting:,}", number=True),
    Column("running", lambda each, _: _format_running(each), number=True),
    Column("rate", lambda each, _: format_rate(each), drop=3),
    Column("opens", _format_opening, drop=2),
    Column("weight", lambda each, _: str(each.weight), number=True, drop=4),
    Column("lag", lambda each, _: formatting.format_seconds(each.lag) if each.lag else formatting.EMPTY, number=True),
    Column("own", lambda each, _: _format_exception(each), drop=1),
)


@target_command("groups", limit_option(MAX_LISTED, "groups"), *target_options, watch_option)
@click.argument("queue", type=NAME, required=False, shell_complete=completion.queues)
@click.option(
    "--task", type=NAME, shell_complete=completion.tasks, help="Of this task, which has limits of its own there."
)
@click.option("--after", metavar="GROUP", help="Only groups after this one, by name: the next page.")
def command(target: CliTarget, /, queue: str | None, task: str | None, after: str | None, limit: int) -> None:
    """List groups: of a queue, or of a task in it, by name; without a queue the busiest of all.

    Waiting counts up to 10,000; the lag says how long a group's first job has been due.
    """
    if queue is None and (task is not None or after is not None):
        raise click.UsageError("--task and --after need a QUEUE")

    async def query(app: Drumbeat) -> list[GroupRecord]:
        if queue is None:
            return await app.limits.busiest(limit=limit)
        if task is not None or after is not None:
            return await app.limits.groups(queue, task, after=after, limit=limit)
        return await _read_queue(app, queue, limit)

    def show(found: Sequence[GroupRecord]) -> None:
        output.show_list(target, found, GROUPS, empty="No group has jobs in {store}.")
        if queue is not None and len(found) == limit and not target.json:
            output.print_line(f"The first {limit}; --task and --after go on, or raise --limit.")

    call_and_show(target, query, show)


async def _read_queue(app: Drumbeat, queue: str, limit: int) -> list[GroupRecord]:
    """Of all lines of the queue."""
    lines = await app.limits.list(queue)
    if not lines:
        await app.limits.show(queue)  # which refuses it, with those that exist
    found: list[GroupRecord] = []
    for line in lines:
        if len(found) < limit:
            found += await app.limits.groups(queue, line.task, limit=limit - len(found))
    return found
