"""The line at the top of every page: is it healthy, who leads, how much room is there, how fast is the store.

What healthy means is decided by `nouns/health.py`; here it gets its links.
"""

from __future__ import annotations

import msgspec

from drumbeat.ids import InstanceId
from drumbeat.model.instance import Role
from drumbeat.model.job import JobCounts
from drumbeat.nouns.health import Health, HealthReason
from drumbeat.web.api import jobs
from drumbeat.web.api.filters import Chosen
from drumbeat.web.call import Call
from drumbeat.web.ticker import letters

from .showing import part

PLACES = {"task": "/tasks/", "queue": "/queues/", "schedule": "/schedules/", "instance": "/instances/"}
"""Where a reason with a name leads."""
LISTS = {"instances": "/instances", "store": "/system"}


class Led(msgspec.Struct, frozen=True, kw_only=True):
    instance: InstanceId
    term: int


class HealthLine(msgspec.Struct, frozen=True, kw_only=True):
    judged: Health
    leader: Led | None
    alive: int
    running: int
    slots: int
    counts: JobCounts
    dead: int
    """Dead letters: those that somebody has discarded are dead, too, and not among them."""
    store_ms: float

    @property
    def level(self) -> str:
        """ok, warn or bad: the colour, and with `icon` the shape."""
        return str(self.judged.level)

    @property
    def icon(self) -> str:
        return f"s-{self.level}"

    @property
    def text(self) -> str:
        return self.judged.text

    @property
    def more(self) -> int:
        """How many reasons there are besides the one that is told."""
        return max(0, len(self.judged.reasons) - 1)

    @property
    def detail(self) -> str:
        """Every reason in a line of its own, for whoever points at it."""
        return "\n".join(f"{one.text}: {one.detail}" if one.detail else one.text for one in self.judged.reasons)

    @property
    def path(self) -> str:
        """Where the reason that is told leads."""
        return path_of(self.judged.reasons[0]) if self.judged.reasons else "/"


def path_of(reason: HealthReason) -> str:
    return PLACES[reason.kind] + part(reason.name) if reason.name else LISTS[reason.kind]


async def health_of(call: Call) -> HealthLine:
    store = await call.host.store()
    look = await call.parts.health.look(store, heartbeat=call.host.settings.heartbeat)
    counts: JobCounts = await call.ask(jobs.counts, query=Chosen())
    signs = look.signs
    return HealthLine(
        judged=look.health,
        leader=None if signs.leader is None else Led(instance=signs.leader.instance, term=signs.leader.term),
        alive=len(signs.instances),
        running=sum(one.running for one in signs.instances),
        slots=sum(one.concurrency for one in signs.instances if Role.WORKER in one.roles),
        counts=counts,
        dead=await letters(store, counts),
        store_ms=signs.store_ms,
    )
