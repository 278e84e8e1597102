"""`/api/v1/stats`: counters by interval, for charts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from drumbeat.admin.stats import RESOLUTIONS
from drumbeat.core.stats import BOUNDS_US, Resolution, Rollup
from drumbeat.core.weeks import TaskWeeks, compare_weeks, weeks_begin
from drumbeat.durations import from_us, to_us
from drumbeat.errors import InvalidArguments
from drumbeat.names import check_name
from drumbeat.web.api.records import Page
from drumbeat.web.fields import doc
from drumbeat.web.request import DashboardRequest

DEFAULT_INTERVALS, MAX_INTERVALS = 60, 2_000
WEEKS_CACHE_SECONDS = 60.0


class StatsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which intervals."""

    resolution: Annotated[
        Literal["10s", "1m", "1h"], doc("10s: kept for 2 hours; 1m: as long as history; 1h: for 15 days.")
    ] = "1m"
    since: Annotated[
        datetime | None,
        doc("With offset. Default: 60 intervals before `until`. At most 2,000 intervals are returned."),
    ] = None
    until: Annotated[datetime | None, doc("Default: now, by the store's clock.")] = None
    queue: Annotated[str | None, doc("Only of this queue.")] = None
    task: Annotated[str | None, doc("Only of this task.")] = None


class StatsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of each interval, queue and task. Intervals without events are left out."""

    resolution: str
    since: datetime
    until: datetime
    bounds_us: Annotated[
        tuple[int, ...],
        doc("Upper bounds of the buckets of `wait` and `run`, in microseconds; the last bucket has none."),
    ]
    items: Annotated[
        list[Rollup],
        doc("By time, queue and task; `at` is the beginning of the interval in microseconds since 1970 UTC."),
    ]


class WeeksQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks."""

    task: Annotated[str | None, doc("Only this task.")] = None


async def read_weeks(request: DashboardRequest, query: WeeksQuery) -> Page[TaskWeeks]:
    """Of all tasks it is cached for a minute: it is read from two weeks of counts."""
    if query.task is not None:
        return Page(items=await _load_weeks(request, check_name("task", query.task)))
    asked = request.app.clock.monotonic()
    kept = request.dashboard.cache.get(TaskWeeks)
    if kept is None or asked - kept[0] >= WEEKS_CACHE_SECONDS:
        kept = (asked, await _load_weeks(request, None))
        request.dashboard.cache[TaskWeeks] = kept
    return Page(items=kept[1])


async def _load_weeks(request: DashboardRequest, task: str | None) -> list[TaskWeeks]:
    """As `app.stats.weeks`, at the time of the request."""
    store, now = await request.app.store(), to_us(await request.store_time())
    hours = await store.stats.read(Resolution.HOUR, weeks_begin(now), now + Resolution.HOUR, task=task)
    return compare_weeks(now, hours)


async def read_stats(request: DashboardRequest, query: StatsQuery) -> StatsRecord:
    resolution = RESOLUTIONS[query.resolution]
    store = await request.app.store()
    until = to_us(query.until or await request.store_time(), name="until")
    since = until - DEFAULT_INTERVALS * resolution if query.since is None else to_us(query.since, name="since")
    if since > until:
        raise InvalidArguments("since must not be after until", "since")
    since = max(0, since, until - MAX_INTERVALS * resolution)
    queue = None if query.queue is None else check_name("queue", query.queue)
    task = None if query.task is None else check_name("task", query.task)
    items = await store.stats.read(resolution, since, max(since, until), queue=queue, task=task)
    return StatsRecord(
        resolution=query.resolution,
        since=from_us(since),
        until=from_us(max(since, until)),
        bounds_us=BOUNDS_US,
        items=items,
    )
