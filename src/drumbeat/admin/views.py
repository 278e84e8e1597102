"""Schedules, fires and runs as the API shows them: datetimes and seconds instead of microseconds."""

from __future__ import annotations

from datetime import datetime

import msgspec

from drumbeat.core.job import Attempt, Failure, Job, JobState
from drumbeat.core.schedule import CatchUp, Fire, FireOutcome, Origin, Overlap, RuleKind, Schedule, ScheduleState
from drumbeat.durations import from_us
from drumbeat.ids import InstanceId, JobId
from drumbeat.schedules.description import describe_schedule
from drumbeat.schedules.interval import try_parse_us
from drumbeat.schedules.rules import describe_rule


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule."""

    name: str
    task: str
    state: ScheduleState
    when: str
    """Its rule, short: `0 3 * * * (Europe/Berlin)`."""
    words: str
    """Its rule in words: `at 03:00 every day (Europe/Berlin)`."""
    cron: str | None
    every: float | None
    """Seconds; None: it is a cron expression."""
    grid: bool
    tz: str
    next_at: datetime | None
    """None: it has ended, is not active, or (interval from the end of a run) its run has not ended yet."""
    last_at: datetime | None
    """The last fire time that was fired or skipped."""
    job: JobId | None
    """The job of the last fire, while it is not done."""
    args: str
    """JSON text."""
    queue: str
    priority: int
    retries: int | None
    """None: those of the task; likewise `timeout`, in seconds."""
    timeout: float | None
    catch_up: CatchUp
    catch_up_limit: int
    max_late: float | None
    overlap: Overlap
    jitter: float
    start: datetime | None
    end: datetime | None
    origin: Origin
    app: str
    version: str
    revision: int
    created_at: datetime
    changed_at: datetime
    changed_by: str
    reason: str
    declared_at: datetime | None
    """When a running instance last declared it."""


def schedule_info(schedule: Schedule) -> ScheduleInfo:
    made = schedule.definition
    return ScheduleInfo(
        name=made.name,
        task=made.task,
        state=schedule.state,
        when=describe_rule(made),
        words=describe_schedule(made),
        cron=made.rule if made.kind is RuleKind.CRON else None,
        every=None if made.kind is RuleKind.CRON else _to_seconds(try_parse_us(made.rule)),
        grid=made.kind is RuleKind.GRID,
        tz=made.tz,
        next_at=_to_datetime(schedule.next_at),
        last_at=_to_datetime(schedule.cursor),
        job=schedule.current,
        args=made.args,
        queue=made.queue,
        priority=made.priority,
        retries=made.retries,
        timeout=_to_seconds(made.timeout),
        catch_up=made.catch_up,
        catch_up_limit=made.catch_up_limit,
        max_late=_to_seconds(made.max_late),
        overlap=made.overlap,
        jitter=made.jitter / 1_000_000,
        start=_to_datetime(made.start),
        end=_to_datetime(made.end),
        origin=made.origin,
        app=made.app,
        version=made.version,
        revision=schedule.revision,
        created_at=from_us(schedule.created_at),
        changed_at=from_us(schedule.changed_at),
        changed_by=schedule.changed_by,
        reason=schedule.reason,
        declared_at=_to_datetime(schedule.declared_at),
    )


class FireInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One fire, or a range of skipped ones."""

    schedule: str
    at: datetime
    last: datetime
    """The last fire time of a skipped range; equal to `at` otherwise."""
    count: int
    outcome: FireOutcome
    reason: str
    job: JobId | None
    recorded_at: datetime
    late: float
    """Seconds from the fire time (of a range: the last one) to its record."""
    state: JobState | None = None
    """Of its job, if that is still on record; likewise the fields below."""
    attempt: int | None = None
    """The next, current or last one."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    instance: InstanceId | None = None
    error: Failure | None = None


def fire_info(fire: Fire, job: Job | None) -> FireInfo:
    return FireInfo(
        schedule=fire.schedule,
        at=from_us(fire.at),
        last=from_us(fire.last),
        count=fire.count,
        outcome=fire.outcome,
        reason=fire.reason,
        job=fire.job,
        recorded_at=from_us(fire.recorded_at),
        late=max(0, fire.recorded_at - fire.last) / 1_000_000,
        state=None if job is None else job.state,
        attempt=None if job is None else job.attempt,
        started_at=None if job is None else job.started_at,
        finished_at=None if job is None else job.finished_at,
        instance=None if job is None else job.instance,
        error=None if job is None else job.error,
    )


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job: when it was due, when and where it ran, and how it ended."""

    job: JobId
    task: str
    schedule: str | None
    number: int
    """Which of the job's runs, from 1."""
    due_at: datetime
    """The time for which it was enqueued: of a fire, the fire time."""
    started_at: datetime | None
    finished_at: datetime | None
    """None: it is running."""
    instance: InstanceId | None
    outcome: str
    """succeeded, retry, dead, cancelled, snoozed, released, crashed; or running."""
    error: Failure | None
    late: float | None
    """Seconds from due_at to started_at."""


def job_runs(job: Job, attempts: list[Attempt]) -> list[Run]:
    """All runs of a job, newest first."""
    ended = [(str(each.outcome), each.started_at, each.finished_at, each.instance, each.error) for each in attempts]
    running = [("running", job.started_at, None, job.instance, None)] if job.state is JobState.RUNNING else []
    found = [
        Run(
            job=job.id,
            task=job.task,
            schedule=job.schedule,
            number=number,
            due_at=job.due_at,
            started_at=started_at,
            finished_at=finished_at,
            instance=instance,
            outcome=outcome,
            error=error,
            late=None if started_at is None else max(0.0, (started_at - job.due_at).total_seconds()),
        )
        for number, (outcome, started_at, finished_at, instance, error) in enumerate([*ended, *running], start=1)
    ]
    return found[::-1]


def _to_datetime(us: int | None) -> datetime | None:
    return None if us is None else from_us(us)


def _to_seconds(us: int | None) -> float | None:
    return None if us is None else us / 1_000_000
