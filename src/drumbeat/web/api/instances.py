"""`/api/v1/instances`: processes of the cluster."""

from __future__ import annotations

from typing import Annotated

import msgspec

from drumbeat.core.instance import Instance, is_healthy
from drumbeat.durations import from_us, to_us
from drumbeat.web.api.records import Page
from drumbeat.web.fields import doc
from drumbeat.web.request import DashboardRequest, refuse_with


class InstancesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which instances, oldest first."""

    all: Annotated[bool, doc("Include those that left or died in the last day.")] = False


class InstanceRecord(Instance, frozen=True, kw_only=True):
    """One process of the cluster."""

    healthy: Annotated[bool, doc("Its last heartbeat was within 2 s, or within two heartbeat intervals.")]
    seconds_since_heartbeat: Annotated[float, doc("By the store's clock.")]
    term: Annotated[int | None, doc("Its term if it is the leader.")]


async def list_instances(request: DashboardRequest, query: InstancesQuery) -> Page[InstanceRecord]:
    return Page(items=await _records(request, await request.app.instances.list(all=query.all)))


async def show(request: DashboardRequest, id: str) -> InstanceRecord:
    [record] = await _records(request, [await refuse_with(404, request.app.instances.show(id))])
    return record


async def _records(request: DashboardRequest, instances: list[Instance]) -> list[InstanceRecord]:
    store = await request.app.store()
    now, leader = to_us(await request.store_time()), await store.inspect.get_leader()
    heartbeat = request.app.settings.heartbeat
    return [
        InstanceRecord(
            **{name: getattr(each, name) for name in Instance.__struct_fields__},
            healthy=is_healthy(each, now, heartbeat),
            seconds_since_heartbeat=max(0.0, (from_us(now) - each.beat_at).total_seconds()),
            term=leader.term if leader is not None and leader.instance == each.id else None,
        )
        for each in instances
    ]
