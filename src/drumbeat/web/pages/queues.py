"""Queues: their sizes and lag, pause and resume."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from drumbeat.web.api import instances, jobs, limits, queues
from drumbeat.web.api.job_filters import JobListQuery
from drumbeat.web.request import DashboardRequest

from .action_button import ActionButton, build_button
from .jobs import row_of as job_row
from .layout import render_page
from .limits import line_view
from .page_charts import ChartsQuery, load_charts_of_page

OLD_LAG_SECONDS = 60.0
"""A longer lag is highlighted."""
MAX_NEWEST = 15


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    queue: queues.QueueRecord
    is_old: bool
    weight: int | None
    """By the settings of this app; None: not named there."""
    toggle: ActionButton | None


async def show_all(request: DashboardRequest) -> Response:
    rows = [row_of(request, queue) for queue in (await queues.list_queues(request)).items]
    return await render_page(request, "queues.html", page="queues", title="Queues", rows=rows)


async def show_one(request: DashboardRequest, name: str, query: ChartsQuery) -> Response:
    queue = await queues.show(request, name)
    charts = await load_charts_of_page(request, query, queue=name)
    taken = await instances.list_instances(request, instances.InstancesQuery())
    lines = await limits.list_lines(request, limits.LinesQuery(queue=name))
    newest = await jobs.list_jobs(request, JobListQuery(queue=name, limit=MAX_NEWEST))
    return await render_page(
        request,
        "queue.html",
        page="queues",
        title=f"Queue {name}",
        row=row_of(request, queue),
        lines=[line_view(request, line) for line in lines.items],
        takers=[one for one in taken.items if name in one.queues],
        rows=[job_row(job) for job in newest.items],
        **charts,
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
    if queue.paused:
        return build_button(
            request,
            queues.resume,
            "Resume",
            f"Resume {queue.name}?",
            of=queue.name,
            text=f"Workers claim its jobs again; {queue.ready:,} are ready.",
            done=f"{queue.name} resumed",
        )
    return build_button(
        request,
        queues.pause,
        "Pause",
        f"Pause {queue.name}?",
        of=queue.name,
        text=f"Workers do not claim its jobs until it is resumed. {queue.running:,} running jobs continue; "
        f"{queue.ready:,} ready jobs and new ones wait.",
        done=f"{queue.name} paused",
    )
