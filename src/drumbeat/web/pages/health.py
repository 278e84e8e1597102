"""The health line at the top of every page: verdict, leader, slots, latency of the store.

`admin/health_rules.py` decides the verdict, and says which page shows each reason.
"""

from __future__ import annotations

import msgspec

from drumbeat.admin.health_rules import Health
from drumbeat.core.instance import LeaderInfo
from drumbeat.core.job_query import JobCounts
from drumbeat.web.api import jobs
from drumbeat.web.api.job_filters import JobCountsQuery
from drumbeat.web.request import DashboardRequest
from drumbeat.web.ticker import InstancesTick, count_dead_letters, sum_instances


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Health
    leader: LeaderInfo | None
    instances: InstancesTick
    counts: JobCounts
    dead: int
    """Dead letters, without discarded ones."""
    store_ms: float

    @property
    def level(self) -> str:
        """ok, warn or bad: the CSS class."""
        return str(self.verdict.level)

    @property
    def icon(self) -> str:
        return f"s-{self.level}"

    @property
    def text(self) -> str:
        return self.verdict.text

    @property
    def more(self) -> int:
        """Number of further reasons."""
        return max(0, len(self.verdict.reasons) - 1)

    @property
    def detail(self) -> str:
        """All reasons, one on a line, for the title."""
        return "\n".join(f"{one.text}: {one.detail}" if one.detail else one.text for one in self.verdict.reasons)

    @property
    def path(self) -> str:
        """The page of the first reason."""
        return self.verdict.reasons[0].page if self.verdict.reasons else "/"


async def load_health(request: DashboardRequest) -> HealthView:
    """Read once per request: the overview and the layout show the same."""
    return await request.load_once("health", lambda: _load_health(request))


async def _load_health(request: DashboardRequest) -> HealthView:
    store = await request.app.store()
    look = await request.dashboard.health.check(store, heartbeat=request.app.settings.heartbeat)
    counts = await jobs.count_jobs(request, JobCountsQuery())
    signs = look.snapshot
    return HealthView(
        verdict=look.health,
        leader=signs.leader,
        instances=sum_instances(signs.instances),
        counts=counts,
        dead=await count_dead_letters(store, counts),
        store_ms=signs.store_ms,
    )
