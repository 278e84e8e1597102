"""How a handler ended, and what becomes of its job: the one place that turns the first into the second.

Handlers run on the loop, in threads or in other processes; each of these gives an `Ending`. `judge` is pure.
"""

import random
import traceback
from enum import StrEnum
from typing import Protocol

import msgspec

from drumbeat.codec import storable
from drumbeat.context import Aborted, AbortReason, Completion
from drumbeat.durations import from_us
from drumbeat.ids import InstanceId
from drumbeat.model.death import follow_up
from drumbeat.model.job import Claimed, Failure, Job, JobState, Malformed, NewJob, Outcome, OutcomeKind
from drumbeat.retry import Backoff, RetryLater, SkipRetry, Snooze

MESSAGE_LIMIT = 4_000
TRACEBACK_LIMIT = 20_000


class How(StrEnum):
    RETURNED = "returned"
    RAISED = "raised"  # any exception of the task's own: charged
    SKIP_RETRY = "skip retry"
    RETRY_LATER = "retry later"
    SNOOZED = "snoozed"
    ABORTED = "aborted"  # `reason` says why: cancelled, timed out, draining, lease lost
    CRASHED = "crashed"  # the process that ran just this job died
    UNDECODABLE = "undecodable"  # no version can read the arguments


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    how: How
    result: str | None = None
    result_error: str | None = None
    error: Failure | None = None
    delay: int = 0
    reason: AbortReason | None = None
    completion: Completion | None = None
    """The handler has completed its job in a transaction; told by a child process."""


NOT_COMMITTED = Ending(
    how=How.RAISED,
    error=Failure("NotCommitted", "the handler called complete(), but its transaction was not committed"),
)


class Policy(Protocol):
    """What `judge` must know of a task."""

    retries: int
    backoff: Backoff


def failure(error: BaseException) -> Failure:
    """An exception as storable text: type, message, traceback without locals."""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        message = str(error)
    except Exception as broken:  # the task's own __str__
        message = f"<str() of this error raised {type(broken).__name__}>"
    trace = "".join(traceback.format_exception(error, limit=-50, chain=True))
    return Failure(storable(name, 200), storable(message, MESSAGE_LIMIT), storable(trace, TRACEBACK_LIMIT))


def from_exception(error: BaseException) -> Ending:
    """The ending of a handler that raised this."""
    match error:
        case Snooze():
            return Ending(how=How.SNOOZED, delay=error.delay_us)
        case RetryLater():
            return Ending(how=How.RETRY_LATER, delay=error.delay_us, error=failure(error))
        case SkipRetry():
            return Ending(how=How.SKIP_RETRY, error=failure(error))
        case Aborted():
            return Ending(how=How.ABORTED, reason=error.reason, error=failure(error))
        case _:
            return Ending(how=How.RAISED, error=failure(error))


def judge(
    job: Claimed, policy: Policy, ending: Ending, *, instance: InstanceId, started_at: int, finished_at: int
) -> Outcome | None:
    """The outcome to store; None when the job is no longer ours to write about (its lease is lost)."""
    match ending.how:
        case How.RETURNED:
            return Outcome(
                id=job.id,
                token=job.token,
                kind=OutcomeKind.SUCCEEDED,
                started_at=started_at,
                finished_at=finished_at,
                result=ending.result,
                result_error=ending.result_error,
            )
        case How.ABORTED if ending.reason is AbortReason.LEASE_LOST:
            return None
        case How.ABORTED if ending.reason is AbortReason.DRAINING:
            kind, delay = OutcomeKind.RELEASED, 0
        case How.ABORTED if ending.reason is AbortReason.CANCELLED:
            kind, delay = OutcomeKind.CANCELLED, 0
        case How.SNOOZED:
            kind, delay = OutcomeKind.SNOOZED, ending.delay
        case How.CRASHED:
            kind, delay = OutcomeKind.CRASHED, 0
        case How.SKIP_RETRY | How.UNDECODABLE:
            kind, delay = OutcomeKind.DEAD, 0
        case How.RAISED | How.RETRY_LATER | How.ABORTED:
            kind, delay = _charged(job, policy, ending)
    dies = kind is OutcomeKind.DEAD or (kind is OutcomeKind.CRASHED and job.crashes + 1 >= job.crash_limit)
    return Outcome(
        id=job.id,
        token=job.token,
        kind=kind,
        started_at=started_at,
        finished_at=finished_at,
        error=ending.error,
        delay=delay,
        follow_up=_follow_up(job, kind, ending, instance, started_at, finished_at) if dies and job.on_dead else None,
    )


def end_malformed(malformed: Malformed, instance: InstanceId) -> Outcome:
    """The outcome of a claimed job whose stored record cannot be read. It never started."""
    job = malformed.job
    ending = Ending(how=How.UNDECODABLE, error=Failure("Undecodable", storable(malformed.reason, MESSAGE_LIMIT)))
    can_follow = job.on_dead and job.queue
    return Outcome(
        id=job.id,
        token=job.token,
        kind=OutcomeKind.DEAD,
        error=ending.error,
        follow_up=_follow_up(job, OutcomeKind.DEAD, ending, instance, job.token, job.token) if can_follow else None,
    )


def _charged(job: Claimed, policy: Policy, ending: Ending) -> tuple[OutcomeKind, int]:
    """A failed attempt: another try, or the end."""
    retries = policy.retries if job.retries is None else job.retries
    if job.failures >= retries:
        return OutcomeKind.DEAD, 0
    if ending.how is How.RETRY_LATER:
        return OutcomeKind.RETRY, ending.delay
    return OutcomeKind.RETRY, policy.backoff.delay_us(job.failures + 1, random.random)


def _follow_up(
    job: Claimed, kind: OutcomeKind, ending: Ending, instance: InstanceId, started_at: int, finished_at: int
) -> NewJob | None:
    error = ending.error or Failure("Unknown", "")
    crashed = kind is OutcomeKind.CRASHED
    record = Job(
        id=job.id,
        task=job.task,
        queue=job.queue,
        state=JobState.DEAD,
        priority=job.priority,
        key=job.key,
        args=job.args,
        signature=job.signature,
        created_at=from_us(job.created_at),
        due_at=from_us(job.due_at),
        run_at=from_us(job.run_at),
        started_at=from_us(started_at),
        finished_at=from_us(finished_at),
        instance=instance,
        token=job.token,
        failures=job.failures + (not crashed),
        crashes=job.crashes + crashed,
        retries=job.retries,
        timeout=None if job.timeout is None else job.timeout / 1e6,
        crash_limit=job.crash_limit,
        error=error,
        on_dead=job.on_dead,
        life=job.life,
        trace=job.trace,
    )
    return follow_up(record, error)
