"""Schedules, fires and runs as the API shows them: datetimes and seconds instead of microseconds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import msgspec

from drumbeat.core import schedule as core
from drumbeat.core.field_doc import doc
from drumbeat.core.job import Attempt, Failure, Job, JobState
from drumbeat.core.job_fields import AllJobFields
from drumbeat.durations import from_us
from drumbeat.ids import InstanceId, JobId
from drumbeat.schedules.description import describe_schedule
from drumbeat.schedules.interval import try_parse_us
from drumbeat.schedules.rules import describe_rule

JobFields = AllJobFields[datetime, float, bool, Failure]


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule."""

    name: str
    task: str
    state: core.ScheduleState
    when: Annotated[str, doc("Its rule, short: `0 3 * * * (Europe/Berlin)`.")]
    words: Annotated[str, doc("Its rule in words: `at 03:00 every day (Europe/Berlin)`.")]
    cron: str | None
    every: Annotated[float | None, doc("Seconds; None: it is a cron expression.")]
    grid: bool
    tz: str
    next_at: Annotated[
        datetime | None,
        doc("None: it has ended, is not active, or (interval from the end of a run) its run has not ended yet."),
    ]
    last_at: Annotated[datetime | None, doc("The last fire time that was fired or skipped.")]
    job: Annotated[JobId | None, doc("The job of the last fire, while it is not done.")]
    args: Annotated[str, doc("JSON text.")]
    queue: str
    priority: int
    retries: Annotated[int | None, doc("None: those of the task; likewise `timeout`, in seconds.")]
    timeout: float | None
    catch_up: core.CatchUp
    catch_up_limit: int
    max_late: float | None
    overlap: core.Overlap
    jitter: float
    start: datetime | None
    end: datetime | None
    origin: core.Origin
    app: str
    version: str
    revision: int
    created_at: datetime
    changed_at: datetime
    changed_by: str
    reason: str
    declared_at: Annotated[datetime | None, doc("When a running instance last declared it.")]


_CONVERTED = {"timeout", "max_late", "jitter", "start", "end"}
_COPIED = set(core.NewSchedule.__struct_fields__) & set(ScheduleInfo.__struct_fields__) - _CONVERTED


def schedule_info(schedule: core.Schedule) -> ScheduleInfo:
    made = schedule.definition
    return ScheduleInfo(
        **{name: getattr(made, name) for name in _COPIED},
        **{name: getattr(schedule, name) for name in ("state", "revision", "changed_by", "reason")},
        when=describe_rule(made),
        words=describe_schedule(made),
        cron=made.rule if made.kind is core.RuleKind.CRON else None,
        every=None if made.kind is core.RuleKind.CRON else _to_seconds(try_parse_us(made.rule)),
        grid=made.kind is core.RuleKind.GRID,
        next_at=_to_datetime(schedule.next_at),
        last_at=_to_datetime(schedule.cursor),
        job=schedule.current,
        timeout=_to_seconds(made.timeout),
        max_late=_to_seconds(made.max_late),
        jitter=made.jitter / 1_000_000,
        start=_to_datetime(made.start),
        end=_to_datetime(made.end),
        created_at=from_us(schedule.created_at),
        changed_at=from_us(schedule.changed_at),
        declared_at=_to_datetime(schedule.declared_at),
    )


class FireInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One fire, or a range of skipped ones."""

    schedule: str
    at: datetime
    last: Annotated[datetime, doc("The last fire time of a skipped range; equal to `at` otherwise.")]
    count: int
    outcome: core.FireOutcome
    reason: str
    job: JobId | None
    recorded_at: datetime
    late: Annotated[float, doc("Seconds from the fire time (of a range: the last one) to its record.")]
    state: Annotated[JobState | None, doc("Of its job, if that is still on record; likewise the fields below.")] = None
    attempt: Annotated[int | None, doc("The next, current or last one.")] = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    instance: InstanceId | None = None
    error: Failure | None = None


def fire_info(fire: core.Fire, job: Job | None) -> FireInfo:
    of_job = ("state", "attempt", "started_at", "finished_at", "instance", "error")
    return FireInfo(
        **{name: getattr(fire, name) for name in ("schedule", "count", "outcome", "reason", "job")},
        at=from_us(fire.at),
        last=from_us(fire.last),
        recorded_at=from_us(fire.recorded_at),
        late=max(0, fire.recorded_at - fire.last) / 1_000_000,
        **({} if job is None else {name: getattr(job, name) for name in of_job}),
    )


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job: when it was due, when and where it ran, and how it ended."""

    job: JobId
    task: str
    schedule: str | None
    number: Annotated[int, doc("Which of the job's runs, from 1.")]
    due_at: Annotated[datetime, doc("The time for which it was enqueued: of a fire, the fire time.")]
    started_at: datetime | None
    finished_at: Annotated[datetime | None, doc("None: it is running.")]
    instance: InstanceId | None
    outcome: Annotated[
        str, doc("succeeded, retry, dead, cancelled, snoozed, released, suspended, crashed; or running.")
    ]
    error: Failure | None
    late: Annotated[float | None, doc("Seconds from due_at to started_at.")]


def job_runs(job: JobFields, attempts: Iterable[Attempt]) -> list[Run]:
    """All runs of a job, oldest first, with the one in progress."""
    found = [
        new_run(job, number, str(each.outcome), each.started_at, each.finished_at, each.instance, each.error)
        for number, each in enumerate(attempts, start=1)
    ]
    if job.state is JobState.RUNNING:
        found.append(new_run(job, len(found) + 1, "running", job.started_at, None, job.instance, None))
    return found


def new_run(
    job: JobFields,
    number: int,
    outcome: str,
    started_at: datetime | None,
    finished_at: datetime | None,
    instance: InstanceId | None,
    error: Failure | None,
) -> Run:
    return Run(
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


def _to_datetime(us: int | None) -> datetime | None:
    return None if us is None else from_us(us)


def _to_seconds(us: int | None) -> float | None:
    return None if us is None else us / 1_000_000
