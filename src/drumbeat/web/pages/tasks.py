"""Tasks: runs, failures, wait and run times, last error; and a form that enqueues one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec
from starlette.responses import Response

from drumbeat.admin import TaskInfo
from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.stats import Rollup
from drumbeat.durations import MICROSECOND
from drumbeat.web.api import dead, instances, jobs, stats, tasks
from drumbeat.web.api.dead import DeadGroupsQuery
from drumbeat.web.api.instances import InstancesQuery
from drumbeat.web.api.job_filters import JobListQuery
from drumbeat.web.api.stats import StatsQuery
from drumbeat.web.api.tasks import TaskHistoryQuery
from drumbeat.web.request import DashboardRequest
from drumbeat.web.route import AccessRole

from .enqueue_form import fields_of
from .layout import render_page
from .page_charts import load_charts
from .percentiles import Percentiles, percentiles
from .timeline_layout import RANGES

RANGE_CHOICES = ("15m", "1h", "6h", "24h")
MAX_RUNS = 30


class TasksPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query of the page."""

    range: str = "1h"


class TaskPageQuery(TasksPageQuery, frozen=True, kw_only=True):
    before: str | None = None
    """The next page of runs."""


class TaskFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a task in a range."""

    runs: int
    failed: int
    share: float | None
    """Share of runs that failed or crashed, 0 to 1; None: no runs."""
    wait: Percentiles
    run: Percentiles


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    info: TaskInfo
    figures: TaskFigures
    error: DeadLetterGroup | None
    """The error of its newest dead letter."""


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


def rows_of(found: Sequence[TaskInfo], rollups: Sequence[Rollup], groups: Sequence[DeadLetterGroup]) -> list[TaskView]:
    """A row for each task, by name, so that rows do not move."""
    counted: dict[str, list[Rollup]] = {}
    for rollup in rollups:
        counted.setdefault(rollup.task, []).append(rollup)
    newest: dict[str, DeadLetterGroup] = {}
    for group in groups:
        if group.task not in newest or group.last_at > newest[group.task].last_at:
            newest[group.task] = group
    return [
        TaskView(info=info, figures=figures_of(counted.get(info.name, ())), error=newest.get(info.name))
        for info in found
    ]


def valid_range(range: str) -> str:
    return range if range in RANGE_CHOICES else "1h"


def since_of(range: str, until: datetime) -> datetime:
    return until - timedelta(microseconds=RANGES[range])


async def index(request: DashboardRequest, query: TasksPageQuery) -> Response:
    """GET /tasks."""
    range = valid_range(query.range)
    now = await request.store_time()
    found = await tasks.list_tasks(request)
    counted = await stats.read_stats(request, StatsQuery(resolution="1m", since=since_of(range, now), until=now))
    groups = await dead.list_groups(request, DeadGroupsQuery(limit=500))
    return await render_page(
        request,
        "tasks.html",
        page="tasks",
        title="Tasks",
        rows=rows_of(found.items, counted.items, groups.items),
        range=range,
        choices=RANGE_CHOICES,
        since=_truncate_to_minute(since_of(range, now)),
    )


async def show(request: DashboardRequest, name: str, query: TaskPageQuery) -> Response:
    """GET /tasks/{name}."""
    range = valid_range(query.range)
    info = await tasks.show(request, name)
    charts = await load_charts(request, range, task=name)
    runs = await tasks.history(request, name, TaskHistoryQuery(before=query.before, limit=MAX_RUNS))
    last_dead = await jobs.list_jobs(request, JobListQuery(task=name, state="dead", limit=1))
    living = await instances.list_instances(request, InstancesQuery())
    return await render_page(
        request,
        "task.html",
        page="tasks",
        title=name,
        info=info,
        figures=figures_of(charts.rollups),
        charts=charts,
        runs=runs.items,
        next=runs.next,
        before=query.before,
        error=next(iter(last_dead.items), None),
        known_by=[each for each in living.items if name in each.tasks],
        fields=fields_of(info) if request.has_role(AccessRole.OPERATOR) else None,
        range=range,
        choices=RANGE_CHOICES,
        since=_truncate_to_minute(since_of(range, await request.store_time())),
    )


def _truncate_to_minute(moment: datetime) -> datetime:
    """Truncated to the minute: links that change each second would redraw the page."""
    return moment - (moment.second * 1_000_000 + moment.microsecond) * MICROSECOND
