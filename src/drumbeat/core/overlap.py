"""Overlap: what a fire does while the job of the previous fire is live. Pure.

The planner (`schedules/`) decides which fire times are due. The SQL engines load a `ScheduleSnapshot` (locked, in the
transaction), call `plan_fire`, and write the plans of all schedules in a few statements (`FireBatch`). Redis decides inside
`lua/fire_schedules.lua`; tests/contract/test_rules_schedules.py compares every engine with `plan_fire`.
"""

from collections.abc import Collection, Sequence

import msgspec

from drumbeat.core.schedule import (
    Fire,
    FireOutcome,
    FireRequest,
    FireResult,
    NewSchedule,
    Overlap,
    PlannedFire,
    RuleKind,
    Schedule,
    ScheduleState,
    SkippedRange,
    blocked_on_schedule,
)
from drumbeat.ids import JobId

OVERLAP_REASON = "overlap"


class ScheduleSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state of a schedule before a fire; the order of fields is that of SQLite's statement `snapshots`."""

    name: str
    revision: int
    cursor: int | None
    state: ScheduleState
    overlap: Overlap
    interval: int | None
    """The rule, with AFTER."""
    current: JobId | None
    live_state: str | None
    """The state of the current job while it is live."""
    waiting: list[JobId]
    """Jobs that wait for its end; only loaded with overlap="cancel"."""


class ScheduledJob(msgspec.Struct, frozen=True, array_like=True):
    """A job to be enqueued with the definition of a schedule."""

    schedule: str
    job: JobId
    due_at: int
    run_at: int
    blocked_on: str | None


class ScheduleUpdate(msgspec.Struct, frozen=True, array_like=True):
    """The state of a schedule after a fire."""

    name: str
    advances: bool
    """False: cursor and next_at stay."""
    cursor: int | None
    next_at: int | None
    current: JobId | None


class FirePlan(msgspec.Struct, kw_only=True):
    """What to write for one FireRequest; nothing if it is refused."""

    result: FireResult
    cancel: tuple[JobId, ...] = ()
    request_cancel: tuple[JobId, ...] = ()
    jobs: tuple[ScheduledJob, ...] = ()
    records: tuple[Fire, ...] = ()
    update: ScheduleUpdate | None = None


class FireBatch:
    """The plans of several schedules, by what is written: one statement for each part, in this order."""

    def __init__(self, plans: Sequence[FirePlan]) -> None:
        self.cleared = [plan.result.name for plan in plans if plan.cancel and not plan.request_cancel]
        """Schedules whose current job is cancelled: its end must not start a successor."""
        self.cancel = [id for plan in plans for id in plan.cancel]
        self.request_cancel = [id for plan in plans for id in plan.request_cancel]
        self.jobs = [job for plan in plans for job in plan.jobs]
        self.records = [row for plan in plans for row in plan.records]
        self.updates = [plan.update for plan in plans if plan.update is not None]
        self.earliest_run_at = min((job.run_at for job in self.jobs if job.blocked_on is None), default=None)


def interval_of(schedule: NewSchedule) -> int | None:
    """The rule as a number where the end of a job sets the next fire time."""
    return int(schedule.rule) if schedule.kind is RuleKind.AFTER else None


def next_fire_after_end(schedule: Schedule, *, has_successor: bool, now: int) -> int | None:
    """next_at of a schedule whose current job has ended, where the store records the end at `now`.

    The interval counts from the record of the end, not from `finished_at`, which is the worker's word. The engines decide in
    the step that ends the job: PostgreSQL in a trigger, SQLite in the statement advance_intervals, Redis in
    `lua/_transitions.lua` (start_next).
    """
    interval, end = interval_of(schedule.definition), schedule.definition.end
    if interval is None:
        return schedule.next_at
    is_over = has_successor or schedule.state is not ScheduleState.ACTIVE or (end is not None and now + interval >= end)
    return None if is_over else now + interval


def split_into_rounds(requests: Sequence[FireRequest]) -> list[list[tuple[int, FireRequest]]]:
    """Requests with their positions, in rounds in which each schedule occurs once."""
    rounds: list[list[tuple[int, FireRequest]]] = []
    seen: dict[str, int] = {}
    for position, request in enumerate(requests):
        number = seen.get(request.name, 0)
        seen[request.name] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append((position, request))
    return rounds


def make_skip(name: str, skip: SkippedRange, now: int) -> Fire:
    return Fire(name, skip.first, skip.last, skip.count, FireOutcome.SKIPPED, skip.reason, None, now)


