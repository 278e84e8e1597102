"""Queues: their sizes and lag, pause and resume."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from drumbeat.web.api import instances, jobs, queues
from drumbeat.web.api.job_filters import JobListQuery
from drumbeat.web.api.records import JobRecord, Page
from drumbeat.web.problem import Problem
from drumbeat.web.request import DashboardRequest
from drumbeat.web.route import AccessRole

from .action_button import ActionButton, build_button
from .formatting import quote_segment
from .jobs import row_of as job_row
from .layout import is_any_region_requested, render_page
from .page_charts import CHART_REGIONS, RANGES, load_charts

OLD_LAG_SECONDS = 60.0
"""A longer lag is highlighted."""


MAX_NEWEST = 15


class QueuePageQuery(msgspec.Struct, frozen=True, kw_only=True):
    range: str = "15m"


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    queue: queues.QueueRecord
    is_old: bool
    weight: int | None
    """By the settings of this app; None: not named there."""
    toggle: ActionButton | None


async def show_all(request: DashboardRequest) -> Response:
    found: Page[queues.QueueRecord] = await request.invoke(queues.list_queues)
    rows = [row_of(request, queue) for queue in found.items]
    return await render_page(request, "queues.html", page="queues", title="Queues", rows=rows)


async def show_one(request: DashboardRequest) -> Response:
    query: QueuePageQuery = request.query
    if query.range not in RANGES:
        raise Problem(422, f"range must be one of {', '.join(RANGES)}", argument="range")
    queue: queues.QueueRecord = await request.invoke(queues.show, path_params=request.path_params)
    taken: Page[instances.InstanceRecord] = await request.invoke(
        instances.list_instances, query=instances.InstancesQuery()
    )
    newest: Page[JobRecord] = await request.invoke(
        jobs.list_jobs, query=JobListQuery(queue=queue.name, limit=MAX_NEWEST)
    )
    now = await request.store_time()
    return await render_page(
        request,
        "queue.html",
        page="queues",
        title=f"Queue {queue.name}",
        row=row_of(request, queue),
        takers=[one for one in taken.items if queue.name in one.queues],
        rows=[job_row(job) for job in newest.items],
        charts=await load_charts(request, query.range, now, queue=queue.name)
        if is_any_region_requested(request, *CHART_REGIONS)
        else None,
        ranges=RANGES,
        range=query.range,
    )


def row_of(request: DashboardRequest, queue: queues.QueueRecord) -> QueueView:
    weights = request.app.settings.queue_weights(request.app.registry.queues())
    return QueueView(
        queue=queue,
        is_old=queue.lag >= OLD_LAG_SECONDS and not queue.paused,
        weight=weights.get(queue.name),
        toggle=toggle_button(request, queue),
    )


def toggle_button(request: DashboardRequest, queue: queues.QueueRecord) -> ActionButton | None:
    """Pause or resume."""
    address = f"/api/v1/queues/{quote_segment(queue.name)}"
    if queue.paused:
        return build_button(
            request,
            AccessRole.OPERATOR,
            name="resume",
            label="Resume",
            url=f"{address}/resume",
            title=f"Resume {queue.name}?",
            text=f"Workers claim its jobs again; {queue.ready:,} are ready.",
            done=f"{queue.name} resumed",
        )
    return build_button(
        request,
        AccessRole.OPERATOR,
        name="pause",
        label="Pause",
        url=f"{address}/pause",
        title=f"Pause {queue.name}?",
        text=f"Workers do not claim its jobs until it is resumed. {queue.running:,} running jobs continue; "
        f"{queue.ready:,} ready jobs and new ones wait.",
        done=f"{queue.name} paused",
    )
