"""GET /metrics: the state of the store in the format of Prometheus."""

from __future__ import annotations

from starlette.responses import Response

from drumbeat.core.job_query import JobFilter
from drumbeat.core.stats import Resolution
from drumbeat.web.metrics import CONTENT_TYPE, MetricsSample, render
from drumbeat.web.request import DashboardRequest
from drumbeat.web.ticker import count_dead_letters

MAX_GROUPS = 20


async def scrape(request: DashboardRequest) -> Response:
    """The metrics of the whole cluster: every dashboard of one store returns the same, so scrape one."""
    store = await request.app.store()
    counts = await store.inspect.count_jobs(JobFilter())
    sample = MetricsSample(
        now=await store.inspect.now(),
        totals=await store.stats.read(Resolution.TOTAL, 0, 1),
        queues=await request.app.queues.list_stats(),
        instances=await store.inspect.list_instances(),
        counts=counts,
        waits=await store.inspect.count_waits(),
        dead=await count_dead_letters(store, counts),
        leader=await store.inspect.get_leader(),
        groups=await store.limits.busiest_groups(MAX_GROUPS),
    )
    return Response(render(sample), media_type=CONTENT_TYPE)
