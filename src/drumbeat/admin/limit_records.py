"""Lines, groups and limits as people see them: seconds and names of tasks instead of microseconds and lanes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import msgspec

from drumbeat.core.field_doc import doc
from drumbeat.core.limits import NO_LIMIT, Bounds, GroupInfo, LineInfo
from drumbeat.durations import SECOND_US, format_length, from_us


class LimitRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit."""

    concurrency: Annotated[int | None, doc("At most so many run at once; null: as many as there are slots.")] = None
    rate: Annotated[int | None, doc("At most so many start in any time of length `per`; null: any number.")] = None
    per: Annotated[float | None, doc("Seconds, from 1 to 86,400.")] = None
    per_group: Annotated[bool, doc("For each group; otherwise for all jobs together.")] = False


class LineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A line: the jobs of a task that has limits of its own, or those of a queue whose tasks have none."""

    queue: str
    task: Annotated[
        str | None, doc("Null: the line of the queue, whose limits without per_group hold for all lines of it.")
    ]
    limits: Annotated[list[LimitRecord], doc("What holds now.")]
    order: Annotated[
        str | None,
        doc("hold or skip: jobs of a group run one after the other, and a retry holds the line or is skipped."),
    ]
    fair: Annotated[bool, doc("Its groups take turns.")]
    weights: Annotated[dict[str, int], doc("Of groups that get more than one job in each turn, as code declares them.")]
    declared: Annotated[list[LimitRecord], doc("The limits that code declares.")]
    declared_fair: bool
    set_limits: Annotated[list[LimitRecord] | None, doc("What somebody set instead; null: nothing.")]
    set_fair: Annotated[bool | None, doc("Likewise.")]
    changed_at: datetime | None
    changed_by: str | None
    reason: str | None
    running: Annotated[int | None, doc("Jobs that the concurrency of the whole line counts; null: it has none.")]
    started: Annotated[int | None, doc("Starts in the window of the whole line's rate; null: it has none.")]
    opens_at: Annotated[datetime | None, doc("When that rate allows the next start; null: now.")]

    @property
    def is_changed(self) -> bool:
        """Somebody has set something, and it has not been reset."""
        return self.set_limits is not None or self.set_fair is not None

    @property
    def title(self) -> str:
        """How sentences call it."""
        return describe_line(self.queue, self.task)


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A group in a line: the jobs that share its limits."""

    queue: str
    task: Annotated[str | None, doc("Null: the line of the queue.")]
    group: Annotated[str, doc("Empty: the jobs without a group.")]
    waiting: Annotated[int, doc("Pending jobs, due or not, that wait only for time and limits; counted up to 10,000.")]
    running: int
    limits: Annotated[
        list[LimitRecord], doc("Those of the group. What holds for the whole line or queue comes on top.")
    ]
    weight: Annotated[int, doc("Jobs in each turn, where groups take turns.")]
    own_limits: Annotated[list[LimitRecord] | None, doc("Set for this group; null: as its line says.")]
    own_weight: int | None
    started: Annotated[int | None, doc("Starts in the window of its rate; null: it has no rate.")]
    due_at: Annotated[datetime | None, doc("About when its first waiting job is or was due; null: none waits.")]
    lag: Annotated[float, doc("Seconds for which that job has been due; 0: none is.")]
    opens_at: Annotated[datetime | None, doc("When its rate allows the next start; null: now.")]

    @property
    def concurrency(self) -> int | None:
        return next((each.concurrency for each in self.limits if each.concurrency is not None), None)

    @property
    def rate(self) -> LimitRecord | None:
        """Its limit with a rate."""
        return next((each for each in self.limits if each.rate is not None), None)

    @property
    def is_full(self) -> bool:
        """It runs as many jobs as it may."""
        return self.concurrency is not None and self.running >= self.concurrency


def line_record(line: LineInfo, now: int) -> LineRecord:
    """`now`: the store's clock, in microseconds."""
    policy, declared, change = line.policy, line.declared, line.change
    limits = limit_records(policy.whole, policy.each)
    is_set = change is not None and (change.whole is not None or change.each is not None)
    return LineRecord(
        queue=line.queue,
        task=line.line or None,
        limits=limits,
        order=policy.order or None,
        fair=policy.fair,
        weights=dict(policy.weights),
        declared=limit_records(declared.whole, declared.each),
        declared_fair=declared.fair,
        set_limits=limits if is_set else None,
        set_fair=None if change is None else change.fair,
        changed_at=None if change is None else _to_datetime(line.changed_at),
        changed_by=None if change is None else line.changed_by,
        reason=None if change is None else line.reason,
        running=None if policy.whole.concurrency is None else line.running,
        started=None if policy.whole.rate is None else line.starts_in_window,
        opens_at=_to_future(line.open_at, now),
    )


def group_record(group: GroupInfo, now: int) -> GroupRecord:
    """`now`: the store's clock, in microseconds."""
    due_at = group.head_at if group.waiting else None
    return GroupRecord(
        queue=group.queue,
        task=group.line or None,
        group=group.group,
        waiting=group.waiting,
        running=group.running,
        limits=limit_records(Bounds(), group.bounds),
        weight=group.weight,
        own_limits=None if group.own_bounds is None else limit_records(Bounds(), group.own_bounds),
        own_weight=group.own_weight,
        started=None if group.bounds.rate is None else group.starts_in_window,
        due_at=_to_datetime(due_at),
        lag=0.0 if due_at is None else max(0, now - due_at) / SECOND_US,
        opens_at=_to_future(group.open_at, now),
    )


def limit_records(whole: Bounds, each: Bounds) -> list[LimitRecord]:
    """A limit for each number: those of the whole line first."""
    made = []
    for bounds, per_group in ((whole, False), (each, True)):
        if bounds.concurrency is not None and bounds.concurrency < NO_LIMIT:
            made.append(LimitRecord(concurrency=bounds.concurrency, per_group=per_group))
        if bounds.rate is not None and bounds.per is not None:
            made.append(LimitRecord(rate=bounds.rate, per=bounds.per / SECOND_US, per_group=per_group))
    return made


def describe_line(queue: str, task: str | None) -> str:
    """task charge in queue bank; queue bank."""
    return f"task {task} in queue {queue}" if task else f"queue {queue}"


def describe_target(queue: str, task: str | None, group: str | None = None) -> str:
    """What an act is about, in the audit."""
    line = describe_line(queue, task)
    return line if group is None else f"{line} group {group}"


def describe_limit(limit: LimitRecord) -> str:
    """5 at once per group; 100 per 1m."""
    parts = [] if limit.concurrency is None else [f"{limit.concurrency:,} at once"]
    if limit.rate is not None and limit.per is not None:
        parts.append(f"{limit.rate:,} per {format_length(round(limit.per * SECOND_US))}")
    return " and ".join(parts) + (" per group" if limit.per_group else "")


def describe_limits(limits: Iterable[LimitRecord]) -> str:
    """Of a line; empty: it has none."""
    return ", ".join(map(describe_limit, limits))


def _to_datetime(us: int | None) -> datetime | None:
    return None if us is None else from_us(us)


def _to_future(us: int, now: int) -> datetime | None:
    return from_us(us) if us > now else None
