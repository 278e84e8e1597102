"""`/api/v1/status`: the whole cluster in one record."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from drumbeat.admin.health_rules import Health
from drumbeat.core.instance import Instance, LeaderInfo
from drumbeat.core.job_query import JobCounts, JobFilter
from drumbeat.core.stats import Resolution
from drumbeat.durations import from_us
from drumbeat.redaction import mask_url
from drumbeat.store.protocol import Store
from drumbeat.web.fields import doc
from drumbeat.web.request import DashboardRequest
from drumbeat.web.ticker import sum_instances

DAY_US = 86_400_000_000
CACHE_SECONDS = 10.0
"""How long the totals of a day are cached: instances write theirs every 10 s."""


class DayTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of the last 24 hours."""

    started: Annotated[int, doc("Runs.")]
    completed: Annotated[int, doc("Jobs that succeeded.")]
    failed: Annotated[int, doc("Runs that failed, retried or not.")]
    dead: Annotated[int, doc("Jobs that became dead letters.")]
    cancelled: int
    crashed: int


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Instances, jobs by state, and totals of the last day."""

    at: Annotated[datetime, doc("By the store's clock.")]
    health: Annotated[Health, doc("Whether the cluster is healthy, and the reasons if not.")]
    store: Annotated[str, doc("Its URL, without a password.")]
    instances: Annotated[list[Instance], doc("Live instances, oldest first.")]
    leader: LeaderInfo | None
    slots: Annotated[int, doc("Jobs that live instances can run at once.")]
    counts: JobCounts
    pending: int
    running: int
    succeeded: Annotated[int, doc("As far as history goes back, as are dead and cancelled.")]
    dead: int
    cancelled: int
    day: DayTotals


async def show(request: DashboardRequest) -> ClusterStatus:
    store = await request.app.store()
    look = await request.dashboard.health.check(store, heartbeat=request.app.settings.heartbeat)
    now, instances = look.snapshot.now, list(look.snapshot.instances)
    counts = await store.inspect.count_jobs(JobFilter())
    return ClusterStatus(
        at=from_us(now),
        health=look.health,
        store=mask_url(store.url),
        instances=instances,
        leader=look.snapshot.leader,
        slots=sum_instances(instances).slots,
        counts=counts,
        pending=counts.ready + counts.scheduled + counts.retrying + counts.waiting,
        running=counts.running,
        succeeded=counts.succeeded,
        dead=counts.dead,
        cancelled=counts.cancelled,
        day=await _load_day_totals(request, store, now),
    )


async def _load_day_totals(request: DashboardRequest, store: Store, now: int) -> DayTotals:
    """Cached: a day has 1,440 intervals for each queue and task."""
    asked = request.app.clock.monotonic()
    kept = request.dashboard.cache.get(DayTotals)
    if kept is not None and asked - kept[0] < CACHE_SECONDS:
        found: DayTotals = kept[1]
        return found
    rollups = await store.stats.read(Resolution.MINUTE, now - DAY_US, now + Resolution.MINUTE)
    day = DayTotals(
        started=sum(each.started for each in rollups),
        completed=sum(each.succeeded for each in rollups),
        failed=sum(each.failed for each in rollups),
        dead=sum(each.dead for each in rollups),
        cancelled=sum(each.cancelled for each in rollups),
        crashed=sum(each.crashed for each in rollups),
    )
    request.dashboard.cache[DayTotals] = (asked, day)
    return day
