"""Reads rows into records, and turns records into columns.

The order of fields is the order of columns in the `.sql` files. Times are integers in rows.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from drumbeat.core.claim import ClaimedJob, MalformedJob
from drumbeat.core.job import Attempt, EndedJob, Job, JobState
from drumbeat.core.transitions import HeldJob
from drumbeat.store.malformed import (
    UNREADABLE_NAME,
    join_reasons,
    log_faults,
    salvage,
    undecodable_failure,
)
from drumbeat.store.records import ATTEMPTS, EndedRow, StoredJobRow, as_json, repair_job


def array_literal(values: Sequence[str | int | None]) -> str:
    """The literal of an array of ids or numbers: nothing in it needs quotes."""
    return f"{{{','.join(['NULL' if each is None else str(each) for each in values])}}}"


def to_columns(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Rows, of which there is at least one, turned into one array for each column."""
    return [list(column) for column in zip(*rows, strict=True)]


class PostgresHeldJob(HeldJob, frozen=True):
    now: int
    """When it was read; the same for all jobs of one statement."""
    in_lane: bool


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
    return [attempt.to_record() for attempt in ATTEMPTS.read_rows(rows)]


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
    try:
        return msgspec.convert(tuple(row), EndedRow).to_record()
    except msgspec.ValidationError:
        values, faults = salvage(EndedRow, tuple(row))
        if any(field == "state" for field, _ in faults):
            values |= {"state": JobState.DEAD, "error": as_json(undecodable_failure(join_reasons(faults)))}
        return EndedRow(**values).to_record()
