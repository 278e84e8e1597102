"""What a job is, from the call that makes it to the record of its end.

Values only. Times are integer microseconds UTC by the store's clock; `Job`, which people see, has datetimes. `NewJob` is
a struct because a bulk enqueue makes thousands of them a second.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from drumbeat.core.job_fields import GivenFields, JobFields
from drumbeat.core.job_fields import JobState as JobState
from drumbeat.core.job_fields import Unique as Unique
from drumbeat.ids import InstanceId, JobId

LIVE_STATES = frozenset({JobState.PENDING, JobState.RUNNING})


class PendingView(StrEnum):
    """What people are shown of a pending job; never stored."""

    SCHEDULED = "scheduled"  # its first moment has not come
    READY = "ready"
    RETRYING = "retrying"  # failed or crashed before, its next moment has not come
    WAITING = "waiting"  # blocked_on something other than time


class NewJob(GivenFields[int], frozen=True, kw_only=True, gc=False):
    """One job to be stored. The id is the client's, so that a repeated call is the same job.

    It cannot be part of a reference cycle, so the garbage collector need not track the many of a bulk enqueue.
    """

    run_at: int | None = None
    """When it is due; None: `delay` microseconds after the store's now."""
    delay: int = 0


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


class Job(JobFields[datetime, float, bool, Failure], frozen=True, kw_only=True):
    """The record of a job, as people and programs see it."""

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
