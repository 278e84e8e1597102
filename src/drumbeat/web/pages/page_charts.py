"""The charts of a page: statistics of the API, laid out by `charts.py`, with links to jobs."""

from __future__ import annotations

import functools
from datetime import datetime

import msgspec

from drumbeat.durations import from_us, to_us
from drumbeat.web.api import stats
from drumbeat.web.request import DashboardRequest

from . import charts
from .charts import RANGES, Chart, SlotLink
from .formatting import iso

__all__ = ["CHART_REGIONS", "RANGES", "Charts", "load_charts"]

CHART_REGIONS = ("throughput", "wait", "run")
"""The regions that charts are in."""


class Charts(msgspec.Struct, frozen=True, kw_only=True):
    throughput: Chart
    wait: Chart
    run: Chart


async def load_charts(
    request: DashboardRequest, range: str, now: datetime, *, queue: str | None = None, task: str | None = None
) -> Charts:
    """The three charts of everything, or of one queue or task."""
    over = RANGES[range]
    since = from_us(over.first(to_us(now)))
    wanted = stats.StatsQuery(resolution=over.resolution, since=since, until=now, queue=queue, task=task)
    rollups = (await request.invoke(stats.read_stats, query=wanted)).items
    link = link_of(request, queue=queue, task=task)
    return Charts(
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
