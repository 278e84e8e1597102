"""What the doctor finds about limits: counts of running jobs that have drifted, jobs under limits that nobody has declared, and
groups that have been full for long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from drumbeat.clock import Clock
from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.core.job import JobState, PendingView
from drumbeat.core.job_query import JobFilter
from drumbeat.core.lanes import lane_name, split_lane
from drumbeat.core.limits import GroupInfo, LineInfo
from drumbeat.durations import format_length
from drumbeat.plural import format_count
from drumbeat.store.protocol import Store

from .limit_records import describe_line

CHECK_NAME = "limits"
MAX_GROUPS = 200
"""The busiest ones are looked at."""
MAX_FULL_US = 3_600_000_000
MAX_NAMED = 5
RECHECK_DELAY = 1.0
Lane = tuple[str, str]
"""Queue and lane."""


class LaneMiscount(msgspec.Struct, frozen=True, kw_only=True):
    """A lane that counts another number of running jobs than there are."""

    queue: str
    lane: str
    counted: int
    actual: int


class LimitsSample(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks look at."""

    lines: Sequence[LineInfo] = ()
    groups: Sequence[GroupInfo] = ()
    """Some, the busiest."""
    miscounts: Sequence[LaneMiscount] = ()
    undeclared: Sequence[GroupInfo] = ()
    """Of some ready jobs: groups in lines that nobody has declared."""


async def read_limits(store: Store, clock: Clock, limit: int) -> LimitsSample:
    """Jobs start and end meanwhile: only a count that stays wrong by the same number is a problem."""
    lines = await store.limits.list_lines()
    groups = await store.limits.busiest_groups(MAX_GROUPS)
    wrong = await _count_lanes(store, groups, limit) if lines or groups else {}
    if wrong:
        await clock.sleep(RECHECK_DELAY)
        again = await _count_lanes(store, groups, limit)
        wrong = {lane: found for lane, found in again.items() if lane in wrong and _drift(found) == _drift(wrong[lane])}
    undeclared = await _read_undeclared(store, lines, limit)
    return LimitsSample(lines=lines, groups=groups, miscounts=list(wrong.values()), undeclared=undeclared)


async def _read_undeclared(store: Store, lines: Sequence[LineInfo], limit: int) -> list[GroupInfo]:
    known = {(line.queue, line.line) for line in lines}
    page = await store.inspect.find_page(JobFilter(view=PendingView.READY, limit=limit, preview=0))
    lanes = {(job.queue, job.lane) for job in page.items if job.lane}
    wanted = sorted(lane for lane in lanes if (lane[0], split_lane(lane[1])[0]) not in known)[:MAX_GROUPS]
    found = await store.limits.find_groups(wanted) if wanted else []
    return [group for group in found if group is not None]


def _drift(found: LaneMiscount) -> int:
    return found.counted - found.actual


async def _count_lanes(store: Store, groups: Sequence[GroupInfo], limit: int) -> dict[Lane, LaneMiscount]:
    """Lanes that said the same before and after the jobs that run were read, and something else than those. None if more run
    than can be read."""
    lanes = {(each.queue, lane_name(each.line, each.group)) for each in groups}
    before = await _read_counts(store, lanes)
    page = await store.inspect.find_page(JobFilter(state=JobState.RUNNING, limit=limit, preview=0))
    if page.next is not None:
        return {}
    actual = Counter((job.queue, job.lane) for job in page.items if job.lane)
    lanes |= actual.keys()
    after = await _read_counts(store, lanes)
    return {
        lane: LaneMiscount(queue=lane[0], lane=lane[1], counted=after[lane], actual=actual[lane])
        for lane in lanes
        if after[lane] != actual[lane] and before.get(lane, after[lane]) == after[lane]
    }


async def _read_counts(store: Store, lanes: set[Lane]) -> dict[Lane, int]:
    wanted = sorted(lanes)
    found = await store.limits.find_groups(wanted) if wanted else []
    return {lane: 0 if group is None else group.running for lane, group in zip(wanted, found, strict=True)}


def check_limits(sample: LimitsSample, now: int) -> Iterator[HealthCheck]:
    yield from map(_describe_miscount, sample.miscounts[:MAX_NAMED])
    if len(sample.miscounts) > MAX_NAMED:
        yield HealthCheck(
            name=CHECK_NAME,
            level=HealthLevel.BAD,
            value=f"{format_count(len(sample.miscounts) - MAX_NAMED, 'group')} more with a wrong count of running jobs",
            advice="see those above",
        )
    yield from _check_undeclared(sample)
    yield from _check_full(sample.groups, now)


def _check_undeclared(sample: LimitsSample) -> Iterator[HealthCheck]:
    waiting: Counter[Lane] = Counter()
    for group in sample.undeclared:
        waiting[group.queue, group.line] += group.waiting
    for (queue, line), count in sorted(waiting.items())[:MAX_NAMED]:
        if not count:  # they have started or ended meanwhile
            continue
        waits = "1 job waits" if count == 1 else f"{count:,} jobs wait"
        yield HealthCheck(
            name=f"limits of {describe_line(queue, line)}",
            level=HealthLevel.BAD,
            value=f"{waits} under them, and no worker has ever declared them",
            advice="start a worker of the program that declares them: until then these jobs do not run",
        )


def _check_full(groups: Sequence[GroupInfo], now: int) -> Iterator[HealthCheck]:
    full = [each for each in groups if each.waiting and _is_full(each, now) and _waited_us(each, now) > MAX_FULL_US]
    for group in sorted(full, key=lambda each: -_waited_us(each, now))[:MAX_NAMED]:
        runs = f"runs {group.running:,} of {group.bounds.concurrency:,}" if _runs_all(group) else "has used up its rate"
        yield HealthCheck(
            name=f"group {group.group!r}",
            level=HealthLevel.WARN,
            value=f"in {describe_line(group.queue, group.line)} it {runs}, and its first job has waited for "
            f"{format_length(_waited_us(group, now))}",
            advice="its limits are too low for what is enqueued, or its jobs take too long: "
            f"`drumbeat groups {group.queue}` shows all, `drumbeat limits set-group` raises those of one",
        )


def _runs_all(group: GroupInfo) -> bool:
    return group.bounds.concurrency is not None and group.running >= group.bounds.concurrency


def _is_full(group: GroupInfo, now: int) -> bool:
    return _runs_all(group) or group.open_at > now


def _waited_us(group: GroupInfo, now: int) -> int:
    return 0 if group.head_at is None else now - group.head_at


def _describe_miscount(found: LaneMiscount) -> HealthCheck:
    line, group = split_lane(found.lane)
    return HealthCheck(
        name=f"group {group!r}",
        level=HealthLevel.BAD,
        value=f"in {describe_line(found.queue, line)} it counts {format_count(found.counted, 'running job')}, and has "
        f"{found.actual:,}",
        advice="the leader corrects such a count within seconds, and logs it; if it stays, no instance is alive, or please "
        "report it",
    )
