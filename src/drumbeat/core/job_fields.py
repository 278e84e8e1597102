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
from typing import Generic, TypeVar

import msgspec

from drumbeat.ids import InstanceId, JobId


class JobState(StrEnum):
    PENDING = "pending"  # claimable once run_at has passed, unless blocked_on is set
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"  # out of retries: a dead letter, until a person replays or discards it
    CANCELLED = "cancelled"


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
    priority: int = 5
    """0 first, 9 last."""
    key: str | None = None
    args: str
    """JSON object text, exactly as stored, so that no number is rounded."""
    signature: str
    """Hash of the task's signature at the caller, so that a worker of another version notices."""
    retries: int | None = None
    """None: as the task says at the worker."""
    timeout: Duration | None = None
    """Seconds (stored: microseconds); None: as the task says at the worker."""
    crash_limit: int = 3
    """Number of crashes blamed on this job that make it a dead letter; 1 is on_crash="dead"."""
    unique: Unique = Unique.NO
    on_dead: str | None = None
    """Name of the task that is enqueued in the step that makes this job dead."""
    tenant: str = ""
    trace: str | None = None
    """The span that enqueued it, as a W3C traceparent of at most 55 characters; None: the call was not traced."""


class AllJobFields(GivenFields[Duration], Generic[Time, Duration, Flag, Error], frozen=True, kw_only=True):
    """All fields of a job."""

    state: JobState
    created_at: Time
    due_at: Time
    """When it was first due; retries do not change it."""
    run_at: Time
    """When it may start; a retry is later than due_at."""
    started_at: Time | None = None
    finished_at: Time | None = None
    instance: InstanceId | None = None
    """Where it runs, or ran last."""
    token: int = 0
    """Fences the writes of its claims; it only grows."""
    failures: int = 0
    crashes: int = 0
    blocked_on: str | None = None
    """What it waits for other than time."""
    cancel_requested: bool | Flag = False
    progress: str | None = None
    """JSON text."""
    result: str | None = None
    """JSON text."""
    result_error: str | None = None
    """Why its result could not be kept."""
    error: Error | None = None
    replays: int = 0
    """0, and one more for each replay."""
    schedule: str | None = None
    """The schedule whose fire it is; None: it was enqueued."""


GIVEN_FIELDS: tuple[str, ...] = GivenFields.__struct_fields__
JOB_FIELDS: tuple[str, ...] = AllJobFields.__struct_fields__
