"""`/api/v1/queues`: queues, pause and resume."""

from __future__ import annotations

import msgspec

from drumbeat.admin.queues import add_lag
from drumbeat.core.job_query import QueueInfo
from drumbeat.durations import to_us
from drumbeat.web.api.records import Page, WriteResult
from drumbeat.web.problem import Problem
from drumbeat.web.request import DashboardRequest
from drumbeat.web.route import ReasonBody


class QueueRecord(QueueInfo, frozen=True, kw_only=True):
    """A queue and its lag."""


async def list_queues(request: DashboardRequest) -> Page[QueueRecord]:
    """All queues, by name."""
    now = to_us(await request.store_time())
    found = [add_lag(stats, now) for stats in await request.app.queues.list_stats()]
    return Page(items=[QueueRecord(**msgspec.structs.asdict(queue)) for queue in found])


async def show(request: DashboardRequest, name: str) -> QueueRecord:
    """One queue."""
    for queue in (await list_queues(request)).items:
        if queue.name == name:
            return queue
    raise Problem(404, "no such queue", argument="name", type="queue-not-found")


async def pause(request: DashboardRequest, name: str, body: ReasonBody) -> WriteResult:
    """Stop workers from claiming jobs of this queue."""
    await show(request, name)
    await request.app.queues.pause(name, reason=body.reason, by=request.caller.name)
    return WriteResult(touched=1)


async def resume(request: DashboardRequest, name: str) -> WriteResult:
    """Resume a paused queue."""
    await show(request, name)
    return WriteResult(touched=int(await request.app.queues.resume(name)))
