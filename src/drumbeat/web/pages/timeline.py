"""The timeline: a lane for each schedule or task, what ran when and how it ended, what was missed, what will come.

The range is in the address. Lanes come by name, some on each page: ten thousand schedules have a timeline too.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from drumbeat.durations import from_us, to_us
from drumbeat.errors import ConfigError
from drumbeat.ids import JobId, created_us
from drumbeat.model.job import JobState
from drumbeat.model.schedule import ScheduleState
from drumbeat.nouns import ScheduleInfo
from drumbeat.web.api import jobs, schedules, tasks
from drumbeat.web.api.filters import Listed
from drumbeat.web.api.records import JobRecord, Page, store_now
from drumbeat.web.api.schedules import FiresQuery, PreviewQuery, SchedulesQuery
from drumbeat.web.call import Answer, Call

from .lanes import RANGES, Lane, Piece, Span, bars, shifted, span_of, ticks
from .pieces import last_run, of_moment, of_pending, of_run, runs_of, unseen
from .rendering import render
from .schedules import pieces_of
from .showing import iso, part

LANES = 20
MOST_RUNS = 300
MOST_TRIED = 50
"""Jobs of a lane that are asked for each of their runs; of others only the last is drawn."""
MOST_COMING = 60
MOST_SEARCHED = 500


class TimelinePage(msgspec.Struct, frozen=True, kw_only=True):
    """What the address may say."""

    by: str = "schedule"
    """schedule or task."""
    range: str = "1h"
    until: datetime | None = None
    """The end of the picture; None: a little after now, and it goes with time."""
    q: str = ""
    """Only lanes whose name has this in it."""
    after: str | None = None


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The picture around the lanes."""

    by: str
    range: str
    q: str
    until: datetime | None
    earlier: str
    """`until` of the picture before; and so on. Empty: the one that goes with time."""
    later: str


def view_of(query: TimelinePage, now: int) -> tuple[View, Span]:
    by = query.by if query.by in ("schedule", "task") else "schedule"
    range = query.range if query.range in RANGES else "1h"
    until = (
        query.until if query.until is None or query.until.utcoffset() is not None else query.until.replace(tzinfo=UTC)
    )
    span = span_of(range, now, None if until is None else min(to_us(until), now + RANGES[range]))
    earlier, later = shifted(span, range, -1), shifted(span, range, 1)
    view = View(
        by=by,
        range=range,
        q=query.q[:100],
        until=until,
        earlier="" if earlier is None else iso(from_us(earlier)),
        later="" if later is None else iso(from_us(later)),
    )
    return view, span


def stretch_of(span: Span) -> str:
    """What the picture shows, in words: 2026-11-15, 13:44 to 14:55 UTC."""
    first, last = from_us(span.first), from_us(span.last)
    day = "" if first.date() == last.date() else f"{last:%Y-%m-%d}, "
    return f"{first:%Y-%m-%d}, {first:%H:%M} to {day}{last:%H:%M} UTC"


async def index(call: Call) -> Answer:
    """GET /timeline."""
    query: TimelinePage = call.query
    now = await store_now(call.host)
    view, span = view_of(query, to_us(now))
    if view.by == "task":
        lanes, next = await _task_lanes(call, view, span, now, query.after)
    else:
        lanes, next = await _schedule_lanes(call, view, span, now, query.after)
    return await render(
        call,
        "timeline.html",
        page="timeline",
        title="Timeline",
        view=view,
        lanes=lanes,
        next=next,
        after=query.after,
        ticks=ticks(span, UTC),
        now_x=span.x(span.now) if span.first <= span.now <= span.last else None,
        stretch=stretch_of(span),
        choices=tuple(RANGES),
        q="",
    )


async def _schedule_lanes(
    call: Call, view: View, span: Span, now: datetime, after: str | None
) -> tuple[list[Lane], str | None]:
    # A search reads a long page of names and keeps those that fit; without one a page of names is a page of lanes.
    limit = MOST_SEARCHED if view.q else LANES
    found: Page[ScheduleInfo] = await call.ask(schedules.list_, query=SchedulesQuery(after=after, limit=limit))
    wanted = [info for info in found.items if view.q.lower() in info.name.lower()]
    lanes = [await _schedule_lane(call, info, span, now) for info in wanted[:LANES]]
    return lanes, wanted[LANES - 1].name if len(wanted) > LANES else found.next


