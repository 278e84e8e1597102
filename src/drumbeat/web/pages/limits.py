"""Limits: the lines of all queues, and the groups under one, with what runs and what waits; dialogs to change them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from starlette.responses import Response

from drumbeat.admin.limit_records import (
    GroupRecord,
    LimitRecord,
    LineRecord,
    describe_limits,
    describe_line,
    describe_target,
)
from drumbeat.core.lanes import split_lane
from drumbeat.core.limits import MAX_WEIGHT
from drumbeat.errors import InvalidArguments
from drumbeat.web.api import limits
from drumbeat.web.request import DashboardRequest, refuse_with

from .action_button import ActionButton, DialogField, build_button
from .layout import render_page

MAX_BUSIEST = 20
PAGE_SIZE = 50
EDIT_TEXT = "What is set here holds until it is reset, whatever code declares. Running jobs continue. Empty: no limit."
GROUP_TEXT = (
    "Instead of the limits for each group; those of the whole queue or task hold too. Empty fields stay as they are."
)


class LinePageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query of the page of a line."""

    task: str | None = None
    group: str | None = None
    """Show only this one."""
    after: str | None = None


class LineRowView(msgspec.Struct, frozen=True, kw_only=True):
    line: LineRecord
    text: str
    """Its limits."""
    declared: str
    url: str
    change: ActionButton | None
    reset: ActionButton | None


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    group: GroupRecord
    line: str
    """The name of its line."""
    url: str
    """The page of its line, with only this group."""
    rate_per: float | None
    rate: int | None
    change: ActionButton | None
    reset: ActionButton | None


async def index(request: DashboardRequest) -> Response:
    """GET /limits."""
    found = await limits.list_lines(request, limits.LinesQuery())
    busiest = await limits.list_groups(request, limits.GroupsQuery(limit=MAX_BUSIEST))
    lines = {(line.queue, line.task): line for line in found.items}
    return await render_page(
        request,
        "limits.html",
        page="limits",
        title="Limits",
        lines=[line_view(request, line) for line in found.items],
        groups=[group_view(request, each, lines.get((each.queue, each.task))) for each in busiest.items],
    )


async def show(request: DashboardRequest, name: str, query: LinePageQuery) -> Response:
    """GET /limits/{name}: the line of a queue, or of a task in it."""
    line = await refuse_with(404, request.app.limits.show(name, query.task))
    page = await limits.list_groups(
        request, limits.GroupsQuery(queue=name, task=query.task, after=query.after, limit=PAGE_SIZE)
    )
    found, following = page.items, page.next
    if query.group is not None:
        group = await find_group(request, name, query.task, query.group)
        found, following = [] if group is None else [group], None
    return await render_page(
        request,
        "line.html",
        page="limits",
        title=f"Limits of {line.title}",
        row=line_view(request, line),
        groups=[group_view(request, each, line) for each in found],
        group=query.group,
        after=query.after,
        older=request.link_to(line_path(name), task=query.task, after=following) if following else None,
        first=request.link_to(line_path(name), task=query.task) if query.after or query.group is not None else None,
        target=describe_target(name, query.task),
    )


async def find_group(request: DashboardRequest, queue: str, task: str | None, group: str) -> GroupRecord | None:
    """None: it has no jobs and no limits of its own, or there is no such line."""
    try:
        return await request.app.limits.group(queue, task, group)
    except InvalidArguments:
        return None


async def lane_view(request: DashboardRequest, queue: str, lane: str) -> GroupView | None:
    """The group of a job under limits."""
    line, group = split_lane(lane)
    found = await find_group(request, queue, line or None, group)
    return None if found is None else group_view(request, found, None)


def line_path(queue: str) -> str:
    return f"/limits/{queue}"


def line_view(request: DashboardRequest, line: LineRecord) -> LineRowView:
    return LineRowView(
        line=line,
        text=describe_limits(line.limits),
        declared=describe_limits(line.declared),
        url=request.link_to(line_path(line.queue), task=line.task),
        change=_change_button(request, line),
        reset=_reset_button(request, line) if line.is_changed else None,
    )


