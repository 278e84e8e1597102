"""`drumbeat queues`: list, show, pause, resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import completion, output, words
from drumbeat.cli.acting import act, person
from drumbeat.cli.connection import ask, look, now
from drumbeat.cli.noun import noun
from drumbeat.cli.options import NAME, Target, pass_target, target_options, watch_option, why_option

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.app import Drumbeat
    from drumbeat.model.instance import Instance
    from drumbeat.model.job import QueueStats

command = noun("queues", "Queues: named lines of jobs.")

COLUMNS = output.Columns(
    names=("queue", "ready", "scheduled", "running", "waiting", "oldest ready", "state"),
    numbers=frozenset({"ready", "scheduled", "running", "waiting"}),
    elastic=frozenset({"queue", "state"}),
    spare=("oldest ready", "waiting"),
)


@command.command("list")
@watch_option
@target_options
@pass_target
def list_(target: Target) -> None:
    """List the queues that have jobs, a pause, or a worker that takes them."""
    look(target, lambda app: app.queues.list(), lambda queues: _show_list(target, queues))


def _show_list(target: Target, queues: list[QueueStats]) -> None:
    if target.json:
        output.json_lines(queues)
        return
    moment = now()
    rows = [
        [
            words.word(queue.name, 40),
            *(f"{number:,}" for number in (queue.ready, queue.scheduled, queue.running, queue.waiting)),
            words.ago(queue.oldest_due, moment),
            _state(queue, moment),
        ]
        for queue in queues
    ]
    output.show_table(COLUMNS, rows, empty=f"No queue has jobs, a pause or a worker in {target.place}.")


def _state(queue: QueueStats, moment: datetime) -> str:
    if not queue.paused:
        return "open"
    by, why = words.word(queue.paused_by), words.word(queue.paused_why)
    return f"paused {words.ago(queue.paused_at, moment)} by {by}: {why}"


@command.command("show")
@click.argument("queue", type=NAME, shell_complete=completion.queues)
@target_options
@pass_target
def show(target: Target, queue: str) -> None:
    """Show one queue, and the living workers that take it."""

    async def question(app: Drumbeat) -> tuple[QueueStats, list[Instance]]:
        found = await app.queues.show(queue)
        return found, [each for each in await app.instances.list() if queue in each.queues and "worker" in each.roles]

    found, workers = ask(target, question)
    if target.json:
        output.json_document(output.fields(found, workers=[worker.id for worker in workers]))
        return
    moment = now()
    slots, running = sum(each.concurrency for each in workers), sum(each.running for each in workers)
    output.show_page(
        {
            "queue": words.word(found.name, 100),
            "state": _state(found, moment),
            "ready": f"{found.ready:,}",
            "scheduled": f"{found.scheduled:,}",
            "running": f"{found.running:,}",
            "waiting": f"{found.waiting:,}",
            "oldest ready": words.exactly(found.oldest_due, moment),
            "workers": f"{words.count(len(workers), 'worker')}, {running:,} of {words.count(slots, 'slot')} taken",
            "taken by": output.seen(worker.id for worker in workers),
        }
    )


@command.command("pause")
@click.argument("queue", type=NAME, shell_complete=completion.queues)
@why_option
@target_options
@pass_target
def pause(target: Target, queue: str) -> None:
    """Give out no more jobs of a queue; those that run go on. The reason is shown wherever the queue is."""
    act(target, "queues.pause", queue, lambda app: app.queues.pause(queue, why=target.why, by=person()))
    if target.json:
        output.json_document({"queue": queue, "paused": True})
    else:
        output.say(f"Queue {queue} is paused; `drumbeat queues resume {queue}` undoes it.")


@command.command("resume")
@click.argument("queue", type=NAME, shell_complete=completion.queues)
@why_option
@target_options
@pass_target
def resume(target: Target, queue: str) -> None:
    """Give out the jobs of a paused queue again."""
    resumed = act(target, "queues.resume", queue, lambda app: app.queues.resume(queue), touched=int)
    if target.json:
        output.json_document({"queue": queue, "resumed": resumed})
    else:
        output.say(f"Queue {queue} gives out jobs again." if resumed else f"Queue {queue} was not paused.")
