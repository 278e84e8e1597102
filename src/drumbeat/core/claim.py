"""What a worker and a store exchange: a claim of jobs, and the outcome of each claimed job.

Times are integer microseconds UTC by the store's clock.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from drumbeat.core.job import NewJob, OutcomeKind, ResultFields
from drumbeat.core.suspension import Suspension
from drumbeat.ids import InstanceId, JobId


class ClaimRef(msgspec.Struct, frozen=True, array_like=True):
    """A claim of a job, named by every write about a running job."""

    id: JobId
    token: int


class ClaimedJob(msgspec.Struct, frozen=True, array_like=True):
    """What a worker needs of a job. The order of the fields is the order of columns in every engine's claim.

    Not derived from `AllJobFields`: it is built for every run, and a constructor with keywords takes three times as long.
    """

    id: JobId
    token: int
    args: str
    run_at: int
    failures: int
    crashes: int
    replays: int
    blocked_since: int | None
    """When it was blocked; None: it never was, or has been run since."""
    # From here on what never changes: fields of `JobHeader` on Redis.
    task: str
    queue: str
    priority: int
    key: str | None
    signature: str
    created_at: int
    due_at: int
    retries: int | None
    timeout: int | None
    crash_limit: int
    on_dead: str | None
    trace: str | None = None
    expires_at: int | None = None
    group: str = ""
    lane: str = ""
    """Its place under limits (core/lanes.py) as the store has it."""
    has_run: bool | int = False
    """It has been claimed before and is pending again since: there may be steps to load."""
    binds: bool | int = False
    """Some of its arguments are results of its parents: they are to be loaded."""

    @property
    def attempt(self) -> int:
        return self.failures + 1


class Outcome(ResultFields, frozen=True, kw_only=True):
    """How one claim of a job ended. Every text in it is storable."""

    id: JobId
    token: int
    kind: OutcomeKind
    started_at: int | None = None
    finished_at: int | None = None
    delay: int = 0
    blocked_on: str | None = None
    lane: str | None = None
    """Of RELEASED: the job moves to this lane of its queue, and its group is that of the lane. None: it stays where it is."""
    suspension: Suspension | None = None
    """Of SUSPENDED: put on record in the same step."""
    follow_up: NewJob | None = None
    """Stored in the same step: the on_success job of SUCCEEDED; the on_dead job if this outcome makes the job dead (DEAD, or
    CRASHED at the limit)."""


class WriteStatus(StrEnum):
    APPLIED = "applied"
    DUPLICATE = "duplicate"  # the same outcome is on record: only its answer was lost
    STALE = "stale"  # the claim is no longer current: nothing was changed


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks for."""

    queues: tuple[tuple[str, int], ...]
    """(queue, share) in order: each queue first gives at most its share, then the rest of `limit` is filled in the same
    order. A share of `limit` each is strict priority."""
    limit: int
    unblocks: tuple[str, ...] = ()
    """Values of blocked_on that this worker can run; claimed first, from those queues only."""
    slots: int | None = None
    """How many of them may be under limits (a concurrency, a rate, an order): those are claimed for free slots only. None: all."""
    is_expected: bool = False
    """A notification said that a job is due: an engine that checks before it takes a lock may skip the check."""


class MalformedJob(msgspec.Struct, frozen=True):
    """A claimed job whose stored record cannot be read; the worker ends it as dead, with this reason."""

    job: ClaimedJob
    """What could be read; id and token are those of the claim, unreadable fields have neutral values."""
    reason: str


class ClaimResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of report_and_claim."""

    statuses: list[WriteStatus]
    jobs: list[ClaimedJob]
    now: int
    next_due_at: int | None = None
    """Where the claim was not filled: when the next job of its queues is due."""
    parked_claim: bool = False
    """The claim found nothing, and may be answered later by a hand-off."""
    is_releasing: bool = False
    """Parents have ended, and not all of their children were followed: `DependencyStore.advance` is to be called."""
    has_limited: bool = False
    """Jobs under limits are due and have room, but the claim had no slots left for them; also of a claim that was filled."""
    malformed: Sequence[MalformedJob] = ()
    """Claimed like `jobs`, but not to be run."""


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


class CompletedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A success that is recorded inside the program's own transaction."""

    instance: InstanceId
    claim: ClaimRef
    started_at: int
    result: str | None
    result_error: str | None
    follow_up: NewJob | None = None
    """The on_success job, stored in that transaction as well."""
