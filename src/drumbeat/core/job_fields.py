"""The fields of a job: the one list that everything else is made from.

    GivenFields ---> NewJob                       what a caller enqueues
        |
    AllJobFields --> Job                          what programs see
                     store/records.py: StoredJobRow    a row of a SQL engine, and with it the columns of all statements
                     web/api/records.py: JobRecord     the answer of the API

A new field is one line here, a migration for each SQL engine (`JobHeader` for Redis), and whatever uses it.
tests/meta/test_job_fields.py compares all of these with the tables.

Programs see times as datetimes, durations as seconds and errors as records; rows hold integers and JSON text. So the types that
differ are type variables.
"""

from enum import StrEnum
from typing import Annotated, Generic, TypeVar

import msgspec

from drumbeat.core.field_doc import doc
from drumbeat.ids import InstanceId, JobId


class JobState(StrEnum):
    PENDING = "pending"  # claimable once run_at has passed, unless blocked_on is set
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"  # out of retries: a dead letter, until a person replays or discards it
    CANCELLED = "cancelled"
    EXPIRED = "expired"  # it did not start in time


class Unique(StrEnum):
    """Which jobs of the same task and key make a new one unnecessary."""

    NO = ""
    LIVE = "live"  # pending and running ones
    PENDING = "pending"  # pending ones only: what changed during a run needs another run


Time = TypeVar("Time")
Duration = TypeVar("Duration")
Flag = TypeVar("Flag")
Error = TypeVar("Error")


class GivenFields(msgspec.Struct, Generic[Duration], frozen=True, kw_only=True):
    """What a caller gives, and no store changes."""

    id: JobId
    task: str
    queue: str
    priority: Annotated[int, doc("0 first, 9 last.")] = 5
    key: str | None = None
    args: Annotated[str, doc("JSON object text, exactly as stored, so that no number is rounded.")]
    signature: Annotated[str, doc("Hash of the task's signature at the caller: a worker of another version notices.")]
    retries: Annotated[int | None, doc("None: as the task says at the worker.")] = None
    timeout: Annotated[Duration | None, doc("Seconds (stored: microseconds); None: as the worker's task says.")] = None
    crash_limit: Annotated[int, doc('Crashes blamed on this job that make it a dead letter; 1 is on_crash="dead".')] = 3
    unique: Unique = Unique.NO
    on_dead: Annotated[str | None, doc("The task that is enqueued in the step that makes this job dead.")] = None
    group: Annotated[str, doc("Jobs of a group share limits, an order, or turns; '': of none.")] = ""
    lane: Annotated[str, doc("Its place under limits: line and group; empty: it is under none.")] = ""
    trace: Annotated[str | None, doc("W3C traceparent (55 characters at most) of its enqueue; None: untraced.")] = None
    parent: Annotated[JobId | None, doc("The job whose handler enqueued it, or whose death; None: no job did.")] = None
    workflow: Annotated[str | None, doc("The workflow that it is a part of.")] = None


class AllJobFields(GivenFields[Duration], Generic[Time, Duration, Flag, Error], frozen=True, kw_only=True):
    """All fields of a job."""

    state: JobState
    created_at: Time
    due_at: Annotated[Time, doc("When it was first due; retries do not change it.")]
    run_at: Annotated[Time, doc("When it may start; a retry is later than due_at.")]
    started_at: Time | None = None
    finished_at: Time | None = None
    instance: Annotated[InstanceId | None, doc("Where it runs, or ran last.")] = None
    token: Annotated[int, doc("Fences the writes of its claims; it only grows.")] = 0
    failures: int = 0
    crashes: int = 0
    blocked_on: Annotated[str | None, doc("What it waits for other than time.")] = None
    cancel_requested: bool | Flag = False
    replays: Annotated[int, doc("0, and one more for each replay.")] = 0
    schedule: Annotated[str | None, doc("The schedule whose fire it is; None: it was enqueued.")] = None
    progress: Annotated[str | None, doc("JSON text.")] = None
    result: Annotated[str | None, doc("JSON text.")] = None
    result_error: Annotated[str | None, doc("Why its result could not be kept.")] = None
    error: Error | None = None
    expires_at: Annotated[Time | None, doc("It ends as expired if its first attempt has not started by then.")] = None
    suspended: Annotated[
        str | None, doc("Its run sleeps (sleep) or waits for a signal (signal:<name>), until run_at.")
    ] = None
    open_parents: Annotated[
        int | None, doc("How many jobs that it depends on have not ended yet; None: it depends on none.")
    ] = None


GIVEN_FIELDS: tuple[str, ...] = GivenFields.__struct_fields__
JOB_FIELDS: tuple[str, ...] = AllJobFields.__struct_fields__
