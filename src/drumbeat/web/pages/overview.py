"""Overview: health, attention items, recent errors, charts, next fires."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from starlette.responses import Response

from drumbeat.admin import ScheduleInfo
from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.web.api import dead, queues, schedules
from drumbeat.web.request import DashboardRequest

from .formatting import count, quote_segment, span
from .health import HealthView, load_health
from .layout import render_page
from .page_charts import ChartsQuery, load_charts_of_page
from .panels import panels_for

MIN_LATE_SECONDS = 5.0
"""A schedule whose fire time is longer past than this is late."""
MAX_GROUPS = 6
MAX_FIRES = 8
COUNTERS = ("ready", "running", "scheduled", "retrying", "waiting", "succeeded", "dead", "cancelled", "expired")


class AttentionItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item of the attention list."""

    level: str
    text: str
    more: str
    path: str


async def show(request: DashboardRequest, query: ChartsQuery) -> Response:
    charts = await load_charts_of_page(request, query)
    now = await request.store_time()
    health = await load_health(request)
    found = await queues.list_queues(request)
    groups = await dead.list_groups(request, dead.DeadGroupsQuery(limit=MAX_GROUPS))
    plans = await schedules.list_schedules(request, schedules.SchedulesQuery(limit=500))
    coming = sorted((plan for plan in plans.items if plan.next_at), key=lambda plan: plan.next_at or now)
    return await render_page(
        request,
        "overview.html",
        page="overview",
        title="Overview",
        health=health,
        # Few programs have jobs that expire.
        counters=[(word, n) for word in COUNTERS if (n := getattr(health.counts, word)) or word != "expired"],
        needs=attention_items(health, found.items, groups.items, plans.items, now),
        groups=groups.items,
        coming=coming[:MAX_FIRES],
        queues=found.items,
        panels=panels_for(request),
        **charts,
    )


def attention_items(
    health: HealthView,
    lines: list[queues.QueueRecord],
    groups: list[DeadLetterGroup],
    plans: Sequence[ScheduleInfo],
    now: datetime,
) -> list[AttentionItem]:
    """Errors first, then warnings and notes."""
    found: list[AttentionItem] = []
    known = {(reason.kind, reason.name) for reason in health.verdict.reasons}
    found += [
        AttentionItem(level=str(reason.level), text=reason.text, more=reason.detail, path=reason.page)
        for reason in health.verdict.reasons
    ]
    found += [need for line in lines if (need := _queue_item(line)) is not None]
    # Health names only the latest schedule.
    found += [
        need
        for plan in plans
        if ("schedule", plan.name) not in known and (need := _schedule_item(plan, now)) is not None
    ]
    found += _dead_letter_items(health.dead, groups)
    if health.counts.waiting:
        text = f"{count(health.counts.waiting)} jobs are blocked"
        more = "by a task or version that no worker has, or by the previous run"
        found.append(AttentionItem(level="note", text=text, more=more, path="/jobs?state=waiting"))
    return sorted(found, key=lambda need: ("bad", "warn", "note").index(need.level))


def _queue_item(line: queues.QueueRecord) -> AttentionItem | None:
    """A pause is intended, but worth a line. Queues that are behind are reasons of health."""
    path = f"/queues/{quote_segment(line.name)}"
    if line.paused:
        reason = f": {line.paused_reason}" if line.paused_reason else ""
        text = f"Queue {line.name} is paused"
        more = f"by {line.paused_by}{reason}; {count(line.ready)} ready"
        return AttentionItem(level="warn" if line.ready else "note", text=text, more=more, path=path)
    return None


def _schedule_item(plan: ScheduleInfo, now: datetime) -> AttentionItem | None:
    if plan.next_at is None or (late := (now - plan.next_at).total_seconds()) < MIN_LATE_SECONDS:
        return None
    path = f"/schedules/{quote_segment(plan.name)}"
    return AttentionItem(level="bad", text=f"Schedule {plan.name} is {span(late)} late", more=plan.words, path=path)


def _dead_letter_items(letters: int, groups: list[DeadLetterGroup]) -> list[AttentionItem]:
    if not groups:
        return []
    newest = max(groups, key=lambda group: group.last_at)
    text = f"{count(letters)} dead letter{'' if letters == 1 else 's'}"
    more = f"latest: {newest.error} in {newest.task}"
    return [AttentionItem(level="bad", text=text, more=more, path="/dead")]
