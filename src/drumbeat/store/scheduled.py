"""What SQL engines share about schedules: the order of their columns, and what is to be done about a fire.

The decision is pure: an engine finds out how a schedule stands (locked, in its transaction), asks `decide`, and writes down
what comes of it in a few statements for all schedules together. Which moments are due is not decided here but by the planner.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from drumbeat.ids import JobId
from drumbeat.model.schedule import (
    CatchUp,
    Fire,
    Fired,
    FireOutcome,
    Firing,
    Moment,
    NewSchedule,
    Origin,
    Overlap,
    RuleKind,
    Schedule,
    ScheduleState,
    Skip,
    waits_for_schedule,
)
from drumbeat.store.malformed import reasons

OVERLAP = "overlap"
_DEFINITION = NewSchedule.__struct_fields__


class ScheduleRow(msgspec.Struct, frozen=True, array_like=True):
    """A schedule; the order of fields is the order of columns in the `.sql` files."""

    name: str
    task: str
    kind: RuleKind
    rule: str
    queue: str
    args: str
    signature: str
    tz: str
    priority: int
    retries: int | None
    timeout: int | None
    crash_limit: int
    on_dead: str | None
    catch_up: CatchUp
    catch_up_limit: int
    max_late: int | None
    overlap: Overlap
    jitter: int
    start: int | None
    end: int | None
    origin: Origin
    app: str
    version: str
    state: ScheduleState
    revision: int
    cursor: int | None
    next_at: int | None
    current: JobId | None
    created_at: int
    changed_at: int
    declared_at: int | None
    changed_by: str
    why: str

    def record(self) -> Schedule:
        facts = msgspec.structs.asdict(self)
        definition = NewSchedule(**{name: facts.pop(name) for name in _DEFINITION})
        return Schedule(definition=definition, **facts)


def mend_schedule(faults: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """What makes a schedule with faults readable, shown as such, and never fired: no planner reads such a rule."""
    return {"kind": RuleKind.CRON, "rule": f"undecodable: {reasons(faults)}"}


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

    def record(self) -> Fire:
        return Fire(**msgspec.structs.asdict(self))


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """How a schedule stands when it is to be fired; the order of fields is that of the statement `standing`."""

    name: str
    revision: int
    cursor: int | None
    state: ScheduleState
    overlap: Overlap
    every: int | None
    """The rule, with AFTER."""
    current: JobId | None
    live: str | None
    """The state of the current job while it is live."""
    waiting: list[JobId]
    """Jobs that wait for its end; only looked for with overlap="cancel"."""


class Enqueued(msgspec.Struct, frozen=True, array_like=True):
    """A job to be made of a schedule's definition."""

    schedule: str
    job: JobId
    due_at: int
    run_at: int
    waits_for: str | None


class Moved(msgspec.Struct, frozen=True, array_like=True):
    """What a schedule is like after a fire."""

    name: str
    moves: bool
    """False: cursor and next_at stay."""
    cursor: int | None
    next_at: int | None
    current: JobId | None


class Plan(msgspec.Struct, kw_only=True):
    """What is to be written for one Firing that is not refused."""

    fired: Fired
    cancel: tuple[JobId, ...] = ()
    ask_to_stop: tuple[JobId, ...] = ()
    jobs: tuple[Enqueued, ...] = ()
    records: tuple[FireRow, ...] = ()
    moved: Moved | None = None


def every(schedule: NewSchedule) -> int | None:
    """The rule as a number where the end of a job sets the next moment."""
    return int(schedule.rule) if schedule.kind is RuleKind.AFTER else None


def in_rounds(firings: Sequence[Firing]) -> list[list[tuple[int, Firing]]]:
    """Firings with their places, in rounds in which each schedule comes up once."""
    rounds: list[list[tuple[int, Firing]]] = []
    seen: dict[str, int] = {}
    for place, firing in enumerate(firings):
        turn = seen.get(firing.name, 0)
        seen[firing.name] = turn + 1
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append((place, firing))
    return rounds


def skip_row(name: str, skip: Skip, now: int) -> FireRow:
    return FireRow(name, skip.first, skip.last, skip.count, FireOutcome.SKIPPED, skip.reason, None, now)


