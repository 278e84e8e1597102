"""Rows of jobs, attempts, instances, audit entries and roll-ups as SQL engines return them, and their conversion to records.

The order of fields is the order of columns in the `.sql` files. Times are still integers here. `repair_*` completes the values
of a row that cannot be read as it is: the record is shown, with the reason where people look.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, TypeVar, cast, get_type_hints

import msgspec

from drumbeat.core.audit import AuditEntry
from drumbeat.core.instance import Instance
from drumbeat.core.job import Attempt, EndedJob, Failure, Job, JobState, OutcomeKind
from drumbeat.core.job_fields import JOB_FIELDS, AllJobFields
from drumbeat.core.room import RoomMessage
from drumbeat.core.schedule import Fire, RuleKind, Schedule
from drumbeat.core.signals import SignalRecord
from drumbeat.core.step import StepRecord
from drumbeat.durations import from_us
from drumbeat.ids import JobId
from drumbeat.store.malformed import Faults as Faults
from drumbeat.store.malformed import (
    RecordKind,
    drop_row,
    join_reasons,
    read_failure,
    repair_names,
    undecodable_failure,
)

to_datetime = from_us
_encode = msgspec.json.Encoder().encode


def as_json(value: Any) -> str:
    """A structured column, or a parameter of SQLite's json_each."""
    return _encode(value).decode()


_TIMES = tuple(name for name in JOB_FIELDS if name.endswith("_at"))


def to_datetime_or_none(us: int | None) -> datetime | None:
    return None if us is None else to_datetime(us)


R = TypeVar("R", bound=msgspec.Struct)
_CONVERSIONS: dict[Any, tuple[Any, Callable[[Any], Any]]] = {
    datetime: (int, to_datetime),
    datetime | None: (int | None, to_datetime_or_none),
    Failure | None: (str | None, read_failure),
}
"""The types that differ in rows: what they are there, and how they are read."""


class RecordRow(msgspec.Struct, Generic[R], frozen=True, array_like=True):
    """A row of a record `R`. `row_of` makes its type."""

    def to_record(self) -> R:
        raise NotImplementedError


def row_of(record: type[R]) -> type[RecordRow[R]]:
    """The type of a record's rows: the same fields in the same order, where times are integers and errors are JSON text. In the
    place of a field that is a record (`Schedule.definition`) stand the fields of that."""
    fields: dict[str, Any] = {}
    parts: dict[str, type[msgspec.Struct]] = {}
    for name, kind in get_type_hints(record).items():  # without what `Annotated` says
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            parts[name] = kind
            fields |= get_type_hints(kind)
        else:
            fields[name] = kind
    converted = {name: _CONVERSIONS[kind] for name, kind in fields.items() if kind in _CONVERSIONS}

    def to_record(row: msgspec.Struct) -> R:
        values = msgspec.structs.asdict(row)
        for name, (_, read) in converted.items():
            values[name] = read(values[name])
        for name, part in parts.items():
            values[name] = part(**{each: values.pop(each) for each in part.__struct_fields__})
        return record(**values)

    columns = [(name, _CONVERSIONS.get(kind, (kind,))[0]) for name, kind in fields.items()]
    made = msgspec.defstruct(f"{record.__name__}Row", columns, bases=(RecordRow,), namespace={"to_record": to_record})
    return cast("type[RecordRow[R]]", made)


class StoredJobRow(AllJobFields[int, int, int, str], frozen=True, array_like=True, kw_only=True):
    """A job of any table; columns that a table lacks are null."""

    outcome: OutcomeKind | None = None
    blocked_since: int | None = None
    has_run: bool | int | None = False
    is_parent: bool | int | None = False
    binds: bool | int | None = False
    place: int | None = None

    def to_record(self) -> Job:
        values = msgspec.structs.asdict(self)
        for name in ("outcome", "blocked_since", "has_run", "is_parent", "binds", "place"):
            del values[name]
        for name in _TIMES:
            values[name] = to_datetime_or_none(values[name])
        values["timeout"] = None if self.timeout is None else self.timeout / 1_000_000
        values["cancel_requested"] = bool(self.cancel_requested)
        values["error"] = read_failure(self.error)
        if self.state is not JobState.PENDING:
            values["suspended"] = None  # a claim leaves the column as it is
        return Job(**values)

    def last_attempt(self) -> Attempt | None:
        """The attempt that ended this job; None if it ended without one."""
        if self.outcome is None or self.finished_at is None:
            return None
        if self.outcome in (OutcomeKind.CANCELLED, OutcomeKind.EXPIRED) and self.started_at is None:
            return None  # it was cancelled between claim and start, or claimed too late
        facts = {name: getattr(self, name) for name in AttemptRow.__struct_fields__}
        return AttemptRow(**facts).to_record()


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


AttemptRow = row_of(Attempt)
StepRow = row_of(StepRecord)
SignalRow = row_of(SignalRecord)
StoredInstanceRow = row_of(Instance)
AuditEntryRow = row_of(AuditEntry)
StoredScheduleRow = row_of(Schedule)


class RollupRow(msgspec.Struct, frozen=True, array_like=True):
    at: int
    queue: str
    task: str
    counts: list[int]


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
SIGNALS = RecordKind("signal", SignalRow, repair=drop_row)
STEPS = RecordKind("step", StepRow, id="name", repair=drop_row)
AUDIT_ENTRIES = RecordKind("act", AuditEntryRow, repair=repair_audit_entry)
FIRES = RecordKind("fire", Fire, id="schedule", repair=drop_row)
ROOM_MESSAGES = RecordKind("message of a room", RoomMessage, repair=drop_row)
INSTANCES = RecordKind("instance", StoredInstanceRow, repair=repair_instance)
ROLLUPS = RecordKind("roll-up", RollupRow, id="task", repair=drop_row)
SCHEDULES = RecordKind("schedule", StoredScheduleRow, id="name", repair=repair_schedule)

RECORD_KINDS: dict[str, RecordKind[Any]] = {
    "jobs": RecordKind("job", StoredJobRow, states=("pending", "running")),
    "history": RecordKind("ended job", StoredJobRow, states=("succeeded", "cancelled", "expired", "dead")),
    "dead_letters": RecordKind("dead letter", StoredJobRow, states=("dead",)),
    "schedules": SCHEDULES,
    "instances": INSTANCES,
    "audit_entries": AUDIT_ENTRIES,
    "rollups": ROLLUPS,
}
"""What the doctor checks on both SQL engines, by the statement of malformed.sql."""
