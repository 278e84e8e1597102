"""Plans what a schedule, as the store has it, must fire and skip at a given time.

    cursor          next_at                   late before           last       now
      |---------------|--x--x--x--x--x--x--x----|--x--x--x--x--x--x--x----------|
        processed        skipped: late              by catch_up

Pure: the same schedule and time give the same plan in every controller, except for the ids of jobs; the store decides which of
two controllers' plans is carried out. It costs microseconds for every fire and almost nothing for skipped ones, so that a
missed year of a rule that fires every second does not delay a heartbeat.
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
"""With catch_up="none", how late a fire may be and still count as on time, unless max_late is set. Replacing a dead leader
takes 2 s, which must not skip a fire."""

NewId = Callable[[int], JobId]


def first_fire_time(definition: NewSchedule, now: int) -> int | None:
    """The first fire time of a new or changed schedule: the first after now, with AFTER at once; none before `start`."""
    if definition.kind is not RuleKind.AFTER:
        return rule_of(definition).next_after(now)
    first = now if definition.start is None else max(now, definition.start)
    return first if definition.end is None or first < definition.end else None


def next_after_change(known: Schedule, definition: NewSchedule, now: int) -> int | None:
    """The next fire time of a schedule whose rule has changed."""
    if definition.kind is RuleKind.AFTER and known.definition.kind is RuleKind.AFTER:
        if known.next_at is None:
            return None  # set by the end of the current run
        # Never later than before: changes more frequent than the interval must not starve it.
        return min(known.next_at, now + int(definition.rule))
    return first_fire_time(definition, now)


def plan(schedule: Schedule, now: int, new_id: NewId) -> FireRequest | None:
    """What to fire and skip now; None if nothing is due. `new_id(now)` makes the id of a job."""
    if schedule.state is not ScheduleState.ACTIVE or schedule.next_at is None or schedule.next_at > now:
        return None
    if schedule.definition.kind is RuleKind.AFTER:
        return _plan_after(schedule, schedule.next_at, now, new_id)
    return _plan_fire_times(schedule, schedule.next_at, now, new_id)


def _plan_after(schedule: Schedule, at: int, now: int, new_id: NewId) -> FireRequest:
    """One run follows the other: nothing is missed, so nothing is caught up or late."""
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
    # Nothing is due if next_at was computed with another version of the time zone's rules.
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
            fires = [first]  # the common case: one fire is due
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
    """Fire times up to this one are too late."""
    max_late = definition.max_late
    if max_late is None and definition.catch_up is CatchUp.NONE:
        max_late = ON_TIME_WINDOW_US
    return after if max_late is None else max(after, now - max_late - 1)


def _choose_fires(definition: NewSchedule, rule: Rule, after: int, last: int) -> tuple[list[int], list[SkippedRange]]:
    """Which of the fire times in (after, last] to fire, oldest first, and which to skip."""
    max_fires = definition.catch_up_limit if definition.catch_up is CatchUp.ALL else 1
    fires: list[int] = []
    at: int | None = last
    while at is not None and at > after and len(fires) < max_fires:
        fires.append(at)
        at = rule.last_until(at - 1)
    if not fires:
        return [], []
    fires.reverse()
    reason = "limit" if definition.catch_up is CatchUp.ALL else "caught up"
    return fires, skip_range(rule, after, fires[0] - 1, reason)


def skip_range(rule: Rule, after: int, until: int, reason: str) -> list[SkippedRange]:
    """The fire times in (after, until] as one skipped range; empty if there are none."""
    first, last = rule.next_after(after), rule.last_until(until)
    if first is None or last is None or first > last:
        return []
    return [SkippedRange(first=first, last=last, count=rule.count(after, until), reason=reason)]


def fire_times_between(definition: NewSchedule, first: int, last: int, limit: int) -> list[int]:
    """The fire times from `first` to `last`, both included, at most `limit`. With AFTER there are none."""
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
    """A planned fire, with its jitter."""
    return PlannedFire(at=at, run_at=at + jitter(definition.name, at, definition.jitter), job=job)


def jitter(name: str, at: int, maximum: int) -> int:
    """0 to `maximum` microseconds, always the same for the same schedule and fire time."""
    if maximum == 0:
        return 0
    return int.from_bytes(blake2b(f"{name}\0{at}".encode(), digest_size=8).digest(), "big") % (maximum + 1)
