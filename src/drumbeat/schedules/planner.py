"""What is due: a schedule as the store has it and a moment, in; what to fire and what to skip, out.

    cursor          next_at                   late before           last       now
      |---------------|--x--x--x--x--x--x--x----|--x--x--x--x--x--x--x----------|
        dealt with       skipped: late              by catch_up

Pure: the same schedule and moment give the same plan in every controller, but for the ids of jobs; which of two controllers'
plans is carried out, the store decides. It costs microseconds for every moment that is fired, and next to nothing for those
that are skipped, so that a year of a second-wise rule that nobody served does not hold up a heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from drumbeat.core.schedule import (
    CatchUp,
    FireRequest,
    NewSchedule,
    PlannedFire,
    RuleKind,
    Schedule,
    ScheduleState,
    SkippedRange,
)
from drumbeat.ids import JobId

from .rules import Rule, rule_of

ON_TIME_WINDOW_US = 10_000_000
"""With catch_up="none": so late a moment still counts as served in time, unless max_late says otherwise. The death of a
leader takes 2 s; somebody was there all the same."""

NewId = Callable[[int], JobId]


def first_fire_time(definition: NewSchedule, now: int) -> int | None:
    """The first moment of a new or changed schedule: cron and grid the first after now, AFTER at once; neither before start."""
    if definition.kind is not RuleKind.AFTER:
        return rule_of(definition).next_after(now)
    first = now if definition.start is None else max(now, definition.start)
    return first if definition.end is None or first < definition.end else None


def next_after_change(known: Schedule, definition: NewSchedule, now: int) -> int | None:
    """The next moment of a schedule that goes on under another rule."""
    if definition.kind is RuleKind.AFTER and known.definition.kind is RuleKind.AFTER:
        if known.next_at is None:
            return None  # set by the end of the run under way
        # Never later than it was: changes more frequent than the interval must not starve it.
        return min(known.next_at, now + int(definition.rule))
    return first_fire_time(definition, now)


def plan(schedule: Schedule, now: int, new_id: NewId) -> FireRequest | None:
    """What is to be done about a schedule now; None: nothing. `new_id(now)` makes the id of a job."""
    if schedule.state is not ScheduleState.ACTIVE or schedule.next_at is None or schedule.next_at > now:
        return None
    if schedule.definition.kind is RuleKind.AFTER:
        return _plan_after(schedule, schedule.next_at, now, new_id)
    return _plan_fire_times(schedule, schedule.next_at, now, new_id)


def _plan_after(schedule: Schedule, at: int, now: int, new_id: NewId) -> FireRequest:
    """One run follows the other: nothing is ever missed, so nothing is caught up or late."""
    definition = schedule.definition
    ended = definition.end is not None and at >= definition.end
    return FireRequest(
        name=schedule.name,
        revision=schedule.revision,
        expected_cursor=schedule.cursor,
        fires=() if ended else (build_fire(definition, at, new_id(now)),),
        cursor=schedule.cursor if ended else at,
        next_at=None,
    )


def _plan_fire_times(schedule: Schedule, next_at: int, now: int, new_id: NewId) -> FireRequest:
    definition = schedule.definition
    rule = rule_of(definition)
    after = next_at - 1 if schedule.cursor is None else max(schedule.cursor, next_at - 1)
    cursor = schedule.cursor
    fires: list[int] = []
    skipped: list[SkippedRange] = []
    first = rule.next_after(after)
    following = None if first is None else rule.next_after(first)
    # None is due after all if another version of the time zone's rules has put next_at there.
    if first is None or first > now:
        following = first
    else:
        cursor, in_time = first, _oldest_on_time(definition, now, after)
        if following is not None and following <= now:
            cursor = rule.last_until(now) or first
            following = rule.next_after(now)
            skipped = skip_range(rule, after, in_time, "late")
            fires, caught = _choose_fires(definition, rule, in_time, cursor)
            skipped += caught
        elif first > in_time:
            fires = [first]  # the one moment that has come, as nearly always
        else:
            skipped = [SkippedRange(first=first, last=first, count=1, reason="late")]
    return FireRequest(
        name=schedule.name,
        revision=schedule.revision,
        expected_cursor=schedule.cursor,
        fires=tuple(build_fire(definition, at, new_id(now)) for at in fires),
        skipped=tuple(skipped),
        cursor=cursor,
        next_at=following,
    )


def _oldest_on_time(definition: NewSchedule, now: int, after: int) -> int:
    """Moments up to this one are too late."""
    max_late = definition.max_late
    if max_late is None and definition.catch_up is CatchUp.NONE:
        max_late = ON_TIME_WINDOW_US
    return after if max_late is None else max(after, now - max_late - 1)


def _choose_fires(definition: NewSchedule, rule: Rule, after: int, last: int) -> tuple[list[int], list[SkippedRange]]:
    """Which of the moments in (after, last] are fired, oldest first, and which are not."""
    most = definition.catch_up_limit if definition.catch_up is CatchUp.ALL else 1
    fires: list[int] = []
    at: int | None = last
    while at is not None and at > after and len(fires) < most:
        fires.append(at)
        at = rule.last_until(at - 1)
    if not fires:
        return [], []
    fires.reverse()
    reason = "limit" if definition.catch_up is CatchUp.ALL else "caught up"
    return fires, skip_range(rule, after, fires[0] - 1, reason)


def skip_range(rule: Rule, after: int, until: int, reason: str) -> list[SkippedRange]:
    """The moments in (after, until] as one skipped stretch; none if there are none."""
    first, last = rule.next_after(after), rule.last_until(until)
    if first is None or last is None or first > last:
        return []
    return [SkippedRange(first=first, last=last, count=rule.count(after, until), reason=reason)]


def fire_times_between(definition: NewSchedule, first: int, last: int, limit: int) -> list[int]:
    """The moments from `first` to `last`, both included, at most `limit` of them. With AFTER there are none."""
    if definition.kind is RuleKind.AFTER:
        return []
    rule = rule_of(definition)
    found: list[int] = []
    at = rule.next_after(first - 1)
    while at is not None and at <= last and len(found) < limit:
        found.append(at)
        at = rule.next_after(at)
    return found


def build_fire(definition: NewSchedule, at: int, job: JobId) -> PlannedFire:
    """A fire to be, with its jitter."""
    return PlannedFire(at=at, run_at=at + jitter(definition.name, at, definition.jitter), job=job)


def jitter(name: str, at: int, maximum: int) -> int:
    """0 to `most` microseconds: always the same for the same schedule and moment, whoever asks."""
    if maximum == 0:
        return 0
    return int.from_bytes(blake2b(f"{name}\0{at}".encode(), digest_size=8).digest(), "big") % (maximum + 1)
