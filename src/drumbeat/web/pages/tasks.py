"""Tasks: how often each runs and fails, how long its jobs wait and take, its last error; and a form that enqueues one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from drumbeat.durations import MICROSECOND
from drumbeat.model.death import DeadGroup
from drumbeat.model.stats import Rollup
from drumbeat.nouns import TaskInfo
from drumbeat.web.api import dead, instances, jobs, stats, tasks
from drumbeat.web.api.dead import GroupsQuery
from drumbeat.web.api.filters import Listed
from drumbeat.web.api.instances import InstancesQuery
from drumbeat.web.api.records import store_now
from drumbeat.web.api.stats import StatsQuery
from drumbeat.web.api.tasks import HistoryQuery
from drumbeat.web.call import Answer, Call, Role

from .charting import charts_of
from .enqueueing import fields_of
from .lanes import RANGES
from .percentiles import Percentiles, percentiles
from .rendering import render

CHOICES = ("15m", "1h", "6h", "24h")
SHOWN_RUNS = 30


class TasksPage(msgspec.Struct, frozen=True, kw_only=True):
    """What the address may say."""

    range: str = "1h"


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    range: str = "1h"
    before: str | None = None
    """Of the runs: the next page."""


class TaskFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted of a task in a range."""

    runs: int
    failed: int
    share: float | None
    """Of the runs, those that failed or crashed, 0 to 1; None: there were none."""
    wait: Percentiles
    run: Percentiles


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    info: TaskInfo
    figures: TaskFigures
    error: DeadGroup | None
    """The newest of its dead letters' errors."""


def figures_of(rollups: Iterable[Rollup]) -> TaskFigures:
    counted = list(rollups)
    runs = sum(each.started for each in counted)
    failed = sum(each.failed + each.crashed for each in counted)
    return TaskFigures(
        runs=runs,
        failed=failed,
        share=min(1.0, failed / runs) if runs else None,
        wait=percentiles(each.wait for each in counted),
        run=percentiles(each.run for each in counted),
    )


def rows_of(found: Sequence[TaskInfo], rollups: Sequence[Rollup], groups: Sequence[DeadGroup]) -> list[TaskRow]:
    """A row for each task; those that are busiest stand where their name says, so that rows do not move."""
    counted: dict[str, list[Rollup]] = {}
    for rollup in rollups:
        counted.setdefault(rollup.task, []).append(rollup)
    newest: dict[str, DeadGroup] = {}
    for group in groups:
        if group.task not in newest or group.last_at > newest[group.task].last_at:
            newest[group.task] = group
    return [
        TaskRow(info=info, figures=figures_of(counted.get(info.name, ())), error=newest.get(info.name))
        for info in found
    ]


def chosen(range: str) -> str:
    return range if range in CHOICES else "1h"


def since_of(range: str, until: datetime) -> datetime:
    return until - timedelta(microseconds=RANGES[range])


async def index(call: Call) -> Answer:
    """GET /tasks."""
    range = chosen(call.query.range)
    now = await store_now(call.host)
    found = await call.ask(tasks.list_)
    counted = await call.ask(stats.read, query=_stretch(range, now))
    groups = await call.ask(dead.groups, query=GroupsQuery(limit=500))
    return await render(
        call,
        "tasks.html",
        page="tasks",
        title="Tasks",
        rows=rows_of(found.items, counted.items, groups.items),
        range=range,
        choices=CHOICES,
        since=_minute(since_of(range, now)),
    )


async def show(call: Call) -> Answer:
    """GET /tasks/{name}."""
    name = call.path["name"]
    query: TaskPage = call.query
    range = chosen(query.range)
    now = await store_now(call.host)
    info: TaskInfo = await call.ask(tasks.show, path={"name": name})
    counted = await call.ask(stats.read, query=_stretch(range, now, task=name))
    runs = await call.ask(tasks.history, path={"name": name}, query=HistoryQuery(before=query.before, limit=SHOWN_RUNS))
    last_dead = await call.ask(jobs.list_, query=Listed(task=name, state="dead", limit=1))
    living = await call.ask(instances.list_, query=InstancesQuery())
    return await render(
        call,
        "task.html",
        page="tasks",
        title=name,
        info=info,
        figures=figures_of(counted.items),
        charts=await charts_of(call, range, now, task=name),
        runs=runs.items,
        next=runs.next,
        before=query.before,
        error=next(iter(last_dead.items), None),
        known_by=[each for each in living.items if name in each.tasks],
        fields=fields_of(info) if call.may(Role.OPERATOR) else None,
        range=range,
        choices=CHOICES,
        since=_minute(since_of(range, now)),
    )


def _stretch(range: str, now: datetime, task: str | None = None) -> StatsQuery:
    return StatsQuery(grain="1m", since=since_of(range, now), until=now, task=task)


def _minute(moment: datetime) -> datetime:
    """Cut to the minute: links must not change with each second, or the page would never stand still."""
    return moment - (moment.second * 1_000_000 + moment.microsecond) * MICROSECOND
