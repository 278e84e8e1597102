"""The timeline: a lane for each schedule or task, what ran when and how it ended, what was missed, what will come.

The range is in the address. Lanes come by name, some on each page: ten thousand schedules have a timeline too.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from starlette.responses import Response

from drumbeat.admin import ScheduleInfo
from drumbeat.core.job import JobState
from drumbeat.core.schedule import ScheduleState
from drumbeat.durations import from_us, to_us
from drumbeat.errors import ConfigError
from drumbeat.ids import JobId, created_us
from drumbeat.web.api import jobs, schedules, tasks
from drumbeat.web.api.job_filters import JobListQuery
from drumbeat.web.api.records import JobRecord, Page, read_store_time
from drumbeat.web.api.schedules import FiresQuery, PreviewQuery, SchedulesQuery
from drumbeat.web.request import DashboardRequest

from .formatting import iso, quote_segment
from .layout import render_page
from .schedules import fire_items
from .timeline_items import attempt_runs, last_run, pending_item, run_item, unread_item, upcoming_item
from .timeline_layout import RANGES, Lane, TimelineItem, TimeWindow, axis_ticks, layout_bars, shift_window, window_of

MAX_LANES = 20
MAX_RUNS = 300
MAX_JOBS_WITH_ATTEMPTS = 50
"""Jobs of a lane that are asked for each of their runs; of others only the last is drawn."""
MAX_UPCOMING = 60
MAX_SEARCHED = 500


class TimelinePageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What the address may say."""

    by: str = "schedule"
    """schedule or task."""
    range: str = "1h"
    until: datetime | None = None
    """The end of the picture; None: a little after now, and it goes with time."""
    q: str = ""
    """Only lanes whose name has this in it."""
    after: str | None = None


class TimelineView(msgspec.Struct, frozen=True, kw_only=True):
    """The picture around the lanes."""

    by: str
    range: str
    q: str
    until: datetime | None
    earlier: str
    """`until` of the picture before; and so on. Empty: the one that goes with time."""
    later: str


def view_of(query: TimelinePageQuery, now: int) -> tuple[TimelineView, TimeWindow]:
    by = query.by if query.by in ("schedule", "task") else "schedule"
    range = query.range if query.range in RANGES else "1h"
    until = (
        query.until if query.until is None or query.until.utcoffset() is not None else query.until.replace(tzinfo=UTC)
    )
    span = window_of(range, now, None if until is None else min(to_us(until), now + RANGES[range]))
    earlier, later = shift_window(span, range, -1), shift_window(span, range, 1)
    view = TimelineView(
        by=by,
        range=range,
        q=query.q[:100],
        until=until,
        earlier="" if earlier is None else iso(from_us(earlier)),
        later="" if later is None else iso(from_us(later)),
    )
    return view, span


def describe_window(span: TimeWindow) -> str:
    """What the picture shows, in words: 2026-11-15, 13:44 to 14:55 UTC."""
    first, last = from_us(span.first), from_us(span.last)
    day = "" if first.date() == last.date() else f"{last:%Y-%m-%d}, "
    return f"{first:%Y-%m-%d}, {first:%H:%M} to {day}{last:%H:%M} UTC"


async def index(request: DashboardRequest) -> Response:
    """GET /timeline."""
    query: TimelinePageQuery = request.query
    now = await read_store_time(request.app)
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
        stretch=describe_window(span),
        choices=tuple(RANGES),
        q="",
    )


async def _schedule_lanes(
    request: DashboardRequest, view: TimelineView, span: TimeWindow, now: datetime, after: str | None
) -> tuple[list[Lane], str | None]:
    # A search reads a long page of names and keeps those that fit; without one a page of names is a page of lanes.
    limit = MAX_SEARCHED if view.q else MAX_LANES
    found: Page[ScheduleInfo] = await request.invoke(
        schedules.list_schedules, query=SchedulesQuery(after=after, limit=limit)
    )
    wanted = [info for info in found.items if view.q.lower() in info.name.lower()]
    lanes = [await _schedule_lane(request, info, span, now) for info in wanted[:MAX_LANES]]
    return lanes, wanted[MAX_LANES - 1].name if len(wanted) > MAX_LANES else found.next


