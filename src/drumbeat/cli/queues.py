"""`drumbeat queues`: list, show, pause, resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.audit_scope import current_user, run_audited
from drumbeat.cli.connection import call_app, utc_now
from drumbeat.cli.options import NAME, CliTarget, pass_target, reason_option, target_options, watch_option
from drumbeat.cli.resource_group import resource_group
from drumbeat.plural import format_count

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.app import Drumbeat
    from drumbeat.core.instance import Instance
    from drumbeat.core.job_query import QueueStats

command = resource_group("queues", "Queues: in which jobs wait for a worker.")

COLUMNS = output.TableColumns(
    names=("queue", "ready", "scheduled", "running", "waiting", "oldest ready", "state"),
    numbers=frozenset({"ready", "scheduled", "running", "waiting"}),
    elastic=frozenset({"queue", "state"}),
    droppable=("oldest ready", "waiting"),
)


@command.command("list")
@watch_option
@target_options
@pass_target
def list_(target: CliTarget) -> None:
    """List the queues that have jobs, a pause, or a worker that takes them."""
    empty = "No queue has jobs, a pause or a worker in {store}."
    output.list_and_show(target, lambda app: app.queues.list(), COLUMNS, _row, empty=empty)


def _row(queue: QueueStats, now: datetime) -> list[str]:
    return [
        formatting.format_value(queue.name, 40),
        *(f"{number:,}" for number in (queue.ready, queue.scheduled, queue.running, queue.waiting)),
        formatting.format_ago(queue.oldest_due, now),
        _state(queue, now),
    ]


def _state(queue: QueueStats, now: datetime) -> str:
    if not queue.paused:
        return "open"
    by, reason = formatting.format_value(queue.paused_by), formatting.format_value(queue.paused_reason)
    return f"paused {formatting.format_ago(queue.paused_at, now)} by {by}: {reason}"


@command.command("show")
@click.argument("queue", type=NAME, shell_complete=completion.queues)
@target_options
@pass_target
def show(target: CliTarget, queue: str) -> None:
    """Show one queue, and the living workers that take it."""

    async def question(app: Drumbeat) -> tuple[QueueStats, list[Instance]]:
        found = await app.queues.show(queue)
        return found, [each for each in await app.instances.list() if queue in each.queues and "worker" in each.roles]

    found, workers = call_app(target, question)
    if target.json:
        output.print_json(output.record_fields(found, workers=[worker.id for worker in workers]))
        return
    now = utc_now()
    slots, running = sum(each.concurrency for each in workers), sum(each.running for each in workers)
    output.show_page(
        {
            "queue": formatting.format_value(found.name, 100),
            "state": _state(found, now),
            "ready": f"{found.ready:,}",
            "scheduled": f"{found.scheduled:,}",
            "running": f"{found.running:,}",
            "waiting": f"{found.waiting:,}",
            "oldest ready": formatting.format_exact(found.oldest_due, now),
            "workers": f"{format_count(len(workers), 'worker')}, {running:,} of {format_count(slots, 'slot')} taken",
            "taken by": output.join_words(worker.id for worker in workers),
        }
    )


@command.command("pause")
@click.argument("queue", type=NAME, shell_complete=completion.queues)
@reason_option
@target_options
@pass_target
def pause(target: CliTarget, queue: str) -> None:
    """Start no more jobs of a queue; running jobs continue. The reason is shown with the queue."""
    run_audited(
        target, "queues.pause", queue, lambda app: app.queues.pause(queue, reason=target.reason, by=current_user())
    )
    line = f"Queue {queue} is paused; `drumbeat queues resume {queue}` undoes it."
    output.report(target, {"queue": queue, "paused": True}, line)


@command.command("resume")
@click.argument("queue", type=NAME, shell_complete=completion.queues)
@reason_option
@target_options
@pass_target
def resume(target: CliTarget, queue: str) -> None:
    """Start the jobs of a paused queue again."""
    resumed = run_audited(target, "queues.resume", queue, lambda app: app.queues.resume(queue), count_touched=int)
    line = f"Queue {queue} is resumed." if resumed else f"Queue {queue} was not paused."
    output.report(target, {"queue": queue, "resumed": resumed}, line)
