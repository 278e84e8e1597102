"""Overview: is it healthy, what is late, what just broke; then how it went in the last minutes, and what comes next."""

from __future__ import annotations

from datetime import datetime

import msgspec

from drumbeat.model.death import DeadGroup
from drumbeat.nouns import ScheduleInfo
from drumbeat.web.api import dead, queues, schedules
from drumbeat.web.api.records import Page, store_now
from drumbeat.web.call import Answer, Call
from drumbeat.web.problem import Problem

from .charting import DRAWN, RANGES, charts_of
from .health import HealthLine, health_of, path_of
from .panels import panels_for
from .rendering import render, wants
from .showing import count, part, span

LATE_S = 5.0
"""A schedule whose moment passed so long ago without a fire is late."""
GROUPS = 6
FIRES = 8
COUNTERS = ("ready", "running", "scheduled", "retrying", "waiting", "succeeded", "dead", "cancelled")


class OverviewQuery(msgspec.Struct, frozen=True, kw_only=True):
    range: str = "15m"


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody should look at."""

    level: str
    text: str
    more: str
    path: str


async def show(call: Call) -> Answer:
    query: OverviewQuery = call.query
    if query.range not in RANGES:
        raise Problem(422, f"range must be one of {', '.join(RANGES)}", argument="range")
    now = await store_now(call.host)
    health = await health_of(call)
    lines: queues.QueueList = await call.ask(queues.list_queues)
    groups: Page[DeadGroup] = await call.ask(dead.groups, query=dead.GroupsQuery(limit=GROUPS))
    plans: Page[ScheduleInfo] = await call.ask(schedules.list_, query=schedules.SchedulesQuery(limit=500))
    coming = sorted((plan for plan in plans.items if plan.next_at), key=lambda plan: plan.next_at or now)
    return await render(
        call,
        "overview.html",
        page="overview",
        title="Overview",
        health=health,
        counters=[(word, getattr(health.counts, word)) for word in COUNTERS],
        needs=needs_of(health, lines.items, groups.items, plans.items, now),
        charts=await charts_of(call, query.range, now) if wants(call, *DRAWN) else None,
        ranges=RANGES,
        range=query.range,
        groups=groups.items,
        coming=coming[:FIRES],
        queues=lines.items,
        panels=panels_for(call),
    )


def needs_of(
    health: HealthLine,
    lines: list[queues.QueueShown],
    groups: list[DeadGroup],
    plans: list[ScheduleInfo],
    now: datetime,
) -> list[Need]:
    """What is wrong first, then what may be."""
    found: list[Need] = []
    told = {(reason.kind, reason.name) for reason in health.judged.reasons}
    found += [
        Need(level=str(reason.level), text=reason.text, more=reason.detail, path=path_of(reason))
        for reason in health.judged.reasons
    ]
    found += [need for line in lines if (need := _of_queue(line)) is not None]
    # Health names the latest schedule only; here are all that are late.
    found += [
        need for plan in plans if ("schedule", plan.name) not in told and (need := _of_schedule(plan, now)) is not None
    ]
    found += _of_dead(health.dead, groups)
    if health.counts.waiting:
        text = f"{count(health.counts.waiting)} jobs wait for something other than time"
        more = "a task or a version that no worker has, or the run before"
        found.append(Need(level="note", text=text, more=more, path="/jobs?state=waiting"))
    return sorted(found, key=lambda need: ("bad", "warn", "note").index(need.level))


def _of_queue(line: queues.QueueShown) -> Need | None:
    """A pause is somebody's will and no illness, but worth a line. A queue that is behind is told by health."""
    path = f"/queues/{part(line.name)}"
    if line.paused:
        why = f": {line.paused_why}" if line.paused_why else ""
        text = f"Queue {line.name} is paused"
        more = f"by {line.paused_by}{why}; {count(line.ready)} ready"
        return Need(level="warn" if line.ready else "note", text=text, more=more, path=path)
    return None


def _of_schedule(plan: ScheduleInfo, now: datetime) -> Need | None:
    if plan.next_at is None or (late := (now - plan.next_at).total_seconds()) < LATE_S:
        return None
    path = f"/schedules/{part(plan.name)}"
    return Need(level="bad", text=f"Schedule {plan.name} is {span(late)} late", more=plan.words, path=path)


def _of_dead(letters: int, groups: list[DeadGroup]) -> list[Need]:
    if not groups:
        return []
    newest = max(groups, key=lambda group: group.last_at)
    text = f"{count(letters)} dead letter{'' if letters == 1 else 's'}"
    more = f"the last one of {newest.task}: {newest.error}"
    return [Need(level="bad", text=text, more=more, path="/dead")]