def group_view(request: DashboardRequest, group: GroupRecord, line: LineRecord | None) -> GroupView:
    """`line` None: it was never declared."""
    is_own = group.own_limits is not None or group.own_weight is not None
    return GroupView(
        group=group,
        line=describe_line(group.queue, group.task),
        url=request.link_to(line_path(group.queue), task=group.task, group=group.group),
        rate=None if group.rate is None else group.rate.rate,
        rate_per=None if group.rate is None else group.rate.per,
        change=None if line is None else _group_button(request, group, line),
        reset=_reset_group_button(request, group) if is_own and line is not None else None,
    )


def _change_button(request: DashboardRequest, line: LineRecord) -> ActionButton | None:
    fields = [
        *_limit_fields(line.limits, "limits.0", "all together", per_group=False, concurrency=True),
        *_limit_fields(line.limits, "limits.1", "each group", per_group=True, concurrency=line.order is None),
        DialogField(name="fair", label="Groups take turns", kind="check", value=line.fair),
    ]
    return build_button(
        request,
        limits.change,
        "Change",
        f"Change the limits of {line.title}?",
        name="set",
        text=EDIT_TEXT,
        body=_body(line.queue, line.task) | {"limits": [{"per_group": False}, {"per_group": True}]},
        fields=fields,
        confirm="Change the limits",
        done="The limits are changed",
    )


def _reset_button(request: DashboardRequest, line: LineRecord) -> ActionButton | None:
    declared = describe_limits(line.declared) or "no limit"
    return build_button(
        request,
        limits.reset,
        "Reset",
        f"Reset the limits of {line.title}?",
        text=f"What code declares holds again: {declared}{', and groups take turns' if line.declared_fair else ''}.",
        body=_body(line.queue, line.task),
        done="What code declares holds again",
    )


def _group_button(request: DashboardRequest, group: GroupRecord, line: LineRecord) -> ActionButton | None:
    own = group.own_limits or []
    fields = [
        *_limit_fields(own, "limits.0", "", per_group=True, concurrency=line.order is None),
        DialogField(name="weight", label="Jobs in each turn", value=group.own_weight, max=MAX_WEIGHT),
    ]
    return build_button(
        request,
        limits.change_group,
        "Change",
        f"Change the limits of group {group.group or '(none)'}?",
        name="set-group",
        text=GROUP_TEXT,
        body=_body(group.queue, group.task) | {"group": group.group},
        fields=fields,
        confirm="Change the group",
        done="The group has limits of its own",
    )


def _reset_group_button(request: DashboardRequest, group: GroupRecord) -> ActionButton | None:
    return build_button(
        request,
        limits.reset_group,
        "Reset",
        f"Reset group {group.group or '(none)'}?",
        name="reset-group",
        text="It has the limits and the weight of every group again.",
        body=_body(group.queue, group.task) | {"group": group.group},
        done="The group is like the others again",
    )


def _limit_fields(
    found: Iterable[LimitRecord], name: str, whose: str, *, per_group: bool, concurrency: bool
) -> list[DialogField]:
    """Of one limit: at once, how many starts, in how many seconds."""
    mine = [each for each in found if each.per_group == per_group]
    suffix = f", {whose}" if whose else ""
    at_once = next((each.concurrency for each in mine if each.concurrency is not None), None)
    rate = next((each for each in mine if each.rate is not None), LimitRecord())
    made = [DialogField(name=f"{name}.concurrency", label=f"At once{suffix}", value=at_once)] if concurrency else []
    return [
        *made,
        DialogField(name=f"{name}.rate", label=f"Starts{suffix}", value=rate.rate),
        DialogField(name=f"{name}.per", label="in any (seconds)", value=rate.per),
    ]


def _body(queue: str, task: str | None) -> dict[str, object]:
    return {"queue": queue, "task": task}
