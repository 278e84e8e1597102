"""Rows of jobs, attempts, instances, acts and roll-ups as SQL engines give them, and their way to our records.

The order of fields is the order of columns in the `.sql` files. Times are still integers here. `mend_*` says what becomes of a
row that cannot be read as it is: it is shown, with the reason where people look.
"""

from datetime import datetime
from typing import Any

import msgspec

from drumbeat.core.audit import AuditEntry
from drumbeat.core.instance import Instance, InstanceState, Role
from drumbeat.core.job import Attempt, Job, JobState, OutcomeKind, Unique
from drumbeat.core.schedule import CatchUp, NewSchedule, Origin, Overlap, RuleKind, Schedule, ScheduleState
from drumbeat.durations import from_us
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.malformed import UNREADABLE_NAME, join_reasons, read_failure, undecodable_failure

Faults = list[tuple[str, str]]

_DEFINITION_FIELDS = NewSchedule.__struct_fields__

to_datetime = from_us


def to_datetime_or_none(us: int | None) -> datetime | None:
    return None if us is None else to_datetime(us)


class StoredJobRow(msgspec.Struct, frozen=True, array_like=True):
    """A job of any table; columns that a table lacks are null."""

    id: JobId
    task: str
    queue: str
    state: JobState
    priority: int
    key: str | None
    args: str
    signature: str
    created_at: int
    due_at: int
    run_at: int
    started_at: int | None
    finished_at: int | None
    instance: InstanceId | None
    token: int
    outcome: OutcomeKind | None
    failures: int
    crashes: int
    retries: int | None
    timeout: int | None
    crash_limit: int
    unique: Unique
    blocked_on: str | None
    blocked_since: int | None
    cancel_requested: bool | int
    progress: str | None
    result: str | None
    result_error: str | None
    error: str | None
    on_dead: str | None
    replays: int
    tenant: str
    schedule: str | None
    trace: str | None

    def to_record(self) -> Job:
        return Job(
            id=self.id,
            task=self.task,
            queue=self.queue,
            state=self.state,
            priority=self.priority,
            key=self.key,
            args=self.args,
            signature=self.signature,
            created_at=to_datetime(self.created_at),
            due_at=to_datetime(self.due_at),
            run_at=to_datetime(self.run_at),
            started_at=to_datetime_or_none(self.started_at),
            finished_at=to_datetime_or_none(self.finished_at),
            instance=self.instance,
            token=self.token,
            failures=self.failures,
            crashes=self.crashes,
            retries=self.retries,
            timeout=None if self.timeout is None else self.timeout / 1_000_000,
            crash_limit=self.crash_limit,
            unique=self.unique,
            blocked_on=self.blocked_on,
            cancel_requested=bool(self.cancel_requested),
            progress=self.progress,
            result=self.result,
            result_error=self.result_error,
            error=read_failure(self.error),
            on_dead=self.on_dead,
            replays=self.replays,
            tenant=self.tenant,
            schedule=self.schedule,
            trace=self.trace,
        )

    def last_attempt(self) -> Attempt | None:
        """The run that ended this job; None if it ended without one."""
        if self.outcome is None or self.finished_at is None:
            return None
        if self.outcome is OutcomeKind.CANCELLED and self.started_at is None:
            return None  # it was claimed, heard of its cancellation and never started
        return Attempt(
            token=self.token,
            instance=self.instance,
            outcome=self.outcome,
            started_at=to_datetime_or_none(self.started_at),
            finished_at=to_datetime(self.finished_at),
            error=read_failure(self.error),
        )


class AttemptRow(msgspec.Struct, frozen=True, array_like=True):
    token: int
    instance: InstanceId | None
    outcome: OutcomeKind
    started_at: int | None
    finished_at: int
    error: str | None

    def to_record(self) -> Attempt:
        return Attempt(
            token=self.token,
            instance=self.instance,
            outcome=self.outcome,
            started_at=to_datetime_or_none(self.started_at),
            finished_at=to_datetime(self.finished_at),
            error=read_failure(self.error),
        )


class StoredInstanceRow(msgspec.Struct, frozen=True, array_like=True):
    id: InstanceId
    state: InstanceState
    app: str
    version: str
    host: str
    pid: int
    roles: tuple[Role, ...]
    queues: tuple[str, ...]
    tasks: dict[str, str]
    concurrency: int
    running: int
    refused: int
    beat: int
    started_at: int
    beat_at: int
    rooms: dict[str, str]
    ended_at: int | None
    ended_reason: str | None

    def to_record(self) -> Instance:
        facts = msgspec.structs.asdict(self)
        facts |= {
            "started_at": to_datetime(self.started_at),
            "beat_at": to_datetime(self.beat_at),
            "ended_at": to_datetime_or_none(self.ended_at),
        }
        return Instance(**facts)


class AuditEntryRow(msgspec.Struct, frozen=True, array_like=True):
    id: str
    who: str
    role: str
    via: str
    verb: str
    target: str
    reason: str
    at: int
    request_key: str | None
    request_hash: str | None
    done_at: int | None
    touched: int | None
    outcome: str | None
    answer: str | None

    def to_record(self) -> AuditEntry:
        facts = msgspec.structs.asdict(self)
        return AuditEntry(**facts | {"at": to_datetime(self.at), "done_at": to_datetime_or_none(self.done_at)})


class RollupRow(msgspec.Struct, frozen=True, array_like=True):
    at: int
    queue: str
    task: str
    counts: list[int]


class StoredScheduleRow(msgspec.Struct, frozen=True, array_like=True):
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
    reason: str

    def to_record(self) -> Schedule:
        facts = msgspec.structs.asdict(self)
        definition = NewSchedule(**{name: facts.pop(name) for name in _DEFINITION_FIELDS})
        return Schedule(definition=definition, **facts)


def repair_job(values: dict[str, Any], faults: Faults) -> dict[str, Any]:
    if any(field == "state" for field, _ in faults) and values["finished_at"] is not None:
        values["state"] = JobState.DEAD
    names = {field: values[field] or UNREADABLE_NAME for field in ("task", "queue")}
    return values | names | {"error": msgspec.json.encode(undecodable_failure(join_reasons(faults))).decode()}


def repaired_rule(faults: Faults) -> dict[str, Any]:
    """What makes a schedule with faults readable, shown as such, and never fired: no planner reads such a rule."""
    return {"kind": RuleKind.CRON, "rule": f"undecodable: {join_reasons(faults)}"}


def repair_schedule(values: dict[str, Any], faults: Faults) -> dict[str, Any]:
    return values | repaired_rule(faults)


def repair_instance(values: dict[str, Any], faults: Faults) -> dict[str, Any]:
    return values | {"ended_reason": join_reasons(faults)}
