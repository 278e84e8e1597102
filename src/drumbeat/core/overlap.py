"""What SQL engines share about schedules: the order of their columns, and what is to be done about a fire.

The decision is pure: an engine finds out how a schedule stands (locked, in its transaction), asks `decide`, and writes down
what comes of it in a few statements for all schedules together. Which moments are due is not decided here but by the planner.
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
    ScheduleState,
    SkippedRange,
    blocked_on_schedule,
)
from drumbeat.ids import JobId

OVERLAP_REASON = "overlap"


class FireRow(msgspec.Struct, frozen=True, array_like=True):
    """A record of moments, as it is stored."""

    schedule: str
    at: int
    last: int
    count: int
    outcome: FireOutcome
    reason: str
    job: JobId | None
    recorded_at: int

    def to_record(self) -> Fire:
        return Fire(**msgspec.structs.asdict(self))


class ScheduleSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """How a schedule stands when it is to be fired; the order of fields is that of the statement `standing`."""

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
    """Jobs that wait for its end; only looked for with overlap="cancel"."""


class ScheduledJob(msgspec.Struct, frozen=True, array_like=True):
    """A job to be made of a schedule's definition."""

    schedule: str
    job: JobId
    due_at: int
    run_at: int
    blocked_on: str | None


class ScheduleUpdate(msgspec.Struct, frozen=True, array_like=True):
    """What a schedule is like after a fire."""

    name: str
    advances: bool
    """False: cursor and next_at stay."""
    cursor: int | None
    next_at: int | None
    current: JobId | None


class FirePlan(msgspec.Struct, kw_only=True):
    """What is to be written for one Firing that is not refused."""

    result: FireResult
    cancel: tuple[JobId, ...] = ()
    request_cancel: tuple[JobId, ...] = ()
    jobs: tuple[ScheduledJob, ...] = ()
    records: tuple[FireRow, ...] = ()
    update: ScheduleUpdate | None = None


def interval_of(schedule: NewSchedule) -> int | None:
    """The rule as a number where the end of a job sets the next moment."""
    return int(schedule.rule) if schedule.kind is RuleKind.AFTER else None


def split_into_rounds(firings: Sequence[FireRequest]) -> list[list[tuple[int, FireRequest]]]:
    """Firings with their places, in rounds in which each schedule comes up once."""
    rounds: list[list[tuple[int, FireRequest]]] = []
    seen: dict[str, int] = {}
    for place, firing in enumerate(firings):
        turn = seen.get(firing.name, 0)
        seen[firing.name] = turn + 1
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append((place, firing))
    return rounds


def make_skip_row(name: str, skip: SkippedRange, now: int) -> FireRow:
    return FireRow(name, skip.first, skip.last, skip.count, FireOutcome.SKIPPED, skip.reason, None, now)


def plan_fire(
    snapshot: ScheduleSnapshot | None, request: FireRequest, recorded: Collection[tuple[str, int]], now: int
) -> FirePlan:
    """What is to be done about one firing; `recorded` are (schedule, moment) that have been fired before."""
    if snapshot is None or not _can_fire(snapshot, request):
        return FirePlan(result=FireResult(name=request.name, applied=False))
    # The first of each, should somebody have named one twice.
    once = {moment.at: moment for moment in reversed(request.fires)}
    new = [each for each in request.fires if once[each.at] is each and (request.name, each.at) not in recorded]
    plan = (
        _plan_cancelling(snapshot, new, now)
        if snapshot.overlap is Overlap.CANCEL
        else _plan_queueing(snapshot, new, now)
    )
    plan.records += tuple(make_skip_row(request.name, skip, now) for skip in request.skipped)
    jobs = tuple(job.job for job in plan.jobs)
    plan.result = FireResult(name=request.name, applied=True, jobs=jobs, skipped=len(request.fires) - len(jobs))
    plan.update = _plan_update(snapshot, request, plan)
    return plan


def _can_fire(snapshot: ScheduleSnapshot, request: FireRequest) -> bool:
    if snapshot.state is not ScheduleState.ACTIVE:
        return False
    return not request.advances or (snapshot.revision, snapshot.cursor) == (request.revision, request.expected_cursor)


def _plan_queueing(snapshot: ScheduleSnapshot, fires: Sequence[PlannedFire], now: int) -> FirePlan:
    """SKIP, QUEUE and ALLOW: nobody is cancelled."""
    jobs: list[ScheduledJob] = []
    records: list[FireRow] = []
    live = snapshot.live_state is not None
    for moment in fires:
        if not live or snapshot.overlap is Overlap.ALLOW:
            jobs.append(_make_job(snapshot.name, moment, blocked=False))
            records.append(_make_fire_row(snapshot.name, moment, FireOutcome.FIRED, now))
            live = True
        elif snapshot.overlap is Overlap.QUEUE:
            jobs.append(_make_job(snapshot.name, moment, blocked=True))
            records.append(_make_fire_row(snapshot.name, moment, FireOutcome.QUEUED, now))
        else:
            records.append(_make_fire_row(snapshot.name, moment, FireOutcome.SKIPPED, now))
    return FirePlan(result=FireResult(name=snapshot.name, applied=True), jobs=tuple(jobs), records=tuple(records))


def _plan_cancelling(snapshot: ScheduleSnapshot, fires: Sequence[PlannedFire], now: int) -> FirePlan:
    """CANCEL: the last moment gets a job. One that would be cancelled in the very step that makes it is not made."""
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
        *(_make_fire_row(snapshot.name, moment, FireOutcome.SKIPPED, now) for moment in fires[:-1]),
        _make_fire_row(snapshot.name, last, FireOutcome.QUEUED if running else FireOutcome.FIRED, now),
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


def _make_fire_row(name: str, fire: PlannedFire, outcome: FireOutcome, now: int) -> FireRow:
    if outcome is FireOutcome.SKIPPED:
        return FireRow(name, fire.at, fire.at, 1, outcome, OVERLAP_REASON, None, now)
    return FireRow(name, fire.at, fire.at, 1, outcome, "", fire.job, now)
