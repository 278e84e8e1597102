"""What a job is, from the call that makes it to the record of its end.

Values only. Times are integer microseconds UTC by the store's clock; `Job`, which people see, has datetimes. `NewJob` is
a struct because a bulk enqueue makes thousands of them a second.
"""

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from drumbeat.core.edge import NewEdge
from drumbeat.core.job_fields import AllJobFields, GivenFields
from drumbeat.core.job_fields import JobState as JobState
from drumbeat.core.job_fields import Unique as Unique
from drumbeat.ids import InstanceId, JobId

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    R_co = TypeVarWithDefault("R_co", covariant=True, default=Any)
else:
    R_co = TypeVar("R_co", covariant=True)
LIVE_STATES = frozenset({JobState.PENDING, JobState.RUNNING})


class PendingView(StrEnum):
    """How a pending job is displayed; never stored."""

    SCHEDULED = "scheduled"  # its first run_at has not passed
    READY = "ready"
    RETRYING = "retrying"  # failed or crashed before, its next run_at has not passed
    WAITING = "waiting"  # blocked_on is set


class NewJob(GivenFields[int], Generic[R_co], frozen=True, kw_only=True, gc=False):
    """One job to be stored, whose function returns R. The id is the client's, so that a repeated call is the same job.

    It cannot be part of a reference cycle, so the garbage collector need not track the many of a bulk enqueue.
    """

    run_at: int | None = None
    """When it is due; None: `delay` microseconds after the store's now."""
    delay: int = 0
    expires_at: int | None = None
    """Its first attempt must start before; None: `expires` microseconds after it is due."""
    expires: int | None = None
    """None, if expires_at is None too: it never expires."""
    after: tuple[NewEdge, ...] = ()
    """The jobs that it waits for. No column: such jobs are stored by `DependencyStore.add`, with these edges."""


class AddResult(msgspec.Struct, frozen=True):
    """The result of adding one NewJob."""

    id: JobId
    created: bool
    """False: a job with this id exists (whatever its state), or a live one holds the unique key: `id` is that one's."""


class Failure(msgspec.Struct, frozen=True):
    """An error as text: no object, no locals, made storable before it gets here."""

    type: str
    message: str
    traceback: str = ""


class ResultFields(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of how a run ended."""

    result: str | None = None
    """JSON text; None when there is nothing to keep."""
    result_error: str | None = None
    """Why the result could not be kept; the job has succeeded nevertheless."""
    error: Failure | None = None


class OutcomeKind(StrEnum):
    SUCCEEDED = "succeeded"
    RETRY = "retry"  # charged to failures; pending again after `delay`
    DEAD = "dead"  # charged to failures; a dead letter
    CANCELLED = "cancelled"  # it ended because its cancellation was requested
    SNOOZED = "snoozed"  # not charged; pending again after `delay`
    RELEASED = "released"  # not charged; pending again at once; had started if started_at is set
    SUSPENDED = "suspended"  # not charged; it sleeps or waits for a signal, and is pending until then
    BLOCKED = "blocked"  # not charged; pending again with blocked_on
    EXPIRED = "expired"  # it was claimed too late, and did not start
    CRASHED = "crashed"  # its own process died under it: charged to crashes, dead at crash_limit


class CancelAnswer(StrEnum):
    CANCELLED = "cancelled"  # it will never run
    REQUESTED = "requested"  # it was running; it is told, and may still end otherwise
    SUCCEEDED = "succeeded"  # too late: the final state
    DEAD = "dead"
    EXPIRED = "expired"
    UNKNOWN = "unknown"  # no such job here


class Cancelled(msgspec.Struct, frozen=True):
    """How many jobs were cancelled."""

    cancelled: int
    """Pending jobs, which will never run."""
    requested: int
    """Running jobs, which were asked to stop and may still end otherwise."""


class EndedJob(ResultFields, frozen=True, kw_only=True):
    """The result of a job that has ended."""

    id: JobId
    task: str
    state: JobState


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job that has ended."""

    token: int
    instance: InstanceId | None
    outcome: OutcomeKind
    started_at: datetime | None
    finished_at: datetime
    error: Failure | None = None


class Job(AllJobFields[datetime, float, bool, Failure], frozen=True, kw_only=True):
    """The record of a job, as people and programs see it."""

    @property
    def attempt(self) -> int:
        """The number of the run that is next, running, or was the last."""
        return max(1, self.failures) if self.state is JobState.DEAD else self.failures + 1

    @property
    def attempts(self) -> int:
        """How many runs have begun: those that failed, and the one that runs or ended it. Crashes are not counted."""
        is_more = self.state in (JobState.RUNNING, JobState.SUCCEEDED) or (
            self.state is JobState.CANCELLED and self.started_at is not None
        )
        return self.failures + is_more

    def view(self, now: datetime) -> JobState | PendingView:
        """How this job is displayed at this time."""
        if self.state is not JobState.PENDING:
            return self.state
        if self.blocked_on is not None:
            return PendingView.WAITING
        if self.run_at <= now:
            return PendingView.READY
        return PendingView.RETRYING if self.failures or self.crashes else PendingView.SCHEDULED


class ReplayResult(msgspec.Struct, frozen=True):
    """The result of replaying one dead letter."""

    id: JobId
    replayed: bool
    conflict: JobId | None = None
    """The live job that holds its unique key; None where not replayed: there is no such dead letter."""
