"""Rows of jobs, attempts, instances, audit entries and roll-ups as SQL engines return them, and their conversion to records.

The order of fields is the order of columns in the `.sql` files. Times are still integers here. `repair_*` completes the values
of a row that cannot be read as it is: the record is shown, with the reason where people look.
"""

from datetime import datetime
from typing import Any

import msgspec

from drumbeat.core.audit import AuditEntry
from drumbeat.core.instance import Instance, InstanceState, Role
from drumbeat.core.job import Attempt, EndedJob, Job, JobState, OutcomeKind, Unique
from drumbeat.core.job_fields import JOB_FIELDS, AllJobFields
from drumbeat.core.overlap import FireRow
from drumbeat.core.room import RoomMessage
from drumbeat.core.schedule import CatchUp, NewSchedule, Origin, Overlap, RuleKind, Schedule, ScheduleState
from drumbeat.durations import from_us
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.malformed import Faults as Faults
from drumbeat.store.malformed import (
    RecordKind,
    drop_row,
    join_reasons,
    read_failure,
    repair_names,
    undecodable_failure,
)

_DEFINITION_FIELDS = NewSchedule.__struct_fields__

to_datetime = from_us
_encode = msgspec.json.Encoder().encode


def as_json(value: Any) -> str:
    """A structured column, or a parameter of SQLite's json_each."""
    return _encode(value).decode()


_TIMES = tuple(name for name in JOB_FIELDS if name.endswith("_at"))


def to_datetime_or_none(us: int | None) -> datetime | None:
    return None if us is None else to_datetime(us)


class StoredJobRow(AllJobFields[int, int, int, str], frozen=True, array_like=True, kw_only=True):
    """A job of any table; columns that a table lacks are null."""

    outcome: OutcomeKind | None = None
    blocked_since: int | None = None

    def to_record(self) -> Job:
        values = msgspec.structs.asdict(self)
        del values["outcome"], values["blocked_since"]
        for name in _TIMES:
            values[name] = to_datetime_or_none(values[name])
        values["timeout"] = None if self.timeout is None else self.timeout / 1_000_000
        values["cancel_requested"] = bool(self.cancel_requested)
        values["error"] = read_failure(self.error)
        return Job(**values)

    def last_attempt(self) -> Attempt | None:
        """The attempt that ended this job; None if it ended without one."""
        if self.outcome is None or self.finished_at is None:
            return None
        if self.outcome is OutcomeKind.CANCELLED and self.started_at is None:
            return None  # it was cancelled between claim and start
        return AttemptRow(
            self.token, self.instance, self.outcome, self.started_at, self.finished_at, self.error
        ).to_record()


class HeldJobRow(msgspec.Struct, frozen=True, array_like=True):
    """A running job, as far as ending its run needs it."""

    id: JobId
    token: int
    task: str
    key: str | None
    unique: Unique
    run_at: int
    claimed_at: int
    failures: int
    crashes: int
    crash_limit: int
    blocked_since: int | None
    cancel_requested: bool | int
    on_dead: str | None


class EndedRow(msgspec.Struct, frozen=True, array_like=True):
    id: JobId
    task: str
    state: JobState | None
    """None: it is live."""
    result: str | None
    result_error: str | None
    error: str | None

    def to_record(self) -> EndedJob | None:
        if self.state is None:
            return None
        return EndedJob(**msgspec.structs.asdict(self) | {"error": read_failure(self.error)})


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
    return repair_names(values, faults) | {"error": as_json(undecodable_failure(join_reasons(faults)))}


def repaired_rule(faults: Faults) -> dict[str, Any]:
    """What makes a schedule with faults readable, shown as such, and never fired: no planner reads such a rule."""
    return {"kind": RuleKind.CRON, "rule": f"undecodable: {join_reasons(faults)}"}


def repair_schedule(values: dict[str, Any], faults: Faults) -> dict[str, Any]:
    return values | repaired_rule(faults)


def repair_audit_entry(values: dict[str, Any], faults: Faults) -> dict[str, Any]:
    return values | {"outcome": f"undecodable: {join_reasons(faults)}"}


def repair_instance(values: dict[str, Any], faults: Faults) -> dict[str, Any]:
    return values | {"ended_reason": join_reasons(faults)}


ATTEMPTS = RecordKind("attempt", AttemptRow, id="token", repair=drop_row)
AUDIT_ENTRIES = RecordKind("act", AuditEntryRow, repair=repair_audit_entry)
FIRES = RecordKind("fire", FireRow, id="schedule", repair=drop_row)
ROOM_MESSAGES = RecordKind("message of a room", RoomMessage, repair=drop_row)
INSTANCES = RecordKind("instance", StoredInstanceRow, repair=repair_instance)
ROLLUPS = RecordKind("roll-up", RollupRow, id="task", repair=drop_row)
SCHEDULES = RecordKind("schedule", StoredScheduleRow, id="name", repair=repair_schedule)

RECORD_KINDS: dict[str, RecordKind[Any]] = {
    "jobs": RecordKind("job", StoredJobRow, states=("pending", "running")),
    "history": RecordKind("ended job", StoredJobRow, states=("succeeded", "cancelled", "dead")),
    "dead_letters": RecordKind("dead letter", StoredJobRow, states=("dead",)),
    "schedules": SCHEDULES,
    "instances": INSTANCES,
    "audit_entries": AUDIT_ENTRIES,
    "rollups": ROLLUPS,
}
"""What the doctor checks on both SQL engines, by the statement of malformed.sql."""
