"""What becomes of a job: the rules of its state machine. Pure.

    pending --claim--> running --outcome, or death of its instance--> succeeded | cancelled | expired | dead | pending
    pending --cancel--> cancelled      pending --sweep--> expired

The SQL engines load a job, decide here, and write the `Transition` while the claim still stands. Redis decides inside its
scripts (`lua/_transitions.lua`, `lua/declare_instance_dead.lua`, `lua/report_and_claim.lua`). The test
tests/contract/test_rules_transitions.py compares every engine with these functions over all combinations.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

import msgspec

from drumbeat.core.claim import ClaimedJob, Outcome, WriteStatus
from drumbeat.core.follow_up import make_on_dead_job
from drumbeat.core.instance import DeadInstanceReport
from drumbeat.core.job import CancelAnswer, Failure, Job, JobState, NewJob, OutcomeKind, ResultFields, Unique
from drumbeat.core.suspension import Suspension
from drumbeat.ids import JobId

HOUR_US = 3_600_000_000

REQUEUING = frozenset(
    {
        OutcomeKind.RETRY,
        OutcomeKind.SNOOZED,
        OutcomeKind.RELEASED,
        OutcomeKind.SUSPENDED,
        OutcomeKind.BLOCKED,
        OutcomeKind.CRASHED,
    }
)
"""These make the job pending again, unless its cancellation was requested."""
UNCHARGED = frozenset({OutcomeKind.RELEASED, OutcomeKind.BLOCKED})
"""Without started_at, these leave no run on record."""

_CANCEL_ANSWERS = {
    None: CancelAnswer.UNKNOWN,
    "running": CancelAnswer.REQUESTED,
    "succeeded": CancelAnswer.SUCCEEDED,
    "dead": CancelAnswer.DEAD,
    "expired": CancelAnswer.EXPIRED,
}


class HeldJob(msgspec.Struct, frozen=True, array_like=True):
    """A running job, as far as ending its run needs it; the order of fields is the order of columns."""

    id: JobId
    token: int
    task: str
    key: str | None
    unique: Unique
    run_at: int
    claimed_at: int
    failures: int
    crashes: int
    crash_limit: int
    blocked_since: int | None
    cancel_requested: bool | int
    on_dead: str | None


J = TypeVar("J", bound=HeldJob)


class Transition(ResultFields, frozen=True, kw_only=True):
    """The next state of a running job, and what goes on record about the run that ended. A pending job without an error keeps
    that of its run before."""

    state: JobState
    recorded: OutcomeKind | None
    """The outcome on record; None: the job never started, no run is recorded."""
    started_at: int | None
    finished_at: int
    failures: int
    crashes: int
    run_at: int
    blocked_on: str | None = None
    blocked_since: int | None = None
    lane: str | None = None
    """The job moves to this lane. None: it stays in its own."""
    suspended: str | None = None
    """Not None: the job has started, so that it cannot expire any more."""
    suspension: Suspension | None = None
    """To be put on record in the same step, with the moment `until`; the first record of its kind and name counts."""
    follow_up: NewJob | None = None
    """The on_dead or on_success job, to be stored in the same step; only of a job that is dead or has succeeded."""


def has_expired(job: ClaimedJob, now: int) -> bool:
    """Whether a claimed job must not start any more. Only the first attempt expires: a job that has failed or crashed before,
    or that a person replays, is wanted. A snooze, a drain or a block is no attempt."""
    return job.expires_at is not None and job.expires_at <= now and not (job.failures or job.crashes or job.replays)


def is_fatal(job: ClaimedJob | HeldJob, kind: OutcomeKind) -> bool:
    """Whether this outcome makes the job a dead letter."""
    return kind is OutcomeKind.DEAD or (kind is OutcomeKind.CRASHED and job.crashes + 1 >= job.crash_limit)


def decide_outcome(job: HeldJob, outcome: Outcome, now: int, *, is_signalled: bool = False) -> Transition:
    """What an outcome of the current claim does to its job. `is_signalled`: the signal that it waits for is there already."""
    kind = outcome.kind
    crashes = job.crashes + (kind is OutcomeKind.CRASHED)
    if kind is OutcomeKind.SUCCEEDED:
        return _finish(job, outcome, now, JobState.SUCCEEDED, kind)
    if is_fatal(job, kind):
        return _finish(job, outcome, now, JobState.DEAD, kind, crashes=crashes)
    if kind is OutcomeKind.EXPIRED:
        return _finish(job, outcome, now, JobState.EXPIRED, kind)
    if kind is OutcomeKind.CANCELLED or job.cancel_requested:
        return _finish(job, outcome, now, JobState.CANCELLED, OutcomeKind.CANCELLED)
    if kind is OutcomeKind.SUSPENDED:
        return _suspend(job, outcome, now, is_signalled)
    return _requeue(job, outcome, now, crashes)


def decide_outcomes(
    jobs: Iterable[J], outcomes: Iterable[Outcome], now: int, signalled: Collection[JobId] = ()
) -> list[tuple[J, Transition]]:
    """The transitions of those outcomes whose claim is current. `jobs`: what runs under the reporting instance; `signalled`:
    those for which the signal is there that they are about to wait for."""
    current = {(job.id, job.token): job for job in jobs}
    decided = []
    for outcome in outcomes:
        # Popped: a second outcome of the same claim in one call is not current.
        job = current.pop((outcome.id, outcome.token), None)
        if job is not None:
            decided.append((job, decide_outcome(job, outcome, now, is_signalled=job.id in signalled)))
    return decided


def blame_crash(
    jobs: Sequence[J], started: Collection[tuple[JobId, int]] | None, reason: str, now: int
) -> list[tuple[J, Transition]]:
    """What becomes of the jobs of an instance that died. `started`: which were running; None: unknown, so all.

    A job that had started is a crash suspect, and runs alone next time. Only the crash of a suspect that ran alone is
    certainly its own, and is counted further.
    """
    blamed = [started is None or (job.id, job.token) in started for job in jobs]
    is_alone = sum(blamed) == 1
    decided = []
    for job, is_blamed in zip(jobs, blamed, strict=True):
        outcome = _crashed(job, reason) if is_blamed else leave_outcome(job)
        crashes = job.crashes
        if is_blamed:
            crashes = crashes + 1 if crashes and is_alone else max(crashes, 1)
        if job.cancel_requested:
            recorded = OutcomeKind.CRASHED if is_blamed else OutcomeKind.CANCELLED
            transition = _finish(job, outcome, now, JobState.CANCELLED, recorded)
        elif is_blamed and crashes >= job.crash_limit:
            transition = _finish(job, outcome, now, JobState.DEAD, outcome.kind, crashes=crashes)
        else:
            transition = _requeue(job, outcome, now, crashes)
        decided.append((job, transition))
    return decided


def find_on_dead_jobs(decided: Iterable[tuple[J, Transition]]) -> list[JobId]:
    """The jobs that become dead and have an on_dead task."""
    return [job.id for job, to in decided if to.state is JobState.DEAD and job.on_dead is not None]


def add_follow_ups(
    decided: Iterable[tuple[J, Transition]], records: Iterable[Job], error: Failure
) -> list[tuple[J, Transition]]:
    """The transitions with the on_dead jobs of `records`: those that `find_on_dead_jobs` named."""
    follow_ups = {job.id: make_on_dead_job(job, error) for job in records}
    return [(job, msgspec.structs.replace(to, follow_up=follow_ups.get(job.id))) for job, to in decided]


def report_crash(transitions: Iterable[Transition]) -> DeadInstanceReport:
    """The result of `blame_crash` in numbers."""
    kinds = [(each.state, each.recorded) for each in transitions]
    states = [state for state, _ in kinds]
    suspects = kinds.count((JobState.PENDING, OutcomeKind.CRASHED))
    return DeadInstanceReport(
        declared=True,
        crash_suspect=suspects,
        released=states.count(JobState.PENDING) - suspects,
        dead=states.count(JobState.DEAD),
        cancelled=states.count(JobState.CANCELLED),
    )


def split_statuses(
    outcomes: Sequence[Outcome], applied: Collection[tuple[JobId, int]]
) -> tuple[list[WriteStatus], list[int]]:
    """APPLIED for each claim in `applied`, once; STALE for the others, and their positions."""
    left = set(applied)
    statuses, positions = [], []
    for position, outcome in enumerate(outcomes):
        claim = (outcome.id, outcome.token)
        if claim in left:
            left.remove(claim)
            statuses.append(WriteStatus.APPLIED)
        else:
            positions.append(position)
            statuses.append(WriteStatus.STALE)
    return statuses, positions


def mark_duplicates(
    statuses: list[WriteStatus], outcomes: Sequence[Outcome], positions: Sequence[int], recorded: Iterable[str | None]
) -> int:
    """Set DUPLICATE where the outcome at a position is on record already; return how many stay STALE."""
    for position, kind in zip(positions, recorded, strict=True):
        if is_same_outcome(outcomes[position].kind, kind):
            statuses[position] = WriteStatus.DUPLICATE
    return statuses.count(WriteStatus.STALE)


def is_same_outcome(kind: OutcomeKind, recorded: str | None) -> bool:
    """Whether the outcome on record is this one, so that only its answer was lost.

    The death of an instance is on record as CRASHED: the late result of an instance that was declared dead is stale.
    """
    return recorded == kind.value or (recorded == OutcomeKind.CANCELLED.value and kind in REQUEUING)


def answer_cancel(state: str | None) -> CancelAnswer:
    """The answer to a request to cancel a job that is in this state; None: there is no such job.

    A state that does not exist was written by hand: such a job never runs, and is cancelled like a pending one.
    """
    return _CANCEL_ANSWERS.get(state, CancelAnswer.CANCELLED)


def leave_outcome(job: HeldJob) -> Outcome:
    """The outcome of a claim that its instance still held when it left, or that was not running when it died: not charged. It
    may have run, with its outcome not reported; a run that nothing records could not be explained, so it is recorded as one."""
    return Outcome(id=job.id, token=job.token, kind=OutcomeKind.RELEASED, started_at=job.claimed_at)


def crash_failure(reason: str) -> Failure:
    return Failure(type="WorkerCrashed", message=reason)


def expired_block_failure(blocked_on: str, blocked_since: int, now: int) -> Failure:
    """The error of a job that died because no worker unblocked it in time."""
    kind, _, name = blocked_on.partition(":")
    task, _, version = name.rpartition("@")
    wanted = {"task": f"task '{name}'", "version": f"version '{version}' of task '{task}'"}.get(kind, f"'{blocked_on}'")
    hours = round((now - blocked_since) / HOUR_US, 1)
    return Failure(type="WaitExpired", message=f"no worker registered {wanted} within {hours:g} h")


def _crashed(job: HeldJob, reason: str) -> Outcome:
    return Outcome(
        id=job.id,
        token=job.token,
        kind=OutcomeKind.CRASHED,
        started_at=job.claimed_at,
        error=crash_failure(reason),
    )


def _finish(
    job: HeldJob,
    outcome: Outcome,
    now: int,
    state: JobState,
    recorded: OutcomeKind | None,
    *,
    crashes: int | None = None,
) -> Transition:
    succeeded = state is JobState.SUCCEEDED
    return Transition(
        state=state,
        recorded=recorded,
        started_at=outcome.started_at,
        finished_at=outcome.finished_at or now,
        failures=job.failures + (outcome.kind is OutcomeKind.DEAD),
        crashes=job.crashes if crashes is None else crashes,
        run_at=job.run_at,
        error=None if succeeded else outcome.error,
        result=outcome.result if succeeded else None,
        result_error=outcome.result_error if succeeded else None,
        follow_up=outcome.follow_up if state in (JobState.SUCCEEDED, JobState.DEAD) else None,
    )


def _suspend(job: HeldJob, outcome: Outcome, now: int, is_signalled: bool) -> Transition:
    """Crashes are forgotten: a job that sleeps for a year meets many deploys, and what it did before is on record."""
    to = _requeue(job, outcome, now, crashes=0)
    suspension = outcome.suspension
    if suspension is None:
        return msgspec.structs.replace(to, run_at=now + outcome.delay)
    until = now + outcome.delay if suspension.until is None else suspension.until
    return msgspec.structs.replace(
        to,
        run_at=now if is_signalled else until,
        suspended=suspension.label,
        suspension=msgspec.structs.replace(suspension, until=until),
    )


def _requeue(job: HeldJob, outcome: Outcome, now: int, crashes: int) -> Transition:
    kind = outcome.kind
    started = outcome.started_at is not None or kind not in UNCHARGED
    blocked_on = outcome.blocked_on or None if kind is OutcomeKind.BLOCKED else None
    blocked_since = None if started else job.blocked_since
    if blocked_on is not None and blocked_since is None:
        blocked_since = now
    run_at = job.run_at
    if kind is OutcomeKind.RETRY or kind is OutcomeKind.SNOOZED:
        run_at = now + outcome.delay
    elif kind is not OutcomeKind.BLOCKED:
        run_at = min(run_at, now)
    return Transition(
        state=JobState.PENDING,
        recorded=kind if started else None,
        started_at=outcome.started_at,
        finished_at=outcome.finished_at or now,
        failures=job.failures + (kind is OutcomeKind.RETRY),
        crashes=crashes,
        run_at=run_at,
        lane=outcome.lane if kind is OutcomeKind.RELEASED else None,
        error=outcome.error,
        blocked_on=blocked_on,
        blocked_since=blocked_since,
    )
