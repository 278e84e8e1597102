"""`drumbeat queues`: list, pause, resume."""

from __future__ import annotations

import getpass

import click

from drumbeat.cli import output, words
from drumbeat.cli.connection import ask, now
from drumbeat.cli.noun import noun
from drumbeat.cli.options import NAME, Target, pass_target, target_options

command = noun("queues", "Queues: named lines of jobs.")

COLUMNS = output.Columns(
    names=("queue", "ready", "scheduled", "running", "waiting", "oldest ready", "state"),
    numbers=frozenset({"ready", "scheduled", "running", "waiting"}),
    elastic=frozenset({"queue", "state"}),
    spare=("oldest ready", "waiting"),
)


@command.command("list")
@target_options
@pass_target
def list_(target: Target) -> None:
    """List the queues that have jobs, a pause, or a worker that takes them."""
    queues = ask(target, lambda app: app.queues.list())
    if target.json:
        output.json_lines(queues)
        return
    moment = now()
    rows = [
        [
            words.word(queue.name, 40),
            *(f"{number:,}" for number in (queue.ready, queue.scheduled, queue.running, queue.waiting)),
            words.ago(queue.oldest_due, moment),
            f"paused {words.ago(queue.paused_at, moment)} by {words.word(queue.paused_by)}: {words.word(queue.paused_why)}"
            if queue.paused
            else "open",
        ]
        for queue in queues
    ]
    output.show_table(COLUMNS, rows, empty=f"No queue has jobs, a pause or a worker in {target.place}.")


@command.command("pause")
@click.argument("queue", type=NAME)
@click.option("--why", default="", metavar="TEXT", help="Shown wherever the queue is.")
@target_options
@pass_target
def pause(target: Target, queue: str, why: str) -> None:
    """Give out no more jobs of a queue; those that run go on."""
    ask(target, lambda app: app.queues.pause(queue, why=why, by=person()))
    if target.json:
        output.json_document({"queue": queue, "paused": True})
    else:
        output.say(f"Queue {queue} is paused; `drumbeat queues resume {queue}` undoes it.")


@command.command("resume")
@click.argument("queue", type=NAME)
@target_options
@pass_target
def resume(target: Target, queue: str) -> None:
    """Give out the jobs of a paused queue again."""
    resumed = ask(target, lambda app: app.queues.resume(queue))
    if target.json:
        output.json_document({"queue": queue, "resumed": resumed})
    else:
        output.say(f"Queue {queue} gives out jobs again." if resumed else f"Queue {queue} was not paused.")


def person() -> str:
    """Who acts, for those who find a queue paused."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run as a number without a name
        return "the command line"
