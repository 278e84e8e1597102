"""`app.limits`: how many jobs of a queue, task or group may run at once and start in a time; who waits; changes at run time.

Code declares limits (docs/limits.md); what people set wins over it until it is reset.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable

import msgspec

from drumbeat.core.lanes import lane_name
from drumbeat.core.limits import GroupInfo, LineChange, LineInfo
from drumbeat.errors import InvalidArguments
from drumbeat.names import check_name, check_number, short_repr
from drumbeat.store.protocol import Store
from drumbeat.tasks.limits import Limit

from .limit_input import check_group, check_order, check_weight, read_group_limits, read_line_limits
from .limit_records import GroupRecord, LimitRecord, LineRecord, describe_line, group_record, line_record
from .part import AdminPart, check_note

MAX_PAGE = 500


class Limits(AdminPart):
    """List and change limits, and list the groups under them.

    A line is named by its queue, and by its task where that has limits of its own, which count its jobs in its own queue.
    """

    async def list(self, queue: str | None = None) -> builtins.list[LineRecord]:
        """All lines that a worker or client has declared, by queue and task; those of one queue."""
        if queue is not None:
            check_name("queue", queue)
        store = await self._client.store()
        now = await store.inspect.now()
        return [line_record(line, now) for line in await store.limits.list_lines() if queue in (None, line.queue)]

    async def show(self, queue: str, task: str | None = None) -> LineRecord:
        """One line; without `task` that of the queue.

        Raises:
            InvalidArguments: there is no such line; it names those that exist.
        """
        store = await self._client.store()
        return line_record(await _find_line(store, queue, task), await store.inspect.now())

    async def groups(
        self, queue: str, task: str | None = None, *, after: str | None = None, limit: int = 100
    ) -> builtins.list[GroupRecord]:
        """The groups of a line by name, from the first after `after`. One that has had no job for a minute or so, and no
        limits of its own, is not listed."""
        after = None if after is None else check_group(after)
        limit = check_number("limit", limit, 1, MAX_PAGE)
        store = await self._client.store()
        line = await _find_line(store, queue, task)
        now = await store.inspect.now()
        found = await store.limits.list_groups(line.queue, line.line, after=after, limit=limit)
        return [group_record(each, now) for each in found]

    async def busiest(self, *, limit: int = 20) -> builtins.list[GroupRecord]:
        """The groups of all lines with the most running jobs, then those that wait longest."""
        store = await self._client.store()
        now = await store.inspect.now()
        found = await store.limits.busiest_groups(check_number("limit", limit, 1, MAX_PAGE))
        return [group_record(each, now) for each in found]

    async def group(self, queue: str, task: str | None, group: str) -> GroupRecord:
        """One group of a line.

        Raises:
            InvalidArguments: there is no such line, or the group has had no job for a while, and no limits of its own.
        """
        store = await self._client.store()
        line = await _find_line(store, queue, task)
        found = await _find_group(store, line, check_group(group))
        if found is None:
            raise InvalidArguments(
                f"group {short_repr(group)} has no jobs and no limits of its own in {describe_line(queue, task)}",
                "group",
            )
        return group_record(found, await store.inspect.now())

    async def set(
        self,
        queue: str,
        task: str | None = None,
        *,
        limits: Iterable[Limit | LimitRecord] | None = None,
        fair: bool | None = None,
        reason: str = "",
        by: str | None = None,
    ) -> LineRecord:
        """Replace the limits of a line, from now on and whatever code declares, until `reset`. Running jobs continue.

        limits: all that hold: an empty list is no limit. None: as before.
        fair: whether its groups take turns. None: as before.

        Raises:
            InvalidArguments: there is no such line, or something is impossible; it says what, and nothing is changed.
        """
        by, reason = self._check_by(by), check_note("reason", reason)
        if limits is None and fair is None:
            raise InvalidArguments("give limits, or fair", "limits")
        if fair is not None and not isinstance(fair, bool):
            raise InvalidArguments(f"fair must be True or False, not {short_repr(fair)}", "fair")
        bounds = None if limits is None else read_line_limits(limits)
        store = await self._client.store()
        line = await _find_line(store, queue, task)
        change = line.change or LineChange()
        if bounds is not None:
            check_order(line.policy.order, bounds[1])
            change = msgspec.structs.replace(change, whole=bounds[0], each=bounds[1])
        if fair is not None:
            change = msgspec.structs.replace(change, fair=fair)
        await store.limits.change(line.queue, line.line, change, by=by, reason=reason)
        return await self.show(queue, task)

    async def reset(self, queue: str, task: str | None = None, *, reason: str = "", by: str | None = None) -> bool:
        """Undo `set`: what code declares holds again. False: nothing was set."""
        by, reason = self._check_by(by), check_note("reason", reason)
        store = await self._client.store()
        line = await _find_line(store, queue, task)
        if line.change is None:
            return False
        return await store.limits.change(line.queue, line.line, None, by=by, reason=reason)

    async def set_group(
        self,
        queue: str,
        task: str | None,
        group: str,
        *,
        limits: Iterable[Limit | LimitRecord] | None = None,
        weight: int | None = None,
    ) -> GroupRecord:
        """Make an exception for one group, also before it has jobs. What holds for the whole line or queue stays.

        limits: those of the group instead of the line's with per_group; an empty list is none. None: as before.
        weight: how many jobs it gets in each turn, 1 to 100. None: as before.

        Raises:
            InvalidArguments: as `set`.
        """
        if limits is None and weight is None:
            raise InvalidArguments("give limits, or a weight", "limits")
        group = check_group(group)
        bounds = None if limits is None else read_group_limits(limits)
        weight = None if weight is None else check_weight(weight)
        store = await self._client.store()
        line = await _find_line(store, queue, task)
        if bounds is not None:
            check_order(line.policy.order, bounds)
        before = await _find_group(store, line, group)
        if before is not None:
            bounds = before.own_bounds if bounds is None else bounds
            weight = before.own_weight if weight is None else weight
        await store.limits.change_group(line.queue, line.line, group, bounds=bounds, weight=weight)
        return await self.group(queue, task, group)

    async def reset_group(self, queue: str, task: str | None, group: str) -> bool:
        """Undo `set_group`: the limits of its line hold again. False: it was no exception."""
        store = await self._client.store()
        line = await _find_line(store, queue, task)
        before = await _find_group(store, line, check_group(group))
        if before is None or (before.own_bounds is None and before.own_weight is None):
            return False
        return await store.limits.change_group(line.queue, line.line, before.group, bounds=None, weight=None)


async def _find_line(store: Store, queue: str, task: str | None) -> LineInfo:
    queue = check_name("queue", queue)
    name = "" if task is None else check_name("task", task)
    lines = await store.limits.list_lines()
    for line in lines:
        if (line.queue, line.line) == (queue, name):
            return line
    raise _unknown_line(lines, queue, name)


def _unknown_line(lines: builtins.list[LineInfo], queue: str, name: str) -> InvalidArguments:
    known = [describe_line(line.queue, line.line) for line in lines]
    there = "; there are " + ", ".join(known) if known else ": none is declared; a worker declares those of its tasks"
    argument = "task" if name and any(line.queue == queue for line in lines) else "queue"
    return InvalidArguments(f"{describe_line(queue, name)} has no limits{there}", argument)


async def _find_group(store: Store, line: LineInfo, group: str) -> GroupInfo | None:
    [found] = await store.limits.find_groups([(line.queue, lane_name(line.line, group))])
    return found
