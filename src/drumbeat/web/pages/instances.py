"""Instances: live ones with their leader and load, and former ones."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from drumbeat.core.instance import InstanceState
from drumbeat.web.api import instances, jobs
from drumbeat.web.api.instances import InstanceRecord, InstancesQuery
from drumbeat.web.api.job_filters import JobListQuery
from drumbeat.web.request import DashboardRequest
from drumbeat.web.ticker import sum_instances

from .layout import render_page

SHOWN_JOBS = 25
SILENT_SECONDS = 2.0
"""Seconds without a heartbeat after which an instance is shown as silent; after ten it is dead."""


class InstanceView(msgspec.Struct, frozen=True, kw_only=True):
    """An instance as its row shows it."""

    record: InstanceRecord
    word: str
    """alive, silent, left or dead."""
    filled: float
    """Share of its slots that are in use, 0 to 1."""

    @property
    def id(self) -> str:
        return self.record.id


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Live instances, the leader first, then by age; and former ones, latest first."""

    living: tuple[InstanceView, ...]
    gone: tuple[InstanceView, ...]
    slots: int
    running: int

    @property
    def leader(self) -> InstanceView | None:
        return next((row for row in self.living if row.record.term is not None), None)

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(sorted({row.record.version or "without a version" for row in self.living}))


def row_of(record: InstanceRecord) -> InstanceView:
    alive = record.state is InstanceState.ALIVE
    word = "silent" if alive and record.seconds_since_heartbeat > SILENT_SECONDS else str(record.state)
    filled = min(1.0, record.running / record.concurrency) if record.concurrency else 0.0
    return InstanceView(record=record, word=word, filled=filled)


def fleet_of(records: list[InstanceRecord]) -> Fleet:
    rows = [row_of(record) for record in records]
    living = [row for row in rows if row.record.state is InstanceState.ALIVE]
    gone = [row for row in rows if row.record.state is not InstanceState.ALIVE]
    total = sum_instances([row.record for row in living])
    return Fleet(
        living=tuple(sorted(living, key=lambda row: (row.record.term is None, row.record.started_at))),
        gone=tuple(sorted(gone, key=lambda row: row.record.ended_at or row.record.beat_at, reverse=True)),
        slots=total.slots,
        running=total.running,
    )


async def index(request: DashboardRequest) -> Response:
    """GET /instances."""
    found = await instances.list_instances(request, InstancesQuery(all=True))
    return await render_page(
        request, "instances.html", page="instances", title="Instances", fleet=fleet_of(found.items)
    )


async def show(request: DashboardRequest, id: str) -> Response:
    """GET /instances/{id}."""
    row = row_of(await instances.show(request, id))
    running = await jobs.list_jobs(request, JobListQuery(instance=id, state="running", limit=SHOWN_JOBS))
    ended = await jobs.list_jobs(request, JobListQuery(instance=id, limit=SHOWN_JOBS * 2))
    return await render_page(
        request,
        "instance.html",
        page="instances",
        title=f"Instance {id[:8]}",
        row=row,
        running=running.items,
        ended=[job for job in ended.items if job.state != "running"][:SHOWN_JOBS],
        is_all=ended.next is None,
    )
