"""What `drumbeat top` shows: taken from an app, drawn with rich."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from drumbeat.cli import output, words
from drumbeat.durations import from_us
from drumbeat.model.death import DeadGroup
from drumbeat.model.finding import Level
from drumbeat.model.instance import Instance, LeaderInfo
from drumbeat.model.job import JobCounts, JobFilter, QueueStats
from drumbeat.nouns.health import Health

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.text import Text

    from drumbeat.app import Drumbeat
    from drumbeat.model.stats import Rollup
    from drumbeat.nouns.health import HealthWatch

STRETCH_S = 10
STRETCHES = 6
MOST_GROUPS = 5
MOST_REASONS = 4
MOST_GROUPS_ASKED = 100

QUEUES = output.Columns(
    names=("queue", "ready", "scheduled", "running", "waiting", "done/s", "failed/s", "oldest ready", "state"),
    numbers=frozenset({"ready", "scheduled", "running", "waiting", "done/s", "failed/s"}),
    elastic=frozenset({"queue", "state"}),
    spare=("waiting", "scheduled", "state"),
)
INSTANCES = output.Columns(
    names=("instance", "app", "host", "pid", "roles", "running", "last beat"),
    numbers=frozenset({"pid"}),
    elastic=frozenset({"app", "host", "roles"}),
    spare=("roles", "app", "host"),
)
GROUPS = output.Columns(
    names=("last died", "letters", "task", "error"),
    numbers=frozenset({"letters"}),
    elastic=frozenset({"task", "error"}),
)


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """In a second, over the last minute that workers have told of."""

    started: float = 0.0
    succeeded: float = 0.0
    failed: float = 0.0


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment."""

    at: datetime
    place: str
    health: Health
    counts: JobCounts
    rate: Rate
    rates: dict[str, Rate]
    """By queue."""
    queues: list[QueueStats]
    instances: list[Instance]
    leader: LeaderInfo | None
    deaths: list[DeadGroup]
    """What died last, in groups of task and error."""


async def taken(app: Drumbeat, place: str, watch: HealthWatch) -> Picture:
    store = await app.store()
    look = await watch.look(store, heartbeat=app.settings.heartbeat)
    at = from_us(look.signs.now)
    # The stretch that is under way has not been told yet, and the one before it perhaps not by all.
    until = at - timedelta(seconds=at.second % STRETCH_S + STRETCH_S, microseconds=at.microsecond)
    rollups = await app.stats.read(since=until - timedelta(seconds=STRETCH_S * STRETCHES), until=until)
    groups = await app.dead.groups(limit=MOST_GROUPS_ASKED)
    return Picture(
        at=at,
        place=place,
        health=look.health,
        counts=await store.inspect.counts(JobFilter()),
        rate=_rate(rollups),
        rates={
            name: _rate(each for each in rollups if each.queue == name) for name in {each.queue for each in rollups}
        },
        queues=await app.queues.list(),
        instances=list(look.signs.instances),
        leader=look.signs.leader,
        deaths=sorted(groups, key=lambda group: group.last_at, reverse=True)[:MOST_GROUPS],
    )


def _rate(rollups: Iterable[Rollup]) -> Rate:
    started = succeeded = failed = 0
    for each in rollups:
        started, succeeded, failed = started + each.started, succeeded + each.succeeded, failed + each.failed
    span = STRETCH_S * STRETCHES
    return Rate(started=started / span, succeeded=succeeded / span, failed=failed / span)


def drawn(picture: Picture, width: int, *, problem: str = "") -> Group:
    """The whole of it, as wide as the screen."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [_head(picture, problem), Text()]
    for columns, rows, empty in (
        (QUEUES, [_queue(picture, queue) for queue in picture.queues], "No queue has jobs, a pause or a worker."),
        (INSTANCES, [_instance(picture, each) for each in picture.instances], "No instance is alive."),
        (GROUPS, [_death(picture, group) for group in picture.deaths], "No dead letters."),
    ):
        parts += [output.table(columns, rows, width) if rows else Text(empty, style="dim"), Text()]
    return Group(*parts[:-1])


def _head(picture: Picture, problem: str) -> Text:
    from rich.text import Text

    counts, rate = picture.counts, picture.rate
    slots = sum(each.concurrency for each in picture.instances)
    head = Text()
    head.append(f"{words.escaped(picture.place)}  {picture.at:%Y-%m-%d %H:%M:%S} UTC\n", style="bold")
    if problem:
        head.append(f"{words.one_line(problem)}: what follows is of that moment\n", style="bold red")
    else:
        _health(head, picture.health)
    head.append(
        f"{counts.ready:,} ready, {counts.scheduled:,} scheduled, {counts.retrying:,} retrying, "
        f"{counts.waiting:,} waiting, {counts.running:,} running, {words.count(counts.dead, 'dead letter')}\n"
    )
    head.append(
        f"last minute: {rate.started:,.1f} started/s, {rate.succeeded:,.1f} done/s, {rate.failed:,.1f} failed/s; "
    )
    head.append(f"{words.count(len(picture.instances), 'instance')} with {words.count(slots, 'slot')}")
    return head


def _health(head: Text, health: Health) -> None:
    """One line for each reason, the worst first; a store that is away is told instead."""
    if not health.reasons:
        head.append(f"{health.text}\n", style="bold green")
    for reason in health.reasons[:MOST_REASONS]:
        style = "bold red" if reason.level is Level.BAD else "bold yellow"
        head.append(words.one_line(reason.text), style=style)
        head.append(f": {words.one_line(reason.detail)}\n" if reason.detail else "\n")
    if len(health.reasons) > MOST_REASONS:
        head.append(f"and {len(health.reasons) - MOST_REASONS} more reasons (`drumbeat doctor`)\n")


def _queue(picture: Picture, queue: QueueStats) -> list[str]:
    rate = picture.rates.get(queue.name, Rate())
    return [
        words.word(queue.name, 40),
        *(f"{number:,}" for number in (queue.ready, queue.scheduled, queue.running, queue.waiting)),
        f"{rate.succeeded:,.1f}",
        f"{rate.failed:,.1f}",
        words.ago(queue.oldest_due, picture.at),
        f"paused by {words.word(queue.paused_by)}" if queue.paused else "open",
    ]


def _instance(picture: Picture, instance: Instance) -> list[str]:
    leads = picture.leader is not None and picture.leader.instance == instance.id
    return [
        instance.id,
        words.word(f"{instance.app} {instance.version}".strip(), 30),
        words.word(instance.host, 30),
        str(instance.pid),
        output.seen([*instance.roles, *(["leads"] if leads else [])]),
        f"{instance.running}/{instance.concurrency}",
        words.ago(instance.beat_at, picture.at),
    ]


def _death(picture: Picture, group: DeadGroup) -> list[str]:
    kind = group.error.rpartition(".")[2]
    return [
        words.ago(group.last_at, picture.at),
        f"{group.count:,}",
        words.word(group.task, 40),
        words.word(": ".join(part for part in (kind, group.message) if part), 100),
    ]