async def _schedule_lane(call: Call, info: ScheduleInfo, span: Span, now: datetime) -> Lane:
    href = call.url(f"/schedules/{part(info.name)}")
    found = await call.ask(
        schedules.fires, path={"name": info.name}, query=FiresQuery(before=from_us(span.last + 1), limit=MOST_RUNS)
    )
    # Newest first: what is older than the picture need not be looked at, but a stretch may reach into it.
    fires = [fire for fire in found.items if to_us(fire.finished_at or now) >= span.first]
    pieces = pieces_of(call, fires, now)
    if found.next is not None and (oldest := to_us(found.items[-1].at)) > span.first:
        pieces.append(unseen(span.first, oldest, href))
    if info.state is ScheduleState.ACTIVE and span.last > span.now and info.next_at is not None:
        pieces += await _coming(call, info, href)
    drawn, hidden = bars(pieces, span)
    note = info.words if info.state is ScheduleState.ACTIVE else f"{info.state}: {info.words}"
    return Lane(name=info.name, href=href, note=note, bars=drawn, hidden=hidden)


async def _coming(call: Call, info: ScheduleInfo, href: str) -> list[Piece]:
    if info.cron is None and not info.grid and info.next_at is not None:
        return [of_moment(info.next_at, "", href)]  # those after it depend on how long runs take
    try:
        found = await call.ask(schedules.preview, query=PreviewQuery(name=info.name, count=MOST_COMING))
    except ConfigError:
        return []  # its stored rule cannot be read: it has no moments, and its note says why
    return [of_moment(each.at, each.note, href) for each in found.items]


async def _task_lanes(
    call: Call, view: View, span: Span, now: datetime, after: str | None
) -> tuple[list[Lane], str | None]:
    names = [info.name for info in (await call.ask(tasks.list_)).items]
    wanted = [name for name in names if view.q.lower() in name.lower() and (after is None or name > after)]
    lanes = [await _task_lane(call, name, span, now) for name in wanted[:LANES]]
    return lanes, wanted[LANES - 1] if len(wanted) > LANES else None


async def _task_lane(call: Call, name: str, span: Span, now: datetime) -> Lane:
    pieces = await _runs(call, span, now, Listed(task=name, limit=MOST_RUNS))
    drawn, hidden = bars(pieces, span)
    number = sum(bar.count for bar in drawn if bar.kind not in ("unseen", "waiting"))
    note = "no run in this range" if not number else "1 run" if number == 1 else f"{number:,} runs"
    if any(bar.kind == "unseen" for bar in drawn):
        note = f"the newest {number:,} runs" if number else "none among the newest jobs"
    return Lane(name=name, href=call.url(f"/tasks/{part(name)}"), note=note, bars=drawn, hidden=hidden)


async def _runs(call: Call, span: Span, now: datetime, wanted: Listed) -> list[Piece]:
    """Of jobs that may have run within the picture, every run: a job is made before it runs, usually not long before."""
    reach = timedelta(microseconds=span.length)
    query = msgspec.structs.replace(wanted, since=from_us(span.first) - reach, until=from_us(span.last))
    found: Page[JobRecord] = await call.ask(jobs.list_, query=query)
    pieces: list[Piece] = []
    store = await call.host.store()
    left = MOST_TRIED
    for job in found.items:
        href, runs = call.url(f"/jobs/{job.id}"), last_run(job)
        if left and _ran_before(job):
            runs, left = runs_of(job, await store.inspect.attempts(job.id)), left - 1
        pieces += [of_run(run, now, href) for run in runs]
        if job.state is JobState.PENDING:
            pieces.append(of_pending(job, href))
    # A page of a search may end before the picture does, also an empty one: up to there nobody has looked.
    if found.next is not None and (looked_until := created_us(JobId(found.next))) > span.first:
        until = min(looked_until, span.now)
        pieces.append(unseen(span.first, until, _list_of(call, wanted.task, span, until)))
    return pieces


def _ran_before(job: JobRecord) -> bool:
    """Whether there may be more runs than the one that its record tells of: it failed, crashed, was replayed or put off."""
    put_off = job.started_at is not None and (job.started_at - job.due_at).total_seconds() > 1
    return bool(job.failures or job.crashes or job.life or put_off)


def _list_of(call: Call, task: str | None, span: Span, until: int) -> str:
    return call.url("/jobs", task=task, since=iso(from_us(span.first)), until=iso(from_us(until)))
