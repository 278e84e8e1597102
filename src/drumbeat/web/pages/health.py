"""The line at the top of every page: is it healthy, who leads, how much room is there, how fast is the store."""

from __future__ import annotations

import msgspec

from drumbeat.model.instance import InstanceState, LeaderInfo, Role
from drumbeat.web.api import status
from drumbeat.web.call import Call

SLOW_MS = 250.0
"""A store that takes longer for a few small reads is worth a word."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    level: str
    """ok, warn or bad: the colour, and with `icon` the shape."""
    word: str
    leader: LeaderInfo | None
    alive: int
    running: int
    slots: int
    dead: int
    store_ms: float

    @property
    def icon(self) -> str:
        return f"s-{self.level}"


async def health_of(call: Call) -> Health:
    asked = call.host.clock.monotonic()
    now: status.StatusNow = await call.ask(status.show)
    store_ms = (call.host.clock.monotonic() - asked) * 1_000
    living = [one for one in now.instances if one.state is InstanceState.ALIVE]
    workers = [one for one in living if Role.WORKER in one.roles]
    level, word = verdict(workers=len(workers), pending=now.pending, leader=True, store_ms=store_ms)
    return Health(
        level=level,
        word=word,
        leader=None,
        alive=len(living),
        running=now.running,
        slots=sum(one.concurrency for one in workers),
        dead=now.dead,
        store_ms=store_ms,
    )


def verdict(*, workers: int, pending: int, leader: bool, store_ms: float) -> tuple[str, str]:
    """One word for the whole, the worst first."""
    if not workers:
        return ("bad", "No worker is alive") if pending else ("warn", "No worker yet")
    if store_ms > SLOW_MS:
        return "warn", "The store is slow"
    if not leader:
        return "warn", "No leader"
    return "ok", "Healthy"
