"""The screen of `drumbeat top`: what it reads, and how rich draws it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

import msgspec

from drumbeat.admin.health_rules import Health
from drumbeat.cli import formatting, output
from drumbeat.cli.instances import format_app, format_roles
from drumbeat.cli.output import Column
from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.health import HealthLevel
from drumbeat.core.instance import Instance, LeaderInfo
from drumbeat.core.job import Failure
from drumbeat.core.job_query import JobCounts, JobFilter, QueueInfo
from drumbeat.durations import from_us
from drumbeat.plural import format_count

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.text import Text

    from drumbeat.admin.health import HealthMonitor
    from drumbeat.app import Drumbeat
    from drumbeat.core.stats import Rollup

T = TypeVar("T")

INTERVAL_S = 10
INTERVALS = 6
MAX_GROUPS = 5
MAX_REASONS = 4
MAX_GROUPS_READ = 100


class Rate(msgspec.Struct, frozen=True):
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
    queues: list[QueueInfo]
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

    def table(of: output.TextTable[T], records: list[T], empty: str) -> RenderableType:
        return of.build(records, snapshot.at, width) if records else Text(empty, style="dim")

    return Group(
        _render_header(snapshot, problem),
        Text(),
        table(_queues_table(snapshot.rates), snapshot.queues, "No queue has jobs, a pause or a worker."),
        Text(),
        table(_instances_table(snapshot.leader), snapshot.instances, "No instance is alive."),
        Text(),
        table(_GROUPS, snapshot.dead_groups, "No dead letters."),
    )


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


def _queues_table(rates: dict[str, Rate]) -> output.TextTable[QueueInfo]:
    def rate_of(queue: QueueInfo) -> Rate:
        return rates.get(queue.name, Rate())

    return output.TextTable(
        Column("queue", lambda queue, _: formatting.format_value(queue.name, 40), elastic=True),
        Column("ready", lambda queue, _: f"{queue.ready:,}", number=True),
        Column("scheduled", lambda queue, _: f"{queue.scheduled:,}", number=True, drop=2),
        Column("running", lambda queue, _: f"{queue.running:,}", number=True),
        Column("waiting", lambda queue, _: f"{queue.waiting:,}", number=True, drop=1),
        Column("done/s", lambda queue, _: f"{rate_of(queue).succeeded:,.1f}", number=True),
        Column("failed/s", lambda queue, _: f"{rate_of(queue).failed:,.1f}", number=True),
        Column("oldest ready", lambda queue, now: formatting.format_ago(queue.oldest_due, now)),
        Column(
            "state",
            lambda queue, _: f"paused by {formatting.format_value(queue.paused_by)}" if queue.paused else "open",
            elastic=True,
            drop=3,
        ),
    )


def _instances_table(leader: LeaderInfo | None) -> output.TextTable[Instance]:
    return output.TextTable(
        Column("instance", lambda each, _: each.id),
        Column("app", lambda each, _: format_app(each, 30), elastic=True, drop=2),
        Column("host", lambda each, _: formatting.format_value(each.host, 30), elastic=True, drop=3),
        Column("pid", lambda each, _: str(each.pid), number=True),
        Column("roles", lambda each, _: format_roles(each, leader), elastic=True, drop=1),
        Column("running", lambda each, _: f"{each.running}/{each.concurrency}"),
        Column("last beat", lambda each, now: formatting.format_ago(each.beat_at, now)),
    )


_GROUPS: output.TextTable[DeadLetterGroup] = output.TextTable(
    Column("last died", lambda group, now: formatting.format_ago(group.last_at, now)),
    Column("letters", lambda group, _: f"{group.count:,}", number=True),
    Column("task", lambda group, _: formatting.format_value(group.task, 40), elastic=True),
    Column("error", lambda group, _: formatting.format_error(Failure(group.error, group.message), 100), elastic=True),
)
