"""Tasks: runs, failures, wait and run times, last error; and a form that enqueues one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec
from starlette.responses import Response

from drumbeat.admin import TaskInfo
from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.stats import Rollup
from drumbeat.core.weeks import TaskWeeks
from drumbeat.durations import MICROSECOND
from drumbeat.web.api import dead, instances, jobs, stats, tasks
from drumbeat.web.api.dead import DeadGroupsQuery
from drumbeat.web.api.instances import InstancesQuery
from drumbeat.web.api.job_filters import JobListQuery
from drumbeat.web.api.stats import StatsQuery, WeeksQuery
from drumbeat.web.api.tasks import TaskHistoryQuery
from drumbeat.web.request import DashboardRequest
from drumbeat.web.route import AccessRole

from .enqueue_form import fields_of
from .formatting import iso, percent
from .formatting import span as format_span
from .layout import render_page
from .page_charts import load_charts, load_charts_until
from .percentiles import Percentiles, percentiles
from .timeline_layout import RANGES
from .window import ChosenWindow, Counted, chart_range_of, counted_since, parse_window, resolution_of

RANGE_CHOICES = ("15m", "1h", "6h", "24h")
MAX_RUNS = 30


class TasksPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query of the page."""

    range: str = "1h"
    since: str | None = None
    """With `until`: a window of time instead of a range."""
    until: str | None = None


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
    weeks: TaskWeeks | None
    """None: no run in two weeks."""
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


def rows_of(
    found: Sequence[TaskInfo],
    rollups: Sequence[Rollup],
    groups: Sequence[DeadLetterGroup],
    weeks: Sequence[TaskWeeks] = (),
) -> list[TaskView]:
    """A row for each task, by name, so that rows do not move."""
    counted: dict[str, list[Rollup]] = {}
    for rollup in rollups:
        counted.setdefault(rollup.task, []).append(rollup)
    newest: dict[str, DeadLetterGroup] = {}
    for group in groups:
        if group.task not in newest or group.last_at > newest[group.task].last_at:
            newest[group.task] = group
    by_task = {each.task: each for each in weeks}
    return [
        TaskView(
            info=info,
            figures=figures_of(counted.get(info.name, ())),
            weeks=by_task.get(info.name),
            error=newest.get(info.name),
        )
        for info in found
    ]


def valid_range(range: str) -> str:
    return range if range in RANGE_CHOICES else "1h"


def since_of(range: str, until: datetime) -> datetime:
    return until - timedelta(microseconds=RANGES[range])


class TimeSpan(msgspec.Struct, frozen=True, kw_only=True):
    """What the figures of a page are of: a range that ends now, or a window."""

    range: str
    """Empty: a window."""
    window: ChosenWindow | None
    since: datetime
    until: datetime | None
    """None: now."""
    resolution: Counted
    words: str
    keep: dict[str, str | None]
    """Its parameters in a link."""

    @property
    def ended(self) -> dict[str, str | None]:
        """Parameters of a list of jobs that ended in it."""
        return {"ended_since": iso(self.since), "ended_until": None if self.until is None else iso(self.until)}


def time_span(request: DashboardRequest, query: TasksPageQuery, now: datetime) -> TimeSpan:
    window = parse_window(query.since, query.until, now)
    if window is None:
        range = valid_range(query.range)
        since = _truncate_to_minute(since_of(range, now))
        return TimeSpan(
            range=range,
            window=None,
            since=since,
            until=None,
            resolution="1m",
            words=f"last {range}",
            keep={"range": range},
        )
    resolution = resolution_of(window, now, request.app.settings.retention)
    return TimeSpan(
        range="",
        window=window,
        since=window.since,
        until=window.until,
        resolution=resolution,
        words=window.words,
        keep=window.keep,
    )


async def index(request: DashboardRequest, query: TasksPageQuery) -> Response:
    """GET /tasks."""
    now = await request.store_time()
    span = time_span(request, query, now)
    found = await tasks.list_tasks(request)
    since = since_of(span.range, now) if span.window is None else counted_since(span.window, span.resolution)
    wanted = StatsQuery(resolution=span.resolution, since=since, until=span.until or now)
    counted = await stats.read_stats(request, wanted)
    groups = await dead.list_groups(request, DeadGroupsQuery(limit=500))
    return await render_page(
        request,
        "tasks.html",
        page="tasks",
        title="Tasks",
        rows=rows_of(found.items, counted.items, groups.items, (await stats.read_weeks(request, WeeksQuery())).items),
        span=span,
        choices=RANGE_CHOICES,
        show_span=format_span,
        show_percent=percent,
    )


async def show(request: DashboardRequest, name: str, query: TaskPageQuery) -> Response:
    """GET /tasks/{name}."""
    info = await tasks.show(request, name)
    span = time_span(request, query, await request.store_time())
    if span.window is None:
        charts = await load_charts(request, span.range, task=name)
    else:
        over = chart_range_of(span.window, span.resolution)
        charts = await load_charts_until(request, over, span.window.until - MICROSECOND, task=name)
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
        weeks=next(iter((await stats.read_weeks(request, WeeksQuery(task=name))).items), None),
        charts=charts,
        runs=runs.items,
        next=runs.next,
        before=query.before,
        error=next(iter(last_dead.items), None),
        known_by=[each for each in living.items if name in each.tasks],
        fields=fields_of(info) if request.has_role(AccessRole.OPERATOR) else None,
        span=span,
        choices=RANGE_CHOICES,
    )


def _truncate_to_minute(moment: datetime) -> datetime:
    """Truncated to the minute: links that change each second would redraw the page."""
    return moment - (moment.second * 1_000_000 + moment.microsecond) * MICROSECOND
