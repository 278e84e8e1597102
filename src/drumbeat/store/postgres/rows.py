"""The way of rows to our records, and of our records to columns.

The order of fields is the order of columns in the `.sql` files. Times are still integers in rows.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from drumbeat.ids import JobId
from drumbeat.model.death import DeadGroup
from drumbeat.model.instance import Instance, LeaderInfo
from drumbeat.model.job import Attempt, Claimed, Ended, Failure, Job, JobState, Malformed, QueueStats, TaskStats
from drumbeat.store.malformed import UNREADABLE_NAME, read_failure, read_value, reasons, salvage, tell, undecodable
from drumbeat.store.records import (
    AttemptRow,
    InstanceRow,
    JobRow,
    mend_instance,
    mend_job,
    moment,
    moment_or_none,
)

_encode = msgspec.json.Encoder().encode


def as_json(value: Any) -> str:
    return _encode(value).decode()


def failure_text(error: Failure | None) -> str | None:
    return None if error is None else as_json(error)


failure = read_failure


def array(values: Sequence[str | int | None]) -> str:
    """The literal of an array of ids or numbers: nothing in it needs quotes."""
    return f"{{{','.join(['NULL' if each is None else str(each) for each in values])}}}"


def columns(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows turned into one array for each column."""
    turned = [list(column) for column in zip(*rows, strict=True)]
    return turned or [[] for _ in range(width)]


class Held(msgspec.Struct, frozen=True):
    """What must be known of a running job to end its run."""

    id: JobId
    token: int
    task: str
    key: str | None
    unique: str
    run_at: int
    claimed_at: int
    failures: int
    crashes: int
    crash_limit: int
    waits_since: int | None
    cancel_requested: bool
    on_dead: str | None
    now: int
    """The moment at which it was looked at; the same for all of one look."""


def job_row(row: Any) -> JobRow:
    """A job of any table. One that cannot be read has that as its error."""
    try:
        return msgspec.convert(tuple(row), JobRow)
    except msgspec.ValidationError:
        values, faults = salvage(JobRow, tuple(row))
        tell("job", row["id"], faults)
        return JobRow(**mend_job(values, faults))


def job(row: Any) -> Job:
    return job_row(row).record()


def attempts(rows: Iterable[Any]) -> list[Attempt]:
    """Those that can be read."""
    found: list[Attempt] = []
    for row in rows:
        values, faults = salvage(AttemptRow, tuple(row))
        if faults:
            tell("attempt", str(row["token"]), faults)
        else:
            found.append(AttemptRow(**values).record())
    return found


def claimed(rows: Iterable[Any]) -> tuple[list[Claimed], list[Malformed]]:
    """Claimed jobs, and those that cannot be read."""
    jobs: list[Claimed] = []
    malformed: list[Malformed] = []
    for row in rows:
        stored = tuple(row)
        try:
            jobs.append(msgspec.convert(stored, Claimed))
        except msgspec.ValidationError:
            values, faults = salvage(Claimed, stored)
            tell("job", values["id"], faults)
            values |= {field: values[field] or UNREADABLE_NAME for field in ("task", "queue")}
            malformed.append(Malformed(Claimed(**values), reasons(faults)))
    return jobs, malformed


_MAX_COUNT = 2**31 - 2
"""One more can still be stored."""


def held(row: Any) -> Held:
    """What cannot be read of it is neutral: when the job is claimed again, the claim finds out."""
    values, _ = salvage(Held, tuple(row))
    for name in ("failures", "crashes"):
        values[name] = min(values[name], _MAX_COUNT)
    return Held(**values)


def ended(row: Any) -> Ended | None:
    """None for a live job."""
    if row["state"] is None:
        return None
    state, reason = read_value("state", row["state"], JobState)
    if reason is not None:
        faults = [("state", reason)]
        return Ended(id=row["id"], task=row["task"] or "", state=JobState.DEAD, error=undecodable(reasons(faults)))
    return Ended(
        id=row["id"],
        task=row["task"] or "",
        state=state,
        result=row["result"],
        result_error=row["result_error"],
        error=failure(row["error"]),
    )


def queue(row: Any) -> QueueStats:
    """But for how many of its jobs are due."""
    return QueueStats(
        name=row["name"] or UNREADABLE_NAME,
        ready=0,
        scheduled=0,
        running=row["running"],
        waiting=row["waiting"],
        oldest_due=moment_or_none(row["oldest_due"]),
        paused=row["paused_at"] is not None,
        paused_by=row["paused_by"],
        paused_why=row["paused_why"],
        paused_at=moment_or_none(row["paused_at"]),
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
    """One that cannot be read has that as the reason of its end."""
    values, faults = salvage(InstanceRow, tuple(row))
    if faults:
        tell("instance", row["id"], faults)
        values = mend_instance(values, faults)
    return InstanceRow(**values).record()


def group(row: Any) -> DeadGroup:
    facts = dict(row) | {"first_at": moment(row["first_at"] or 0), "last_at": moment(row["last_at"] or 0)}
    return DeadGroup(**facts | {"task": row["task"] or UNREADABLE_NAME})


def leader(row: Any) -> LeaderInfo:
    return LeaderInfo(**dict(row) | {"since": moment(row["since"] or 0), "until": moment(row["until"])})
