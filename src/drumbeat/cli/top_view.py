"""The screen of `drumbeat top`: what it reads, and how rich draws it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from drumbeat.admin.health import Health
from drumbeat.cli import formatting, output
from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.health import HealthLevel
from drumbeat.core.instance import Instance, LeaderInfo
from drumbeat.core.job import Failure
from drumbeat.core.job_query import JobCounts, JobFilter, QueueStats
from drumbeat.durations import from_us
from drumbeat.plural import format_count

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.text import Text

    from drumbeat.admin.health import HealthMonitor
    from drumbeat.app import Drumbeat
    from drumbeat.core.stats import Rollup

INTERVAL_S = 10
INTERVALS = 6
MAX_GROUPS = 5
MAX_REASONS = 4
MAX_GROUPS_READ = 100

QUEUES = output.TableColumns(
    names=("queue", "ready", "scheduled", "running", "waiting", "done/s", "failed/s", "oldest ready", "state"),
    numbers=frozenset({"ready", "scheduled", "running", "waiting", "done/s", "failed/s"}),
    elastic=frozenset({"queue", "state"}),
    droppable=("waiting", "scheduled", "state"),
)
INSTANCES = output.TableColumns(
    names=("instance", "app", "host", "pid", "roles", "running", "last beat"),
    numbers=frozenset({"pid"}),
    elastic=frozenset({"app", "host", "roles"}),
    droppable=("roles", "app", "host"),
)
GROUPS = output.TableColumns(
    names=("last died", "letters", "task", "error"),
    numbers=frozenset({"letters"}),
    elastic=frozenset({"task", "error"}),
)


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Runs a second, over the last minute that workers have reported."""

    started: float = 0.0
    succeeded: float = 0.0
    failed: float = 0.0


class TopSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What one screen shows."""

    at: datetime
    store_url: str
    health: Health
    counts: JobCounts
    rate: Rate
    rates: dict[str, Rate]
    """By queue."""
    queues: list[QueueStats]
    instances: list[Instance]
    leader: LeaderInfo | None
    dead_groups: list[DeadLetterGroup]
    """The groups of dead letters that grew last."""


async def take_snapshot(app: Drumbeat, store_url: str, monitor: HealthMonitor) -> TopSnapshot:
    store = await app._internals.store()
    report = await monitor.check(store, heartbeat=app.settings.heartbeat)
    at = from_us(report.snapshot.now)
    # The current interval has not been reported yet, and the one before it perhaps not by all workers.
    until = at - timedelta(seconds=at.second % INTERVAL_S + INTERVAL_S, microseconds=at.microsecond)
    rollups = await app.stats.read(since=until - timedelta(seconds=INTERVAL_S * INTERVALS), until=until)
    groups = await app.dead.groups(limit=MAX_GROUPS_READ)
    return TopSnapshot(
        at=at,
        store_url=store_url,
        health=report.health,
        counts=await store.inspect.count_jobs(JobFilter()),
        rate=_rate(rollups),
        rates={
            name: _rate(each for each in rollups if each.queue == name) for name in {each.queue for each in rollups}
        },
        queues=await app.queues.list(),
        instances=list(report.snapshot.instances),
        leader=report.snapshot.leader,
        dead_groups=sorted(groups, key=lambda group: group.last_at, reverse=True)[:MAX_GROUPS],
    )


def _rate(rollups: Iterable[Rollup]) -> Rate:
    started = succeeded = failed = 0
    for each in rollups:
        started, succeeded, failed = started + each.started, succeeded + each.succeeded, failed + each.failed
    span = INTERVAL_S * INTERVALS
    return Rate(started=started / span, succeeded=succeeded / span, failed=failed / span)


def render(snapshot: TopSnapshot, width: int, *, problem: str = "") -> Group:
    """The whole screen, `width` columns wide."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [_render_header(snapshot, problem), Text()]
    for columns, rows, empty in (
        (QUEUES, [_queue_row(snapshot, queue) for queue in snapshot.queues], "No queue has jobs, a pause or a worker."),
        (INSTANCES, [_instance_row(snapshot, each) for each in snapshot.instances], "No instance is alive."),
        (GROUPS, [_dead_group_row(snapshot, group) for group in snapshot.dead_groups], "No dead letters."),
    ):
        parts += [output.build_table(columns, rows, width) if rows else Text(empty, style="dim"), Text()]
    return Group(*parts[:-1])


def _render_header(snapshot: TopSnapshot, problem: str) -> Text:
    from rich.text import Text

    counts, rate = snapshot.counts, snapshot.rate
    slots = sum(each.concurrency for each in snapshot.instances)
    head = Text()
    head.append(f"{formatting.escape(snapshot.store_url)}  {snapshot.at:%Y-%m-%d %H:%M:%S} UTC\n", style="bold")
    if problem:
        head.append(
            f"{formatting.to_one_line(problem)}: what follows is from {snapshot.at:%H:%M:%S} UTC\n", style="bold red"
        )
    else:
        _render_health(head, snapshot.health)
    head.append(
        f"{counts.ready:,} ready, {counts.scheduled:,} scheduled, {counts.retrying:,} retrying, "
        f"{counts.waiting:,} waiting, {counts.running:,} running, {format_count(counts.dead, 'dead letter')}\n"
    )
    head.append(
        f"last minute: {rate.started:,.1f} started/s, {rate.succeeded:,.1f} done/s, {rate.failed:,.1f} failed/s; "
    )
    head.append(f"{format_count(len(snapshot.instances), 'instance')} with {format_count(slots, 'slot')}")
    return head


def _render_health(head: Text, health: Health) -> None:
    """One line for each reason, the worst first."""
    if not health.reasons:
        head.append(f"{health.text}\n", style="bold green")
    for reason in health.reasons[:MAX_REASONS]:
        style = "bold red" if reason.level is HealthLevel.BAD else "bold yellow"
        head.append(formatting.to_one_line(reason.text), style=style)
        head.append(f": {formatting.to_one_line(reason.detail)}\n" if reason.detail else "\n")
    if len(health.reasons) > MAX_REASONS:
        head.append(f"and {len(health.reasons) - MAX_REASONS} more reasons (`drumbeat doctor`)\n")


def _queue_row(snapshot: TopSnapshot, queue: QueueStats) -> list[str]:
    rate = snapshot.rates.get(queue.name, Rate())
    return [
        formatting.format_value(queue.name, 40),
        *(f"{number:,}" for number in (queue.ready, queue.scheduled, queue.running, queue.waiting)),
        f"{rate.succeeded:,.1f}",
        f"{rate.failed:,.1f}",
        formatting.format_ago(queue.oldest_due, snapshot.at),
        f"paused by {formatting.format_value(queue.paused_by)}" if queue.paused else "open",
    ]


def _instance_row(snapshot: TopSnapshot, instance: Instance) -> list[str]:
    leads = snapshot.leader is not None and snapshot.leader.instance == instance.id
    return [
        instance.id,
        formatting.format_value(f"{instance.app} {instance.version}".strip(), 30),
        formatting.format_value(instance.host, 30),
        str(instance.pid),
        output.join_words([*instance.roles, *(["leads"] if leads else [])]),
        f"{instance.running}/{instance.concurrency}",
        formatting.format_ago(instance.beat_at, snapshot.at),
    ]


def _dead_group_row(snapshot: TopSnapshot, group: DeadLetterGroup) -> list[str]:
    return [
        formatting.format_ago(group.last_at, snapshot.at),
        f"{group.count:,}",
        formatting.format_value(group.task, 40),
        formatting.format_error(Failure(group.error, group.message), 100),
    ]
