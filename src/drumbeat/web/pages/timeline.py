"""The timeline: a lane for each schedule or task with its runs, missed and upcoming fires.

The range is in the URL. Lanes are sorted by name and paged.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec
from starlette.responses import Response

from drumbeat.admin import FireInfo, ScheduleInfo
from drumbeat.admin.views import job_runs, schedule_info
from drumbeat.core.job import Attempt, JobState
from drumbeat.core.schedule import Schedule, ScheduleState
from drumbeat.durations import from_us, to_us
from drumbeat.errors import ConfigError
from drumbeat.ids import JobId, created_us
from drumbeat.names import check_name
from drumbeat.schedules.preview import preview
from drumbeat.web.api import jobs, tasks
from drumbeat.web.api.job_filters import JobListQuery
from drumbeat.web.api.records import JobRecord, Page
from drumbeat.web.api.schedules import load_fires
from drumbeat.web.request import DashboardRequest

from .formatting import iso, quote_segment
from .layout import render_page
from .schedules import fire_items
from .search_query import parse_time
from .timeline_items import last_run, pending_item, run_item, unread_item, upcoming_item
from .timeline_layout import RANGES, Lane, TimelineItem, TimeWindow, axis_ticks, layout_bars, shift_window, window_of
from .window import ChosenWindow, parse_window

MAX_LANES = 20
MAX_RUNS = 300
MAX_JOBS_WITH_ATTEMPTS = 50
"""Jobs of a lane whose runs are all drawn; of others only the last run."""
MAX_UPCOMING = 60
MAX_SEARCHED = 500


class TimelinePageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query of the page."""

    by: str = "schedule"
    """schedule or task."""
    range: str = "1h"
    since: str | None = None
    """The beginning of a window; None: `range` before its end."""
    until: str | None = None
    """The end of the window; None: a little after now, moving."""
    q: str = ""
    """Only lanes whose name contains this."""
    after: str | None = None


class TimelineView(TimelinePageQuery, frozen=True, kw_only=True):
    """The window and its navigation."""

    earlier: dict[str, str | None]
    """Parameters of the previous window, the next one, and this one."""
    later: dict[str, str | None]
    keep: dict[str, str | None]
    window: ChosenWindow | None
    """None: a range."""


def view_of(query: TimelinePageQuery, now: int) -> tuple[TimelineView, TimeWindow]:
    by = query.by if query.by in ("schedule", "task") else "schedule"
    if query.since:
        return _view_of_window(query, by, now)
    range = query.range if query.range in RANGES else "1h"
    until = None if not query.until else to_us(parse_time(query.until, from_us(now), "until"))
    span = window_of(range, now, None if until is None else min(until, now + RANGES[range]))
    earlier, later = shift_window(span, range, -1), shift_window(span, range, 1)
    view = TimelineView(
        by=by,
        range=range,
        q=query.q[:100],
        until=query.until or None,
        earlier=_range_keep(range, earlier),
        later=_range_keep(range, later),
        keep=_range_keep(range, until),
        window=None,
    )
    return view, span


def _range_keep(range: str, until: int | None) -> dict[str, str | None]:
    return {"range": range, "until": None if until is None else iso(from_us(until))}


def _view_of_window(query: TimelinePageQuery, by: str, now: int) -> tuple[TimelineView, TimeWindow]:
    window = parse_window(query.since, query.until, from_us(now))
    assert window is not None
    half = (window.until - window.since) / 2
    moved = [ChosenWindow(since=window.since + way * half, until=window.until + way * half) for way in (-1, 1)]
    view = TimelineView(
        by=by,
        range="",
        q=query.q[:100],
        since=query.since,
        until=query.until,
        earlier=moved[0].keep,
        later=moved[1].keep,
        keep=window.keep,
        window=window,
    )
    return view, TimeWindow(first=to_us(window.since), last=to_us(window.until), now=now)


def describe_window(span: TimeWindow) -> str:
    """The window in words: 2026-11-15, 13:44 to 14:55 UTC."""
    first, last = from_us(span.first), from_us(span.last)
    day = "" if first.date() == last.date() else f"{last:%Y-%m-%d}, "
    return f"{first:%Y-%m-%d}, {first:%H:%M} to {day}{last:%H:%M} UTC"


async def index(request: DashboardRequest, query: TimelinePageQuery) -> Response:
    """GET /timeline."""
    now = await request.store_time()
    view, span = view_of(query, to_us(now))
    if view.by == "task":
        lanes, next = await _task_lanes(request, view, span, now, query.after)
    else:
        lanes, next = await _schedule_lanes(request, view, span, now, query.after)
    return await render_page(
        request,
        "timeline.html",
        page="timeline",
        title="Timeline",
        view=view,
        lanes=lanes,
        next=next,
        after=query.after,
        ticks=axis_ticks(span, UTC),
        now_x=span.x(span.now) if span.first <= span.now <= span.last else None,
        window=describe_window(span) if view.window is None else view.window.words,
        choices=tuple(RANGES),
        q="",
    )


