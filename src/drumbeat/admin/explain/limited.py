"""Why a due job waits for limits, its group's order, or jobs of its group. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from drumbeat.admin.explain.reason import Fact, Reason, ReasonKind
from drumbeat.core.job import Job
from drumbeat.core.lanes import split_lane
from drumbeat.core.limits import Bounds, GroupInfo, LineInfo
from drumbeat.durations import SECOND_US, format_ago, format_length, format_utc, to_iso
from drumbeat.plural import format_count


class LimitSample(msgspec.Struct, frozen=True, kw_only=True):
    """What stands over a due job that is in a lane."""

    line: LineInfo | None = None
    """None: it was never declared."""
    whole: LineInfo | None = None
    """The line of its queue, if that is another one."""
    group: GroupInfo | None = None
    """None: nothing of it runs."""


class _Place(msgspec.Struct, frozen=True):
    """A place in the tree of limits, with what is counted there."""

    name: str
    bounds: Bounds
    running: int
    started: int
    open_at: int


def explain_limits(job: Job, sample: LimitSample | None, ahead: int, now: int) -> Iterator[Reason]:
    """`ahead`: how many jobs of its lane come before it."""
    if sample is None:
        return
    if sample.line is None:
        yield _undeclared(job)
        return
    order = sample.line.policy.order
    if (group := sample.group) is not None:
        name = name_group(job)
        if order and group.running:
            yield _behind_in_order(job, group, name, ahead)
        elif (reason := _full(job, _group_place(group, name), ahead)) is not None:
            yield reason
        if (reason := _window(job, _group_place(group, name), ahead, now)) is not None:
            yield reason
        elif order == "hold" and not group.running and group.head_at is not None and group.head_at > now:
            yield _held(job, name, group.head_at, ahead, now)
    for line in (sample.line, sample.whole):
        if line is not None:
            place = _line_place(line)
            for reason in (_full(job, place, 0), _window(job, place, 0, now)):
                if reason is not None:
                    yield reason


def name_group(job: Job) -> str:
    return f"group {job.group!r}" if job.group else "the group of jobs without one"


def _group_place(group: GroupInfo, name: str) -> _Place:
    return _Place(name, group.bounds, group.running, group.starts_in_window, group.open_at)


def _line_place(line: LineInfo) -> _Place:
    name = f"task {line.line!r} in queue {line.queue!r}" if line.line else f"queue {line.queue!r}"
    return _Place(name, line.policy.whole, line.running, line.starts_in_window, line.open_at)


def _facts(job: Job, more: dict[str, Fact]) -> dict[str, Fact]:
    return {"queue": job.queue, "task": split_lane(job.lane)[0] or None, "group": job.group, **more}


def _undeclared(job: Job) -> Reason:
    task = split_lane(job.lane)[0]
    whose = f"task {task!r} in queue {job.queue!r}" if task else f"queue {job.queue!r}"
    text = (
        f"the limits of {whose} were never declared by a running worker: its jobs wait until one that has "
        f"{'the task' if task else 'limits for the queue'} starts"
    )
    return Reason(kind=ReasonKind.UNDECLARED, text=text, facts=_facts(job, {}))


def _full(job: Job, place: _Place, ahead: int) -> Reason | None:
    limit = place.bounds.concurrency
    if limit is None or place.running < limit:
        return None
    text = f"{place.name} runs {place.running:,} of {limit:,}{_describe_ahead(ahead)}"
    facts: dict[str, Fact] = {"limited": place.name, "running": place.running, "limit": limit, "before": ahead}
    return Reason(kind=ReasonKind.LIMIT, text=text, facts=_facts(job, facts))


def _window(job: Job, place: _Place, ahead: int, now: int) -> Reason | None:
    rate, per = place.bounds.rate, place.bounds.per
    if rate is None or per is None or place.open_at <= now:
        return None
    when = f"{format_ago(place.open_at, now)}, at {format_utc(place.open_at)}"
    window = f"the rate window of {place.name} ({rate:,} per {format_length(per)})"
    text = f"{window} is full, and opens {when}{_describe_ahead(ahead)}"
    facts: dict[str, Fact] = {
        "limited": place.name,
        "started": place.started,
        "rate": rate,
        "per": per / SECOND_US,
        "opens_at": to_iso(place.open_at),
        "before": ahead,
    }
    return Reason(kind=ReasonKind.WINDOW, text=text, facts=_facts(job, facts))


def _behind_in_order(job: Job, group: GroupInfo, name: str, ahead: int) -> Reason:
    text = f"{name} runs one job after the other, and one of it runs now{_describe_ahead(ahead)}"
    return Reason(kind=ReasonKind.ORDER, text=text, facts=_facts(job, {"running": group.running, "before": ahead}))


def _held(job: Job, name: str, until: int, ahead: int, now: int) -> Reason:
    text = (
        f"an earlier job of {name} holds the line until its retry {format_ago(until, now)}, at {format_utc(until)}"
        f"{_describe_ahead(ahead)}"
    )
    return Reason(kind=ReasonKind.ORDER, text=text, facts=_facts(job, {"until": to_iso(until), "before": ahead}))


def _describe_ahead(ahead: int) -> str:
    return f"; ahead of it in its group: {format_count(ahead, 'job')}" if ahead else ""
