"""The charts of a page: statistics of the API, laid out by `charts.py`, with links to jobs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from drumbeat.core.stats import Rollup
from drumbeat.durations import from_us, to_us
from drumbeat.web.api import stats
from drumbeat.web.problem import Problem
from drumbeat.web.request import DashboardRequest

from . import charts
from .charts import RANGES, Chart, ChartRange, SlotLink
from .formatting import iso
from .layout import is_any_region_requested

CHART_REGIONS = ("throughput", "wait", "run")
"""The regions that charts are in."""


class ChartsQuery(msgspec.Struct, frozen=True, kw_only=True):
    range: str = "15m"


class Charts(msgspec.Struct, frozen=True, kw_only=True):
    throughput: Chart
    wait: Chart
    run: Chart
    rollups: Sequence[Rollup]
    """What they are made of."""


async def load_charts_of_page(
    request: DashboardRequest, query: ChartsQuery, *, queue: str | None = None
) -> dict[str, Any]:
    """The charts as variables of a template, without charts for a refresh of other regions."""
    if query.range not in RANGES:
        raise Problem(422, f"range must be one of {', '.join(RANGES)}", argument="range")
    is_needed = is_any_region_requested(request, *CHART_REGIONS)
    loaded = await load_charts(request, query.range, queue=queue) if is_needed else None
    return {"charts": loaded, "ranges": RANGES, "range": query.range}


async def load_charts(
    request: DashboardRequest, range: str, *, queue: str | None = None, task: str | None = None
) -> Charts:
    """The three charts of everything, or of one queue or task."""
    return await load_charts_until(request, RANGES[range], await request.store_time(), queue=queue, task=task)


async def load_charts_until(
    request: DashboardRequest, over: ChartRange, now: datetime, *, queue: str | None = None, task: str | None = None
) -> Charts:
    """The same, of a range whose last slot contains `now`."""
    since = from_us(over.first(to_us(now)))
    wanted = stats.StatsQuery(resolution=over.resolution, since=since, until=now, queue=queue, task=task)
    rollups = (await stats.read_stats(request, wanted)).items
    link = link_of(request, queue=queue, task=task)
    return Charts(
        rollups=rollups,
        throughput=charts.throughput(rollups, over, now, link),
        wait=charts.latency("wait", rollups, over, now, link),
        run=charts.latency("run", rollups, over, now, link),
    )


def link_of(request: DashboardRequest, *, queue: str | None, task: str | None) -> SlotLink:
    def link(at: int, until: int, state: str | None) -> str:
        return request.link_to(
            "/jobs", state=state, queue=queue, task=task, ended_since=iso(from_us(at)), ended_until=iso(from_us(until))
        )

    return functools.cache(link)  # three charts share the slots
