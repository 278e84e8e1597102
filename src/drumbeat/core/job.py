"""What a job is, from the call that makes it to the record of its end.

Values only. Times are integer microseconds UTC by the store's clock; `Job`, which people see, has datetimes. The hot
records (`NewJob`, `Claimed`, `Outcome`) are structs because thousands of them are made in a second.
"""

from collections.abc import Mapping, Sequence
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


class ClaimRef(msgspec.Struct, frozen=True, array_like=True):
    """A claim of a job: what every write about a running job must name."""

    id: JobId
    token: int


class ClaimedJob(msgspec.Struct, frozen=True, array_like=True):
    """A job in a worker's hands. The order of the fields is the order of columns in every engine's claim."""

    id: JobId
    token: int
    task: str
    queue: str
    priority: int
    key: str | None
    args: str
    signature: str
    created_at: int
    due_at: int
    """The moment it was first meant for; retries do not move it."""
    run_at: int
    failures: int
    crashes: int
    retries: int | None
    timeout: int | None
    crash_limit: int
    on_dead: str | None
    replays: int
    """0, and one more for each replay."""
    blocked_since: int | None
    """When it began to wait for something other than time; None: it never did, or has been run since."""
    trace: str | None = None

    @property
    def attempt(self) -> int:
        return self.failures + 1


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


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one claim of a job ended. Every text in it is storable."""

    id: JobId
    token: int
    kind: OutcomeKind
    started_at: int | None = None
    finished_at: int | None = None
    result: str | None = None
    """JSON text; None when there is nothing to keep."""
    result_error: str | None = None
    """Why the result could not be kept; the job has succeeded all the same."""
    error: Failure | None = None
    delay: int = 0
    blocked_on: str | None = None
    follow_up: NewJob | None = None
    """The on_dead job, stored in the same step if this outcome makes the job dead (DEAD, or CRASHED at the limit)."""


class WriteStatus(StrEnum):
    APPLIED = "applied"
    DUPLICATE = "duplicate"  # the same outcome was recorded before: its answer was lost
    STALE = "stale"  # the claim is no longer current: nothing was changed


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks for."""

    queues: tuple[tuple[str, int], ...]
    """(queue, share) in the order of their turn: each queue first gives at most its share, then what is left of `limit`
    is filled in the same order. A share of `limit` each is strict order."""
    limit: int
    unblocks: tuple[str, ...] = ()
    """Values of blocked_on that this worker can take; claimed before the queues, from those queues only."""
    is_expected: bool = False
    """Somebody said that a job is due: an engine that would look before it takes a lock may save the look."""


class MalformedJob(msgspec.Struct, frozen=True):
    """A claimed job whose stored record cannot be read: whoever claimed it ends it as dead, with this reason."""

    job: ClaimedJob
    """What could be read of it; id and token are those of the claim, what cannot be read is neutral."""
    reason: str


class ClaimResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to outcomes and a claim."""

    statuses: list[WriteStatus]
    jobs: list[ClaimedJob]
    now: int
    next_due_at: int | None = None
    """When the claim was not filled: the next moment at which one of its queues has a job due."""
    parked_claim: bool = False
    """The claim found nothing, and may be answered later."""
    malformed: Sequence[MalformedJob] = ()
    """Claimed like `jobs`, and not to be run."""


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


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs somebody wants to see; None means any. What is set must all be so."""

    state: JobState | None = None
    view: PendingView | None = None
    """Pending jobs that people are shown by this word at this moment."""
    task: str | None = None
    queue: str | None = None
    key: str | None = None
    error: str | None = None
    """A part of the error's type or message."""
    schedule: str | None = None
    """Fires of this schedule."""
    instance: InstanceId | None = None
    """Where it runs, or ran last before it ended."""
    since: int | None = None
    """Made at this moment or later, in microseconds: by its id, so by the clock of whoever made it, to the millisecond."""
    until: int | None = None
    """Made before this moment."""
    id: str | None = None
    """The id, or its beginning."""
    id_end: str | None = None
    """How the id ends, in lower case: what lists that have little room show of it."""
    dead_letters: bool = False
    """Only dead letters: not the dead that somebody has discarded."""
    before: JobId | None = None
    """Keyset paging: only ids smaller than this one, newest first."""
    limit: int = 50
    preview: int | None = None
    """Of arguments, progress and result only the first so many characters are read; None: all of them."""


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what a filter means, newest first."""

    items: list[Job]
    next: JobId | None
    """Go on with `before=` this: there may be more, also where this page is not full, or empty. None: that was all."""


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs there are, by the word that people see."""

    ready: int = 0
    scheduled: int = 0
    retrying: int = 0
    waiting: int = 0
    running: int = 0
    succeeded: int = 0
    dead: int = 0
    """Dead letters, and those that somebody has discarded and that are not pruned yet."""
    cancelled: int = 0
    capped: bool = False
    """There may be more than these numbers say: the count ended before the jobs did."""

    @property
    def total(self) -> int:
        """All that were counted."""
        known = self.ready + self.scheduled + self.retrying + self.waiting + self.running
        return known + self.succeeded + self.dead + self.cancelled


class ReplayResult(msgspec.Struct, frozen=True):
    """The answer for one dead letter that was to be replayed."""

    id: JobId
    replayed: bool
    conflict: JobId | None = None
    """Not done because this live job holds its unique key; None and not done: no such dead letter."""


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ready: int
    scheduled: int
    running: int
    waiting: int
    oldest_due: datetime | None
    """run_at of the job that has been ready for longest."""
    paused: bool = False
    paused_by: str | None = None
    paused_reason: str | None = None
    paused_at: datetime | None = None


class TaskStats(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    pending: int
    running: int
    succeeded: int
    dead: int
    cancelled: int


def blocked_on_task(task: str) -> str:
    """blocked_on of a job whose task the claiming worker does not know."""
    return f"task:{task}"


def blocked_on_version(task: str, signature: str) -> str:
    """blocked_on of a job that only a worker of this signature can decode."""
    return f"version:{task}@{signature}"


def unblocked_by(tasks: Mapping[str, str]) -> frozenset[str]:
    """All values of blocked_on that a worker with these tasks (name -> signature) can satisfy."""
    return frozenset(blocked_on_task(name) for name in tasks) | frozenset(
        blocked_on_version(name, signature) for name, signature in tasks.items()
    )
