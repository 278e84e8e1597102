"""`drumbeat queues`: list, show, lag, pause, resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.audit_scope import current_user, run_audited
from drumbeat.cli.connection import call_app
from drumbeat.cli.options import NAME, CliTarget, argument, reason_option, watch_option
from drumbeat.cli.output import Column
from drumbeat.cli.resource_group import ResourceGroup
from drumbeat.plural import format_count

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.app import Drumbeat
    from drumbeat.core.instance import Instance
    from drumbeat.core.job_query import QueueInfo

command = ResourceGroup("queues", "Queues: in which jobs wait for a worker.")
queue_argument = argument("queue", type=NAME, shell_complete=completion.queues)


def _format_state(queue: QueueInfo, now: datetime) -> str:
    if not queue.paused:
        return "open"
    by, reason = formatting.format_value(queue.paused_by), formatting.format_value(queue.paused_reason)
    return f"paused {formatting.format_ago(queue.paused_at, now)} by {by}: {reason}"


QUEUES: output.TextTable[QueueInfo] = output.TextTable(
    Column("queue", lambda queue, _: formatting.format_value(queue.name, 40), elastic=True),
    Column("ready", lambda queue, _: f"{queue.ready:,}", number=True),
    Column("scheduled", lambda queue, _: f"{queue.scheduled:,}", number=True),
    Column("running", lambda queue, _: f"{queue.running:,}", number=True),
    Column("waiting", lambda queue, _: f"{queue.waiting:,}", number=True, drop=2),
    Column("oldest ready", lambda queue, now: formatting.format_ago(queue.oldest_due, now), drop=1),
    Column("state", _format_state, elastic=True),
)


@command.verb("list", watch_option)
def list_(target: CliTarget) -> None:
    """List the queues that have jobs, a pause, or a worker that takes them."""
    empty = "No queue has jobs, a pause or a worker in {store}."
    output.list_and_show(target, lambda app: app.queues.list(), QUEUES, empty=empty)


@command.verb("show", queue_argument)
def show(target: CliTarget, queue: str) -> None:
    """Show one queue, and the living workers that take it."""

    async def question(app: Drumbeat) -> tuple[QueueInfo, list[Instance]]:
        found = await app.queues.show(queue)
        return found, [each for each in await app.instances.list() if queue in each.queues and "worker" in each.roles]

    found, workers = call_app(target, question)
    ids = [worker.id for worker in workers]
    slots, running = sum(each.concurrency for each in workers), sum(each.running for each in workers)

    def show_queue(found: QueueInfo, now: datetime) -> None:
        facts = {
            "queue": formatting.format_value(found.name, 100),
            "state": _format_state(found, now),
            "ready": f"{found.ready:,}",
            "scheduled": f"{found.scheduled:,}",
            "running": f"{found.running:,}",
            "waiting": f"{found.waiting:,}",
            "oldest ready": formatting.format_exact(found.oldest_due, now),
            "lag": f"{found.lag:.3f} s",
            "workers": f"{format_count(len(workers), 'worker')}, {running:,} of {format_count(slots, 'slot')} taken",
            "taken by": output.join_words(ids),
        }
        output.show_page(facts)

    output.show_record(target, found, show_queue, lambda found: output.record_fields(found, workers=ids))


@command.verb("lag", argument("queue", type=NAME, required=False, shell_complete=completion.queues))
def lag(target: CliTarget, queue: str | None) -> None:
    """Print for how many seconds the oldest ready job has been due: of one queue, or of all that are not paused."""
    seconds = call_app(target, lambda app: app.queues.lag(queue))
    output.report(target, {"queue": queue, "lag": seconds}, f"{seconds:.3f}")


@command.verb("pause", queue_argument, reason_option)
def pause(target: CliTarget, queue: str) -> None:
    """Start no more jobs of a queue; running jobs continue. The reason is shown with the queue."""
    run_audited(
        target, "queues.pause", queue, lambda app: app.queues.pause(queue, reason=target.reason, by=current_user())
    )
    line = f"Queue {queue} is paused; `drumbeat queues resume {queue}` undoes it."
    output.report(target, {"queue": queue, "paused": True}, line)


@command.verb("resume", queue_argument, reason_option)
def resume(target: CliTarget, queue: str) -> None:
    """Start the jobs of a paused queue again."""
    resumed = run_audited(target, "queues.resume", queue, lambda app: app.queues.resume(queue))
    line = f"Queue {queue} is resumed." if resumed else f"Queue {queue} was not paused."
    output.report(target, {"queue": queue, "resumed": resumed}, line)
