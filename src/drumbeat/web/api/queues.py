"""/api/v1/queues: the named lines that jobs stand in."""

from __future__ import annotations

import msgspec

from drumbeat.model.job import QueueStats
from drumbeat.web.api.records import Done, Why
from drumbeat.web.call import Call
from drumbeat.web.metrics import lag
from drumbeat.web.problem import Problem

__all__ = ["Done", "QueueList", "QueueShown", "Why", "list_queues", "pause", "resume", "show"]


class QueueShown(QueueStats, frozen=True, kw_only=True):
    """A queue, and how long its oldest ready job has been waiting."""

    lag: float
    """Seconds."""


class QueueList(msgspec.Struct, frozen=True, kw_only=True):
    items: list[QueueShown]
    next: str | None = None
    """There is only one page."""


async def list_queues(call: Call) -> QueueList:
    """All queues, by name."""
    store = await call.host.store()
    now = await store.inspect.now()
    found = await call.host.queues.list()
    return QueueList(items=[QueueShown(**msgspec.structs.asdict(queue), lag=lag(queue, now)) for queue in found])


async def show(call: Call) -> QueueShown:
    """One queue."""
    for queue in (await list_queues(call)).items:
        if queue.name == call.path["name"]:
            return queue
    raise Problem(404, "there is no such queue", argument="name", type="queue-not-found")


async def pause(call: Call) -> Done:
    """Let no worker take a job of this queue from now on."""
    await show(call)
    await call.host.queues.pause(call.path["name"], why=call.body.why, by=call.caller.name)
    return Done(touched=1)


async def resume(call: Call) -> Done:
    """Undo a pause."""
    await show(call)
    call.touched = int(await call.host.queues.resume(call.path["name"]))
    return Done(touched=call.touched)
