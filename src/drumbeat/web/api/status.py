"""/api/v1/status: the whole cluster in one record."""

from __future__ import annotations

from datetime import datetime

import msgspec

from drumbeat.durations import from_us
from drumbeat.model.instance import Instance
from drumbeat.store.urls import masked
from drumbeat.web.call import Call


class StatusNow(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    """By the store's clock."""
    store: str
    """Its URL, without a password."""
    instances: list[Instance]
    pending: int
    running: int
    succeeded: int
    dead: int
    cancelled: int


async def show(call: Call) -> StatusNow:
    """Who is there, and how many jobs are in which state."""
    store = await call.host.store()
    tasks = await store.inspect.tasks()
    return StatusNow(
        at=from_us(await store.inspect.now()),
        store=masked(store.url),
        instances=await call.host.instances.list(),
        pending=sum(task.pending for task in tasks),
        running=sum(task.running for task in tasks),
        succeeded=sum(task.succeeded for task in tasks),
        dead=sum(task.dead for task in tasks),
        cancelled=sum(task.cancelled for task in tasks),
    )
