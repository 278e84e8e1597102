"""Queues: what waits in each, how old it is, and the key that stops it."""

from __future__ import annotations

import msgspec

from drumbeat.web.api import instances, jobs, queues
from drumbeat.web.api.filters import Listed
from drumbeat.web.api.records import JobRecord, Page, store_now
from drumbeat.web.call import Answer, Call, Role
from drumbeat.web.problem import Problem

from .acting import Act, act
from .charting import DRAWN, RANGES, charts_of
from .jobs import row_of as job_row
from .rendering import render, wants
from .showing import part

OLD_S = 60.0
"""From here on a lag is marked: a ready job that nobody took for a minute."""


NEWEST = 15


class QueueQuery(msgspec.Struct, frozen=True, kw_only=True):
    range: str = "15m"


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    queue: queues.QueueShown
    is_old: bool
    weight: int | None
    """By the settings of the program that this dashboard belongs to; None: they do not name it."""
    toggle: Act | None


async def show_all(call: Call) -> Answer:
    found: queues.QueueList = await call.ask(queues.list_queues)
    rows = [row_of(call, queue) for queue in found.items]
    return await render(call, "queues.html", page="queues", title="Queues", rows=rows)


async def show_one(call: Call) -> Answer:
    query: QueueQuery = call.query
    if query.range not in RANGES:
        raise Problem(422, f"range must be one of {', '.join(RANGES)}", argument="range")
    queue: queues.QueueShown = await call.ask(queues.show, path=call.path)
    taken: Page[instances.InstanceRecord] = await call.ask(instances.list_, query=instances.InstancesQuery())
    newest: Page[JobRecord] = await call.ask(jobs.list_, query=Listed(queue=queue.name, limit=NEWEST))
    now = await store_now(call.host)
    return await render(
        call,
        "queue.html",
        page="queues",
        title=f"Queue {queue.name}",
        row=row_of(call, queue),
        takers=[one for one in taken.items if queue.name in one.queues],
        rows=[job_row(job) for job in newest.items],
        charts=await charts_of(call, query.range, now, queue=queue.name) if wants(call, *DRAWN) else None,
        ranges=RANGES,
        range=query.range,
    )


def row_of(call: Call, queue: queues.QueueShown) -> QueueRow:
    weights = call.host.settings.weights(call.host.registry.queues())
    return QueueRow(
        queue=queue,
        is_old=queue.lag >= OLD_S and not queue.paused,
        weight=weights.get(queue.name),
        toggle=toggle(call, queue),
    )


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
