"""`/api/v1/status`: the whole cluster in one record."""

from __future__ import annotations

from datetime import datetime

import msgspec

from drumbeat.durations import from_us
from drumbeat.model.instance import Instance, LeaderInfo
from drumbeat.model.job import JobCounts, JobFilter
from drumbeat.model.stats import Grain
from drumbeat.nouns.health import Health
from drumbeat.redaction import mask_url
from drumbeat.store.protocol import Store
from drumbeat.web.call import Call

DAY_US = 86_400_000_000
KEPT = 10.0
"""So many seconds the count of a day is used again: instances write theirs every 10 s anyway."""


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """What ended in the last 24 hours, as the instances counted it."""

    started: int
    """Runs."""
    completed: int
    """Jobs that succeeded."""
    failed: int
    """Runs that failed, whether they were tried again or not."""
    dead: int
    """Jobs that became dead letters."""
    cancelled: int
    crashed: int


class StatusNow(msgspec.Struct, frozen=True, kw_only=True):
    """Who is there, how many jobs are in which state, and what the last day brought."""

    at: datetime
    """By the store's clock."""
    health: Health
    """Whether the cluster does its work, and what speaks against it."""
    store: str
    """Its URL, without a password."""
    instances: list[Instance]
    """Those that live, oldest first."""
    leader: LeaderInfo | None
    slots: int
    """How many jobs the living can run at the same time."""
    counts: JobCounts
    pending: int
    running: int
    succeeded: int
    """As far as history goes back; so are dead and cancelled."""
    dead: int
    cancelled: int
    day: Day


async def show(call: Call) -> StatusNow:
    store = await call.host.store()
    look = await call.parts.health.look(store, heartbeat=call.host.settings.heartbeat)
    now, instances = look.signs.now, list(look.signs.instances)
    counts = await store.inspect.counts(JobFilter())
    return StatusNow(
        at=from_us(now),
        health=look.health,
        store=mask_url(store.url),
        instances=instances,
        leader=look.signs.leader,
        slots=sum(each.concurrency for each in instances if "worker" in each.roles),
        counts=counts,
        pending=counts.ready + counts.scheduled + counts.retrying + counts.waiting,
        running=counts.running,
        succeeded=counts.succeeded,
        dead=counts.dead,
        cancelled=counts.cancelled,
        day=await _day(call, store, now),
    )


async def _day(call: Call, store: Store, now: int) -> Day:
    """A day has 1,440 stretches for each queue and task: they are not added up for everybody who looks."""
    asked = call.host.clock.monotonic()
    kept = call.parts.kept.get(Day)
    if kept is not None and asked - kept[0] < KEPT:
        found: Day = kept[1]
        return found
    rollups = await store.stats.read(Grain.MINUTE, now - DAY_US, now + Grain.MINUTE)
    day = Day(
        started=sum(each.started for each in rollups),
        completed=sum(each.succeeded for each in rollups),
        failed=sum(each.failed for each in rollups),
        dead=sum(each.dead for each in rollups),
        cancelled=sum(each.cancelled for each in rollups),
        crashed=sum(each.crashed for each in rollups),
    )
    call.parts.kept[Day] = (asked, day)
    return day