async def _schedule_lanes(
    request: DashboardRequest, view: TimelineView, span: TimeWindow, now: datetime, after: str | None
) -> tuple[list[Lane], str | None]:
    # A search reads a long page of names and filters it.
    limit = MAX_SEARCHED if view.q else MAX_LANES
    store = await request.app.store()
    found = await store.schedules.list_page(after=None if after is None else check_name("after", after), limit=limit)
    wanted = [schedule for schedule in found if view.q.lower() in schedule.name.lower()]
    shown = wanted[:MAX_LANES]
    fires = await load_fires(request, [schedule.name for schedule in shown], before=span.last + 1, limit=MAX_RUNS)
    lanes = [_schedule_lane(request, schedule, fires[schedule.name], span, now) for schedule in shown]
    more = found[-1].name if len(found) >= limit else None
    return lanes, shown[-1].name if len(wanted) > MAX_LANES else more


def _schedule_lane(
    request: DashboardRequest, schedule: Schedule, fires: list[FireInfo], span: TimeWindow, now: datetime
) -> Lane:
    info, href = schedule_info(schedule), request.link_to(f"/schedules/{quote_segment(schedule.name)}")
    # Newest first: fires older than the window are not drawn, but an interval of fires may reach into it.
    pieces = fire_items(request, [fire for fire in fires if to_us(fire.finished_at or now) >= span.first], now)
    if len(fires) >= MAX_RUNS and (oldest := to_us(fires[-1].at)) > span.first:
        pieces.append(unread_item(span.first, oldest, href))
    if info.state is ScheduleState.ACTIVE and span.last > span.now and info.next_at is not None:
        pieces += _upcoming_items(schedule, info, span.now, href)
    drawn, hidden = layout_bars(pieces, span)
    note = info.words if info.state is ScheduleState.ACTIVE else f"{info.state}: {info.words}"
    return Lane(name=info.name, href=href, note=note, bars=drawn, hidden=hidden)


def _upcoming_items(schedule: Schedule, info: ScheduleInfo, now: int, href: str) -> list[TimelineItem]:
    if info.cron is None and not info.grid and info.next_at is not None:
        return [upcoming_item(info.next_at, "", href)]  # later ones depend on how long runs take
    try:
        found = preview(schedule.definition, now, MAX_UPCOMING)
    except ConfigError:
        return []  # an unreadable rule has no fire times; the lane's note says so
    return [upcoming_item(each.at, each.note, href) for each in found]


async def _task_lanes(
    request: DashboardRequest, view: TimelineView, span: TimeWindow, now: datetime, after: str | None
) -> tuple[list[Lane], str | None]:
    names = [info.name for info in (await tasks.list_tasks(request)).items]
    wanted = [name for name in names if view.q.lower() in name.lower() and (after is None or name > after)]
    pages = {name: await _find_jobs(request, name, span) for name in wanted[:MAX_LANES]}
    with_more = [job for page in pages.values() for job in _with_more_runs(page.items)]
    store = await request.app.store()
    attempts = await store.inspect.get_attempts([job.id for job in with_more])
    lanes = [_task_lane(request, name, page, attempts, span, now) for name, page in pages.items()]
    return lanes, wanted[MAX_LANES - 1] if len(wanted) > MAX_LANES else None


async def _find_jobs(request: DashboardRequest, task: str, span: TimeWindow) -> Page[JobRecord]:
    """Jobs that may have run within the window: a job is created before it runs, usually not long before."""
    since, until = from_us(span.first) - timedelta(microseconds=span.length), from_us(span.last)
    return await jobs.list_jobs(request, JobListQuery(task=task, limit=MAX_RUNS, since=since, until=until))


def _task_lane(
    request: DashboardRequest,
    name: str,
    page: Page[JobRecord],
    attempts: Mapping[JobId, list[Attempt]],
    span: TimeWindow,
    now: datetime,
) -> Lane:
    pieces: list[TimelineItem] = []
    for job in page.items:
        href = request.link_to(f"/jobs/{job.id}")
        runs = job_runs(job, attempts[job.id]) if job.id in attempts else last_run(job)
        pieces += [run_item(run, now, href) for run in runs]
        if job.state is JobState.PENDING:
            pieces.append(pending_item(job, href))
    # A page of a search may end before the window does, even if it is empty: earlier jobs were not read.
    if page.next is not None and (read_until := created_us(JobId(page.next))) > span.first:
        until = min(read_until, span.now)
        pieces.append(unread_item(span.first, until, _jobs_url(request, name, span, until)))
    drawn, hidden = layout_bars(pieces, span)
    number = sum(bar.count for bar in drawn if bar.kind not in ("unread", "waiting"))
    note = "no run in this range" if not number else "1 run" if number == 1 else f"{number:,} runs"
    if any(bar.kind == "unread" for bar in drawn):
        note = f"the newest {number:,} runs" if number else "none among the newest jobs"
    return Lane(name=name, href=request.link_to(f"/tasks/{quote_segment(name)}"), note=note, bars=drawn, hidden=hidden)


def _with_more_runs(page: list[JobRecord]) -> list[JobRecord]:
    """The newest jobs of a lane of which not only the last run is drawn."""
    return [job for job in page if _may_have_more_runs(job)][:MAX_JOBS_WITH_ATTEMPTS]


def _may_have_more_runs(job: JobRecord) -> bool:
    """Whether it may have more runs than its record has: it failed, crashed, was replayed or snoozed."""
    snoozed = job.started_at is not None and (job.started_at - job.due_at).total_seconds() > 1
    return bool(job.failures or job.crashes or job.replays or snoozed)


def _jobs_url(request: DashboardRequest, task: str | None, span: TimeWindow, until: int) -> str:
    return request.link_to("/jobs", task=task, since=iso(from_us(span.first)), until=iso(from_us(until)))
