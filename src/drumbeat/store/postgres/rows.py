"""Reads rows into records, and turns records into columns.

The order of fields is the order of columns in the `.sql` files. Times are integers in rows.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from drumbeat.core.claim import ClaimedJob, MalformedJob
from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.instance import Instance, LeaderInfo
from drumbeat.core.job import Attempt, EndedJob, Failure, Job, JobState
from drumbeat.core.job_query import QueueStats, TaskStats
from drumbeat.core.transitions import HeldJob
from drumbeat.store.malformed import (
    UNREADABLE_NAME,
    join_reasons,
    log_faults,
    read_failure,
    read_value,
    salvage,
    undecodable_failure,
)
from drumbeat.store.records import (
    AttemptRow,
    Faults,
    StoredInstanceRow,
    StoredJobRow,
    repair_instance,
    repair_job,
    to_datetime,
    to_datetime_or_none,
)

_encode = msgspec.json.Encoder().encode
R = TypeVar("R", bound=msgspec.Struct)


def as_json(value: Any) -> str:
    return _encode(value).decode()


def encode_failure(error: Failure | None) -> str | None:
    return None if error is None else as_json(error)


def array_literal(values: Sequence[str | int | None]) -> str:
    """The literal of an array of ids or numbers: nothing in it needs quotes."""
    return f"{{{','.join(['NULL' if each is None else str(each) for each in values])}}}"


def to_columns(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows turned into one array for each column."""
    turned = [list(column) for column in zip(*rows, strict=True)]
    return turned or [[] for _ in range(width)]


class PostgresHeldJob(HeldJob, frozen=True):
    now: int
    """When it was read; the same for all jobs of one statement."""


def read_row(
    record: type[R],
    kind: str,
    row: Any,
    *,
    id: str = "id",
    repair: Callable[[dict[str, Any], Faults], dict[str, Any]] | None = None,
) -> R | None:
    """A row as its record, whose fields are in the order of columns. One that cannot be read is logged and repaired; None:
    there is no repair. `kind` and the column `id` name it in the log."""
    values, faults = salvage(record, tuple(row))
    if not faults:
        return record(**values)
    log_faults(kind, str(row[id]), faults)
    return None if repair is None else record(**repair(values, faults))


def job_row(row: Any) -> StoredJobRow:
    """A job of any table. Where it cannot be read, its error says so."""
    try:
        return msgspec.convert(tuple(row), StoredJobRow)
    except msgspec.ValidationError:
        values, faults = salvage(StoredJobRow, tuple(row))
        log_faults("job", row["id"], faults)
        return StoredJobRow(**repair_job(values, faults))


def job(row: Any) -> Job:
    return job_row(row).to_record()


def attempts(rows: Iterable[Any]) -> list[Attempt]:
    """Those that can be read."""
    found = (read_row(AttemptRow, "attempt", row, id="token") for row in rows)
    return [attempt.to_record() for attempt in found if attempt is not None]


def claimed_jobs(rows: Iterable[Any]) -> tuple[list[ClaimedJob], list[MalformedJob]]:
    """Claimed jobs, and those that cannot be read."""
    jobs: list[ClaimedJob] = []
    malformed: list[MalformedJob] = []
    for row in rows:
        stored = tuple(row)
        try:
            jobs.append(msgspec.convert(stored, ClaimedJob))
        except msgspec.ValidationError:
            values, faults = salvage(ClaimedJob, stored)
            log_faults("job", values["id"], faults)
            values |= {field: values[field] or UNREADABLE_NAME for field in ("task", "queue")}
            malformed.append(MalformedJob(ClaimedJob(**values), join_reasons(faults)))
    return jobs, malformed


_MAX_COUNT = 2**31 - 2
"""So that one more can still be stored."""


def held_job(row: Any) -> PostgresHeldJob:
    """Values that cannot be read are neutral: the next claim of the job reports them."""
    values, _ = salvage(PostgresHeldJob, tuple(row))
    for name in ("failures", "crashes"):
        values[name] = min(values[name], _MAX_COUNT)
    return PostgresHeldJob(**values)


def ended_job(row: Any) -> EndedJob | None:
    """None for a live job."""
    if row["state"] is None:
        return None
    state, reason = read_value("state", row["state"], JobState)
    if reason is not None:
        faults = [("state", reason)]
        return EndedJob(
            id=row["id"], task=row["task"] or "", state=JobState.DEAD, error=undecodable_failure(join_reasons(faults))
        )
    return EndedJob(
        id=row["id"],
        task=row["task"] or "",
        state=state,
        result=row["result"],
        result_error=row["result_error"],
        error=read_failure(row["error"]),
    )


def queue(row: Any) -> QueueStats:
    """Without the number of due jobs."""
    return QueueStats(
        name=row["name"] or UNREADABLE_NAME,
        ready=0,
        scheduled=0,
        running=row["running"],
        waiting=row["waiting"],
        oldest_due=to_datetime_or_none(row["oldest_due"]),
        paused=row["paused_at"] is not None,
        paused_by=row["paused_by"],
        paused_reason=row["paused_reason"],
        paused_at=to_datetime_or_none(row["paused_at"]),
    )


def task(row: Any) -> TaskStats:
    return TaskStats(
        name=row["name"] or UNREADABLE_NAME,
        pending=row["pending"],
        running=row["running"],
        succeeded=row["succeeded"],
        dead=row["dead"],
        cancelled=row["cancelled"],
    )


def instance(row: Any) -> Instance:
    """Where it cannot be read, the reason of its end says so."""
    found = read_row(StoredInstanceRow, "instance", row, repair=repair_instance)
    assert found is not None
    return found.to_record()


def dead_group(row: Any) -> DeadLetterGroup:
    facts = dict(row) | {"first_at": to_datetime(row["first_at"] or 0), "last_at": to_datetime(row["last_at"] or 0)}
    return DeadLetterGroup(**facts | {"task": row["task"] or UNREADABLE_NAME})


def leader(row: Any) -> LeaderInfo:
    return LeaderInfo(**dict(row) | {"since": to_datetime(row["since"] or 0), "until": to_datetime(row["until"])})