def plan_fire(
    snapshot: ScheduleSnapshot | None, request: FireRequest, recorded: Collection[tuple[str, int]], now: int
) -> FirePlan:
    """What to do about one request. `recorded`: the (schedule, fire time) that were fired before."""
    if snapshot is None or not _can_fire(snapshot, request):
        return FirePlan(result=FireResult(name=request.name, applied=False))
    # The first of each fire time, should one be given twice.
    once = {fire.at: fire for fire in reversed(request.fires)}
    new = [each for each in request.fires if once[each.at] is each and (request.name, each.at) not in recorded]
    plan = (
        _plan_cancelling(snapshot, new, now)
        if snapshot.overlap is Overlap.CANCEL
        else _plan_queueing(snapshot, new, now)
    )
    plan.records += tuple(make_skip(request.name, skip, now) for skip in request.skipped)
    jobs = tuple(job.job for job in plan.jobs)
    plan.result = FireResult(name=request.name, applied=True, jobs=jobs, skipped=len(request.fires) - len(jobs))
    plan.update = _plan_update(snapshot, request, plan)
    return plan


def _can_fire(snapshot: ScheduleSnapshot, request: FireRequest) -> bool:
    if snapshot.state is not ScheduleState.ACTIVE:
        return False
    return not request.advances or (snapshot.revision, snapshot.cursor) == (request.revision, request.expected_cursor)


def _plan_queueing(snapshot: ScheduleSnapshot, fires: Sequence[PlannedFire], now: int) -> FirePlan:
    """SKIP, QUEUE and ALLOW: no job is cancelled."""
    jobs: list[ScheduledJob] = []
    records: list[Fire] = []
    live = snapshot.live_state is not None
    for fire in fires:
        if not live or snapshot.overlap is Overlap.ALLOW:
            jobs.append(_make_job(snapshot.name, fire, blocked=False))
            records.append(_make_fire(snapshot.name, fire, FireOutcome.FIRED, now))
            live = True
        elif snapshot.overlap is Overlap.QUEUE:
            jobs.append(_make_job(snapshot.name, fire, blocked=True))
            records.append(_make_fire(snapshot.name, fire, FireOutcome.QUEUED, now))
        else:
            records.append(_make_fire(snapshot.name, fire, FireOutcome.SKIPPED, now))
    return FirePlan(result=FireResult(name=snapshot.name, applied=True), jobs=tuple(jobs), records=tuple(records))


def _plan_cancelling(snapshot: ScheduleSnapshot, fires: Sequence[PlannedFire], now: int) -> FirePlan:
    """CANCEL: the last fire time gets a job; jobs of the others would be cancelled in the same step."""
    plan = FirePlan(result=FireResult(name=snapshot.name, applied=True))
    if not fires:
        return plan
    running = snapshot.live_state == "running"
    plan.cancel = tuple(snapshot.waiting)
    if snapshot.current is not None and snapshot.live_state is not None:
        if running:
            plan.request_cancel = (snapshot.current,)
        else:
            plan.cancel += (snapshot.current,)
    last = fires[-1]
    plan.jobs = (_make_job(snapshot.name, last, blocked=running),)
    plan.records = (
        *(_make_fire(snapshot.name, fire, FireOutcome.SKIPPED, now) for fire in fires[:-1]),
        _make_fire(snapshot.name, last, FireOutcome.QUEUED if running else FireOutcome.FIRED, now),
    )
    return plan


def _plan_update(snapshot: ScheduleSnapshot, request: FireRequest, plan: FirePlan) -> ScheduleUpdate | None:
    started = [job.job for job in plan.jobs if job.blocked_on is None]
    current = started[-1] if started else snapshot.current
    if not request.advances:
        return ScheduleUpdate(request.name, False, None, None, current) if started else None
    live = bool(started) or snapshot.live_state is not None
    next_at = None if snapshot.interval is not None and live else request.next_at
    return ScheduleUpdate(request.name, True, request.cursor, next_at, current)


def _make_job(name: str, fire: PlannedFire, *, blocked: bool) -> ScheduledJob:
    return ScheduledJob(name, fire.job, fire.at, fire.run_at, blocked_on_schedule(name) if blocked else None)


def _make_fire(name: str, fire: PlannedFire, outcome: FireOutcome, now: int) -> Fire:
    if outcome is FireOutcome.SKIPPED:
        return Fire(name, fire.at, fire.at, 1, outcome, OVERLAP_REASON, None, now)
    return Fire(name, fire.at, fire.at, 1, outcome, "", fire.job, now)