def decide(standing: Standing | None, firing: Firing, recorded: Collection[tuple[str, int]], now: int) -> Plan:
    """What is to be done about one firing; `recorded` are (schedule, moment) that have been fired before."""
    if standing is None or not _may_fire(standing, firing):
        return Plan(fired=Fired(name=firing.name, done=False))
    # The first of each, should somebody have named one twice.
    once = {moment.at: moment for moment in reversed(firing.fires)}
    new = [each for each in firing.fires if once[each.at] is each and (firing.name, each.at) not in recorded]
    plan = _cancelling(standing, new, now) if standing.overlap is Overlap.CANCEL else _lining_up(standing, new, now)
    plan.records += tuple(skip_row(firing.name, skip, now) for skip in firing.skipped)
    jobs = tuple(job.job for job in plan.jobs)
    plan.fired = Fired(name=firing.name, done=True, jobs=jobs, skipped=len(firing.fires) - len(jobs))
    plan.moved = _moved(standing, firing, plan)
    return plan


def _may_fire(standing: Standing, firing: Firing) -> bool:
    if standing.state is not ScheduleState.ACTIVE:
        return False
    return not firing.moves or (standing.revision, standing.cursor) == (firing.revision, firing.cursor_before)


def _lining_up(standing: Standing, moments: Sequence[Moment], now: int) -> Plan:
    """SKIP, QUEUE and ALLOW: nobody is cancelled."""
    jobs: list[Enqueued] = []
    records: list[FireRow] = []
    live = standing.live is not None
    for moment in moments:
        if not live or standing.overlap is Overlap.ALLOW:
            jobs.append(_job(standing.name, moment, waits=False))
            records.append(_fire(standing.name, moment, FireOutcome.FIRED, now))
            live = True
        elif standing.overlap is Overlap.QUEUE:
            jobs.append(_job(standing.name, moment, waits=True))
            records.append(_fire(standing.name, moment, FireOutcome.QUEUED, now))
        else:
            records.append(_fire(standing.name, moment, FireOutcome.SKIPPED, now))
    return Plan(fired=Fired(name=standing.name, done=True), jobs=tuple(jobs), records=tuple(records))


def _cancelling(standing: Standing, moments: Sequence[Moment], now: int) -> Plan:
    """CANCEL: the last moment gets a job. One that would be cancelled in the very step that makes it is not made."""
    plan = Plan(fired=Fired(name=standing.name, done=True))
    if not moments:
        return plan
    running = standing.live == "running"
    plan.cancel = tuple(standing.waiting)
    if standing.current is not None and standing.live is not None:
        if running:
            plan.ask_to_stop = (standing.current,)
        else:
            plan.cancel += (standing.current,)
    last = moments[-1]
    plan.jobs = (_job(standing.name, last, waits=running),)
    plan.records = (
        *(_fire(standing.name, moment, FireOutcome.SKIPPED, now) for moment in moments[:-1]),
        _fire(standing.name, last, FireOutcome.QUEUED if running else FireOutcome.FIRED, now),
    )
    return plan


def _moved(standing: Standing, firing: Firing, plan: Plan) -> Moved | None:
    started = [job.job for job in plan.jobs if job.waits_for is None]
    current = started[-1] if started else standing.current
    if not firing.moves:
        return Moved(firing.name, False, None, None, current) if started else None
    live = bool(started) or standing.live is not None
    next_at = None if standing.every is not None and live else firing.next_at
    return Moved(firing.name, True, firing.cursor, next_at, current)


def _job(name: str, moment: Moment, *, waits: bool) -> Enqueued:
    return Enqueued(name, moment.job, moment.at, moment.run_at, waits_for_schedule(name) if waits else None)


def _fire(name: str, moment: Moment, outcome: FireOutcome, now: int) -> FireRow:
    if outcome is FireOutcome.SKIPPED:
        return FireRow(name, moment.at, moment.at, 1, outcome, OVERLAP, None, now)
    return FireRow(name, moment.at, moment.at, 1, outcome, "", moment.job, now)
