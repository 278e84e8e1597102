"""The line at the top of every page: is it healthy, who leads, how much room is there, how fast is the store."""

from __future__ import annotations

import msgspec

from drumbeat.ids import InstanceId
from drumbeat.model.instance import Role
from drumbeat.model.job import JobCounts
from drumbeat.web.api import instances, jobs
from drumbeat.web.api.filters import Chosen
from drumbeat.web.api.records import Page
from drumbeat.web.call import Call

SLOW_MS = 500.0
"""A store that takes longer for two small questions is worth a word."""


class Led(msgspec.Struct, frozen=True, kw_only=True):
    instance: InstanceId
    term: int


class Health(msgspec.Struct, frozen=True, kw_only=True):
    level: str
    """ok, warn or bad: the colour, and with `icon` the shape."""
    word: str
    leader: Led | None
    alive: int
    running: int
    slots: int
    counts: JobCounts
    store_ms: float

    @property
    def icon(self) -> str:
        return f"s-{self.level}"


async def health_of(call: Call) -> Health:
    asked = call.host.clock.monotonic()
    found: Page[instances.InstanceRecord] = await call.ask(instances.list_, query=instances.InstancesQuery())
    store_ms = (call.host.clock.monotonic() - asked) * 1_000
    counts: JobCounts = await call.ask(jobs.counts, query=Chosen())
    workers = [one for one in found.items if Role.WORKER in one.roles]
    leader = next((Led(instance=one.id, term=one.term) for one in found.items if one.term is not None), None)
    level, word = verdict(
        healthy=sum(one.healthy for one in workers),
        silent=sum(not one.healthy for one in workers),
        pending=counts.ready + counts.scheduled + counts.retrying + counts.waiting,
        has_leader=leader is not None,
        store_ms=store_ms,
    )
    return Health(
        level=level,
        word=word,
        leader=leader,
        alive=len(found.items),
        running=sum(one.running for one in found.items),
        slots=sum(one.concurrency for one in workers),
        counts=counts,
        store_ms=store_ms,
    )


def verdict(*, healthy: int, silent: int, pending: int, has_leader: bool, store_ms: float) -> tuple[str, str]:
    """One word for the whole, the worst first."""
    if not healthy and not silent:
        return ("bad", "No worker is alive") if pending else ("warn", "No worker yet")
    if not healthy:
        return "bad", "No worker's heart beats"
    if silent:
        return "warn", "A worker is silent" if silent == 1 else f"{silent} workers are silent"
    if store_ms > SLOW_MS:
        return "warn", "The store is slow"
    if not has_leader:
        return "warn", "No leader"
    return "ok", "Healthy"
