"""`/api/v1/limits` and `/api/v1/groups`: limits of queues, tasks and groups, and who waits under them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from drumbeat.admin.limit_records import GroupRecord, LimitRecord, LineRecord, describe_target
from drumbeat.web.api.records import Page, WriteResult
from drumbeat.web.fields import Limit, QueueName, Reason, doc
from drumbeat.web.problem import Problem
from drumbeat.web.request import DashboardRequest
from drumbeat.web.route import clamp_limit

Queue = Annotated[str, doc("The name of a queue.")]
LineTask = Annotated[
    str | None, doc("A task that has limits of its own in the queue; null: the limits of the queue itself.")
]
GroupName = Annotated[str, doc("The name of a group; empty: the jobs without one.")]
NewLimits = Annotated[
    list[LimitRecord] | None, doc("All that hold from now on; an empty list: none; null: as they are.")
]


class LinesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which limits."""

    queue: QueueName = None


class GroupsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which groups, by name; without a queue the busiest of all."""

    queue: QueueName = None
    task: Annotated[str | None, doc("A task that has limits of its own in the queue.")] = None
    after: Annotated[str | None, doc("Only groups after this one: `next` of the previous page.")] = None
    limit: Limit = 50


class LineBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a queue, or of a task in it."""

    queue: Queue
    task: LineTask = None
    reason: Reason = ""

    def target(self) -> str:
        """For the audit."""
        return describe_target(self.queue, self.task)


class LimitsBody(LineBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What they are to be."""

    limits: NewLimits = None
    fair: Annotated[bool | None, doc("Whether its groups take turns; null: as it is.")] = None


class GroupBody(LineBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group under them."""

    group: GroupName

    def target(self) -> str:
        """For the audit."""
        return describe_target(self.queue, self.task, self.group)


class GroupLimitsBody(GroupBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the limits of the group are to be."""

    limits: NewLimits = None
    weight: Annotated[int | None, doc("How many jobs it gets in each turn, 1 to 100; null: as it is.")] = None


async def list_lines(request: DashboardRequest, query: LinesQuery) -> Page[LineRecord]:
    """Those that code has declared, with what people have set."""
    return Page(items=await request.app.limits.list(query.queue))


async def change(request: DashboardRequest, body: LimitsBody) -> LineRecord:
    """They replace those that code declares until they are reset. Running jobs continue."""
    return await request.app.limits.set(
        body.queue, body.task, limits=body.limits, fair=body.fair, reason=body.reason, by=request.caller.name
    )


async def reset(request: DashboardRequest, body: LineBody) -> WriteResult:
    """What code declares holds again."""
    done = await request.app.limits.reset(body.queue, body.task, reason=body.reason, by=request.caller.name)
    return WriteResult(touched=int(done))


async def list_groups(request: DashboardRequest, query: GroupsQuery) -> Page[GroupRecord]:
    """Of the limits of a queue or of a task in it; without a queue those with the most running jobs, in one page."""
    limit = clamp_limit(query.limit)
    if query.queue is None:
        if query.task is not None or query.after is not None:
            raise Problem(422, "task and after need a queue", argument="queue")
        return Page(items=await request.app.limits.busiest(limit=limit))
    found = await request.app.limits.groups(query.queue, query.task, after=query.after, limit=limit)
    return Page(items=found, next=found[-1].group if len(found) >= limit else None)


async def change_group(request: DashboardRequest, body: GroupLimitsBody) -> GroupRecord:
    """They replace those that hold for each group, for this one."""
    return await request.app.limits.set_group(body.queue, body.task, body.group, limits=body.limits, weight=body.weight)


async def reset_group(request: DashboardRequest, body: GroupBody) -> WriteResult:
    """What holds for each group holds for this one again."""
    return WriteResult(touched=int(await request.app.limits.reset_group(body.queue, body.task, body.group)))