async def _schedule_lane(request: DashboardRequest, info: ScheduleInfo, span: TimeWindow, now: datetime) -> Lane:
    href = request.link_to(f"/schedules/{quote_segment(info.name)}")
    found = await request.invoke(
        schedules.list_fires,
        path_params={"name": info.name},
        query=FiresQuery(before=from_us(span.last + 1), limit=MAX_RUNS),
    )
    # Newest first: what is older than the picture need not be looked at, but a stretch may reach into it.
    fires = [fire for fire in found.items if to_us(fire.finished_at or now) >= span.first]
    pieces = fire_items(request, fires, now)
    if found.next is not None and (oldest := to_us(found.items[-1].at)) > span.first:
        pieces.append(unread_item(span.first, oldest, href))
    if info.state is ScheduleState.ACTIVE and span.last > span.now and info.next_at is not None:
        pieces += await _upcoming_items(request, info, href)
    drawn, hidden = layout_bars(pieces, span)
    note = info.words if info.state is ScheduleState.ACTIVE else f"{info.state}: {info.words}"
    return Lane(name=info.name, href=href, note=note, bars=drawn, hidden=hidden)


async def _upcoming_items(request: DashboardRequest, info: ScheduleInfo, href: str) -> list[TimelineItem]:
    if info.cron is None and not info.grid and info.next_at is not None:
        return [upcoming_item(info.next_at, "", href)]  # those after it depend on how long runs take
    try:
        found = await request.invoke(schedules.preview, query=PreviewQuery(name=info.name, count=MAX_UPCOMING))
    except ConfigError:
        return []  # its stored rule cannot be read: it has no moments, and its note says why
    return [upcoming_item(each.at, each.note, href) for each in found.items]


async def _task_lanes(
    request: DashboardRequest, view: TimelineView, span: TimeWindow, now: datetime, after: str | None
) -> tuple[list[Lane], str | None]:
    names = [info.name for info in (await request.invoke(tasks.list_tasks)).items]
    wanted = [name for name in names if view.q.lower() in name.lower() and (after is None or name > after)]
    lanes = [await _task_lane(request, name, span, now) for name in wanted[:MAX_LANES]]
    return lanes, wanted[MAX_LANES - 1] if len(wanted) > MAX_LANES else None


async def _task_lane(request: DashboardRequest, name: str, span: TimeWindow, now: datetime) -> Lane:
    pieces = await _task_items(request, span, now, JobListQuery(task=name, limit=MAX_RUNS))
    drawn, hidden = layout_bars(pieces, span)
    number = sum(bar.count for bar in drawn if bar.kind not in ("unread", "waiting"))
    note = "no run in this range" if not number else "1 run" if number == 1 else f"{number:,} runs"
    if any(bar.kind == "unread" for bar in drawn):
        note = f"the newest {number:,} runs" if number else "none among the newest jobs"
    return Lane(name=name, href=request.link_to(f"/tasks/{quote_segment(name)}"), note=note, bars=drawn, hidden=hidden)


async def _task_items(
    request: DashboardRequest, span: TimeWindow, now: datetime, wanted: JobListQuery
) -> list[TimelineItem]:
    """Of jobs that may have run within the picture, every run: a job is made before it runs, usually not long before."""
    reach = timedelta(microseconds=span.length)
    query = msgspec.structs.replace(wanted, since=from_us(span.first) - reach, until=from_us(span.last))
    found: Page[JobRecord] = await request.invoke(jobs.list_jobs, query=query)
    pieces: list[TimelineItem] = []
    store = await request.app.store()
    left = MAX_JOBS_WITH_ATTEMPTS
    for job in found.items:
        href, runs = request.link_to(f"/jobs/{job.id}"), last_run(job)
        if left and _may_have_more_runs(job):
            runs, left = attempt_runs(job, (await store.inspect.get_attempts([job.id]))[job.id]), left - 1
        pieces += [run_item(run, now, href) for run in runs]
        if job.state is JobState.PENDING:
            pieces.append(pending_item(job, href))
    # A page of a search may end before the picture does, also an empty one: up to there nobody has looked.
    if found.next is not None and (looked_until := created_us(JobId(found.next))) > span.first:
        until = min(looked_until, span.now)
        pieces.append(unread_item(span.first, until, _jobs_url(request, wanted.task, span, until)))
    return pieces


def _may_have_more_runs(job: JobRecord) -> bool:
    """Whether there may be more runs than the one that its record tells of: it failed, crashed, was replayed or put off."""
    put_off = job.started_at is not None and (job.started_at - job.due_at).total_seconds() > 1
    return bool(job.failures or job.crashes or job.replays or put_off)


def _jobs_url(request: DashboardRequest, task: str | None, span: TimeWindow, until: int) -> str:
    return request.link_to("/jobs", task=task, since=iso(from_us(span.first)), until=iso(from_us(until)))
