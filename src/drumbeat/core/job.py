"""What a job is, from the call that makes it to the record of its end.

Values only. Times are integer microseconds UTC by the store's clock; `Job`, which people see, has datetimes. `NewJob` is
a struct because a bulk enqueue makes thousands of them a second.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from drumbeat.ids import InstanceId, JobId


class JobState(StrEnum):
    PENDING = "pending"  # claimable once run_at has passed, unless it blocked_on something
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"  # out of retries; a dead letter waits for a person
    CANCELLED = "cancelled"


LIVE_STATES = frozenset({JobState.PENDING, JobState.RUNNING})


class PendingView(StrEnum):
    """What people are shown of a pending job; never stored."""

    SCHEDULED = "scheduled"  # its first moment has not come
    READY = "ready"
    RETRYING = "retrying"  # failed or crashed before, its next moment has not come
    WAITING = "waiting"  # blocked_on something other than time


class Unique(StrEnum):
    """Which jobs of the same task and key make a new one unnecessary."""

    NO = ""
    LIVE = "live"  # pending and running ones
    PENDING = "pending"  # only pending ones, so that a running job does not swallow news


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One job to be stored. The id is the client's, so that a repeated call is the same job.

    Nothing in it can lead back to it, so the garbage collector need not look at the many of a bulk enqueue.
    """

    id: JobId
    task: str
    queue: str
    args: str
    """JSON object text, parameter by parameter."""
    signature: str
    """Hash of the task's signature at the caller, so that a worker of another version knows."""
    priority: int = 5
    run_at: int | None = None
    """The due moment; None: `delay` microseconds after the store's now."""
    delay: int = 0
    key: str | None = None
    unique: Unique = Unique.NO
    retries: int | None = None
    """None: as the task says at the worker."""
    timeout: int | None = None
    """Microseconds; None: as the task says at the worker."""
    crash_limit: int = 3
    """So many crashes blamed on this job make it a dead letter; 1 is on_crash="dead"."""
    on_dead: str | None = None
    """Name of the task that is enqueued in the step that makes this job dead."""
    tenant: str = ""
    trace: str | None = None
    """The span that enqueued it, as a W3C traceparent of at most 55 characters; None: nobody traced the call."""


class AddResult(msgspec.Struct, frozen=True):
    """The answer to one NewJob."""

    id: JobId
    created: bool
    """False: a job with this id exists (whatever its state), or a live one holds the unique key: `id` is that one's."""


class Failure(msgspec.Struct, frozen=True):
    """An error as text: no object, no locals, made storable before it gets here."""

    type: str
    message: str
    traceback: str = ""


class OutcomeKind(StrEnum):
    SUCCEEDED = "succeeded"
    RETRY = "retry"  # charged to failures; pending again after `delay`
    DEAD = "dead"  # charged to failures; a dead letter
    CANCELLED = "cancelled"  # it ended because somebody cancelled it
    SNOOZED = "snoozed"  # not charged; pending again after `delay`
    RELEASED = "released"  # not charged; pending again at once; had started if started_at is set
    BLOCKED = "blocked"  # not charged; blocked_on something; never started
    CRASHED = "crashed"  # its own process died under it: charged to crashes, dead at crash_limit


class CancelAnswer(StrEnum):
    CANCELLED = "cancelled"  # it will never run
    REQUESTED = "requested"  # it was running; it hears of it, and may end otherwise
    SUCCEEDED = "succeeded"  # too late: the final state
    DEAD = "dead"
    UNKNOWN = "unknown"  # no such job here


class Cancelled(msgspec.Struct, frozen=True):
    """How many jobs were cancelled."""

    cancelled: int
    """They will never run."""
    requested: int
    """They were running, and were asked to stop; each may still end otherwise."""


class EndedJob(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody who waits for a job learns once it has ended."""

    id: JobId
    task: str
    state: JobState
    result: str | None = None
    result_error: str | None = None
    error: Failure | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job that has ended."""

    token: int
    instance: InstanceId | None
    outcome: OutcomeKind
    started_at: datetime | None
    finished_at: datetime
    error: Failure | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a job, as people and programs look at it."""

    id: JobId
    task: str
    queue: str
    state: JobState
    priority: int
    key: str | None
    args: str
    """JSON text, exactly as stored."""
    signature: str
    created_at: datetime
    due_at: datetime
    run_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    instance: InstanceId | None = None
    token: int = 0
    failures: int = 0
    crashes: int = 0
    retries: int | None = None
    timeout: float | None = None
    crash_limit: int = 3
    unique: Unique = Unique.NO
    blocked_on: str | None = None
    cancel_requested: bool = False
    progress: str | None = None
    result: str | None = None
    result_error: str | None = None
    error: Failure | None = None
    on_dead: str | None = None
    replays: int = 0
    tenant: str = ""
    schedule: str | None = None
    """The schedule whose fire it is; None: somebody enqueued it."""
    trace: str | None = None
    """The span that enqueued it, as a W3C traceparent; None: nobody traced the call."""

    @property
    def attempt(self) -> int:
        """What people count: the run that is next, under way, or was the last."""
        return max(1, self.failures) if self.state is JobState.DEAD else self.failures + 1

    @property
    def attempts(self) -> int:
        """How many runs have begun and count: those that failed, and the one under way or that ended it. 0: none has begun.
        Crashes are counted apart."""
        is_more = self.state in (JobState.RUNNING, JobState.SUCCEEDED) or (
            self.state is JobState.CANCELLED and self.started_at is not None
        )
        return self.failures + is_more

    def view(self, now: datetime) -> JobState | PendingView:
        """The word people see for this job at this moment."""
        if self.state is not JobState.PENDING:
            return self.state
        if self.blocked_on is not None:
            return PendingView.WAITING
        if self.run_at <= now:
            return PendingView.READY
        return PendingView.RETRYING if self.failures or self.crashes else PendingView.SCHEDULED


class ReplayResult(msgspec.Struct, frozen=True):
    """The answer for one dead letter that was to be replayed."""

    id: JobId
    replayed: bool
    conflict: JobId | None = None
    """Not done because this live job holds its unique key; None and not done: no such dead letter."""
