"""Queues: what waits in each, how old it is, and the key that stops it."""

from __future__ import annotations

import msgspec

from drumbeat.web.api import queues
from drumbeat.web.call import Answer, Call, Role

from .acting import Act, act
from .rendering import render
from .showing import part

OLD_S = 60.0
"""From here on a lag is marked: a ready job that nobody took for a minute."""


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    queue: queues.QueueShown
    is_old: bool
    toggle: Act | None


async def show_all(call: Call) -> Answer:
    found: queues.QueueList = await call.ask(queues.list_queues)
    rows = [row_of(call, queue) for queue in found.items]
    return await render(call, "queues.html", page="queues", title="Queues", rows=rows)


def row_of(call: Call, queue: queues.QueueShown) -> QueueRow:
    return QueueRow(queue=queue, is_old=queue.lag >= OLD_S and not queue.paused, toggle=toggle(call, queue))


def toggle(call: Call, queue: queues.QueueShown) -> Act | None:
    """Pause, or resume: whichever is possible."""
    address = f"/api/v1/queues/{part(queue.name)}"
    if queue.paused:
        return act(
            call,
            Role.OPERATOR,
            name="resume",
            label="Resume",
            url=f"{address}/resume",
            title=f"Resume {queue.name}?",
            text=f"Workers take its jobs again, {queue.ready:,} of them at once.",
            done=f"{queue.name} goes on",
        )
    return act(
        call,
        Role.OPERATOR,
        name="pause",
        label="Pause",
        url=f"{address}/pause",
        title=f"Pause {queue.name}?",
        text=f"No worker takes a job of it until somebody resumes it. {queue.running:,} running go on to their end; "
        f"{queue.ready:,} ready and all that come wait.",
        done=f"{queue.name} is paused",
    )
