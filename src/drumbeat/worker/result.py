"""How a handler ended (`HandlerResult`), and the outcome that follows for its job (`to_outcome`, pure).

Handlers run on the loop, in threads or in child processes; all of them make a `HandlerResult`.
"""

import random
import traceback
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import msgspec

from drumbeat.codec import Unstorable, make_storable
from drumbeat.context import Aborted, AbortReason, Completion
from drumbeat.core.claim import ClaimedJob, MalformedJob, Outcome
from drumbeat.core.follow_up import make_on_dead_job, make_on_success_job
from drumbeat.core.job import Failure, Job, JobState, NewJob, OutcomeKind
from drumbeat.core.job_fields import JOB_FIELDS
from drumbeat.core.suspension import Suspension
from drumbeat.core.transitions import is_fatal
from drumbeat.durations import format_length, from_us
from drumbeat.errors import StepError
from drumbeat.handle import TIMED_OUT
from drumbeat.ids import InstanceId
from drumbeat.retry import RETRY_ALL, Backoff, RetryFilter, RetryLater, SkipRetry, Snooze
from drumbeat.step_calls import RunSteps, Suspended

MESSAGE_LIMIT = 4_000
TRACEBACK_LIMIT = 20_000
MAX_FRAMES = 50
MAX_CHAIN = 50
_SHARED_FIELDS = tuple(name for name in ClaimedJob.__struct_fields__ if name in JOB_FIELDS)


ResultEncoder = Callable[[Any], str]
"""The JSON of a result; raises Unstorable."""


class ResultKind(StrEnum):
    RETURNED = "returned"
    RAISED = "raised"  # any exception of the task's own: charged
    SKIP_RETRY = "skip retry"  # the signal, or an exception that the task does not retry
    RETRY_LATER = "retry later"
    SNOOZED = "snoozed"
    SUSPENDED = "suspended"  # by sleep() or wait_for()
    ABORTED = "aborted"  # `reason`: cancelled, timed out, draining, lease lost
    CRASHED = "crashed"  # the process that ran just this job died
    UNDECODABLE = "undecodable"  # no version can read the arguments


class ParentResultUnusable(Exception):
    """A result of a parent is lost, or of another type than its child takes. A retry cannot help."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class HandlerResult(msgspec.Struct, frozen=True, kw_only=True):
    kind: ResultKind
    result: str | None = None
    result_error: str | None = None
    error: Failure | None = None
    delay: int = 0
    reason: AbortReason | None = None
    suspension: Suspension | None = None
    completion: Completion | None = None
    """The handler has completed its job in a transaction; set by a child process."""


RETURNED_NOTHING = HandlerResult(kind=ResultKind.RETURNED)
INTERRUPTED = HandlerResult(kind=ResultKind.ABORTED, reason=AbortReason.DRAINING)
"""The whole worker is being cancelled: the job is released."""

SWALLOWED_SUSPENSION = HandlerResult(
    kind=ResultKind.RAISED,
    error=Failure(
        "SuspensionSwallowed",
        "the handler caught the exception by which sleep() or wait_for() ends a run: let Suspended pass, "
        "as asyncio.CancelledError must",
    ),
)

NOT_COMMITTED = HandlerResult(
    kind=ResultKind.RAISED,
    error=Failure("NotCommitted", "the handler called complete(), but its transaction was not committed"),
)


class RetryPolicy(Protocol):
    """What `to_outcome` must know of a task."""

    retries: int
    backoff: Backoff
    retry_filter: RetryFilter
    on_success: str | None


def from_value(value: Any, encode: ResultEncoder) -> HandlerResult:
    """The handler returned this."""
    if value is None:
        return RETURNED_NOTHING
    try:
        return HandlerResult(kind=ResultKind.RETURNED, result=encode(value))
    except Unstorable as error:
        return HandlerResult(kind=ResultKind.RETURNED, result_error=error.reason)


def from_abort(reason: AbortReason | None) -> HandlerResult:
    """The run was interrupted for this reason."""
    error = Failure("Aborted", f"the run was ended: {reason}")
    return HandlerResult(kind=ResultKind.ABORTED, reason=reason, error=error)


def from_timeout(limit_us: int) -> HandlerResult:
    error = Failure(TIMED_OUT, f"timed out after {format_length(limit_us)}")
    return HandlerResult(kind=ResultKind.ABORTED, reason=AbortReason.TIMED_OUT, error=error)


def describe_failure(error: BaseException) -> Failure:
    """An exception as storable text: type, message, traceback without locals.

    Never raises: an exception is task code as well (`__str__`, `__notes__`, `__cause__`), and one that cannot be described must
    not end the worker.
    """
    name = _safe_text(lambda: _name_of(type(error)), "an exception whose class has no name")
    message = _safe_text(lambda: str(error), None)
    trace = _safe_text(lambda: _format_traceback(error), "")
    if not trace:
        frames = _safe_text(lambda: "".join(traceback.format_tb(_traceback_of(error), limit=-MAX_FRAMES)), "")
        trace = f"Traceback (most recent call last):\n{frames}{name}: {message}\n"
    return Failure(
        make_storable(name, 200), make_storable(message, MESSAGE_LIMIT), make_storable(trace, TRACEBACK_LIMIT)
    )


def _safe_text(make: Callable[[], str], fallback: str | None) -> str:
    try:
        # Joined: turns a subclass of str, whose methods are task code, into a plain str.
        return "".join((make(),))
    except BaseException as broken:  # task code, as in the runner
        return f"<str() of this error raised {type(broken).__name__}>" if fallback is None else fallback


def _name_of(kind: type[BaseException]) -> str:
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def _format_traceback(error: BaseException) -> str:
    chain = _chain_length(error) <= MAX_CHAIN
    return "".join(traceback.format_exception(type(error), error, _traceback_of(error), limit=-MAX_FRAMES, chain=chain))


def _traceback_of(error: BaseException) -> TracebackType | None:
    """The real one, though the class may have an attribute of this name."""
    found: TracebackType | None = vars(BaseException)["__traceback__"].__get__(error)
    return found


def _chain_length(error: BaseException) -> int:
    """The number of causes: formatting thousands of them would block the loop for seconds."""
    length, each = 0, error.__cause__ or error.__context__
    while each is not None and length <= MAX_CHAIN:
        length, each = length + 1, each.__cause__ or each.__context__
    return length


def from_exception(
    error: BaseException, aborted: AbortReason | None = None, retry_filter: RetryFilter = RETRY_ALL
) -> HandlerResult:
    """The handler raised this; `aborted`: the reason why its run was aborted, if it was. Never raises."""
    try:
        return _from_signal(_unwrap_group(error), aborted) or HandlerResult(
            kind=ResultKind.RAISED if retry_filter.accepts(error) else ResultKind.SKIP_RETRY,
            error=describe_failure(error),
        )
    except BaseException:  # a signal that was never initialised, a class that lies about itself
        return HandlerResult(kind=ResultKind.RAISED, error=describe_failure(error))


def _from_signal(error: BaseException, aborted: AbortReason | None) -> HandlerResult | None:
    """The result of a control exception such as Snooze; None: it is an ordinary exception."""
    match error:
        case Suspended():
            return HandlerResult(kind=ResultKind.SUSPENDED, delay=error.delay_us, suspension=error.suspension)
        case Snooze():
            return HandlerResult(kind=ResultKind.SNOOZED, delay=error.delay_us)
        case RetryLater():
            return HandlerResult(kind=ResultKind.RETRY_LATER, delay=error.delay_us, error=describe_failure(error))
        case SkipRetry():
            return HandlerResult(kind=ResultKind.SKIP_RETRY, error=describe_failure(error))
        case ParentResultUnusable():
            return HandlerResult(kind=ResultKind.SKIP_RETRY, error=error.failure)
        case StepError():
            return HandlerResult(kind=ResultKind.SKIP_RETRY, error=describe_failure(error))
        case Aborted() if aborted is not None:
            # Only if the worker has aborted the run: a handler that raises Aborted by itself has failed.
            return HandlerResult(kind=ResultKind.ABORTED, reason=aborted, error=describe_failure(error))
        case _:
            return None


def settle_steps(result: HandlerResult, steps: RunSteps) -> HandlerResult:
    """The result of a run that made steps. A handler that swallowed its suspension never succeeds; one that was aborted as well
    ends by that."""
    if result.kind is ResultKind.RETURNED:
        steps.warn_of_unused()
    if steps.suspended is None or result.kind in (ResultKind.SUSPENDED, ResultKind.ABORTED):
        return result
    return SWALLOWED_SUSPENSION


def _unwrap_group(error: BaseException) -> BaseException:
    """The only exception in a group, however deep: Snooze raised in the handler's TaskGroup counts as Snooze. So does
    Suspended, of which there may be several: each task that goes on raises it again."""
    if isinstance(error, BaseExceptionGroup) and error.split(Suspended)[1] is None:
        return _first_leaf(error)
    for _ in range(MAX_CHAIN):
        if not isinstance(error, BaseExceptionGroup) or len(error.exceptions) != 1:
            return error
        error = error.exceptions[0]
    return error


def _first_leaf(error: BaseException) -> BaseException:
    return _first_leaf(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def to_outcome(
    job: ClaimedJob,
    policy: RetryPolicy,
    result: HandlerResult,
    *,
    instance: InstanceId,
    started_at: int,
    finished_at: int,
) -> Outcome | None:
    """The outcome to store; None when the job is no longer ours (its lease is lost)."""
    match result.kind:
        case ResultKind.RETURNED:
            kind, delay = OutcomeKind.SUCCEEDED, 0
        case ResultKind.ABORTED if result.reason is AbortReason.LEASE_LOST:
            return None
        case ResultKind.ABORTED if result.reason is AbortReason.DRAINING:
            kind, delay = OutcomeKind.RELEASED, 0
        case ResultKind.ABORTED if result.reason is AbortReason.CANCELLED:
            kind, delay = OutcomeKind.CANCELLED, 0
        case ResultKind.SNOOZED:
            kind, delay = OutcomeKind.SNOOZED, result.delay
        case ResultKind.SUSPENDED:
            kind, delay = OutcomeKind.SUSPENDED, result.delay
        case ResultKind.CRASHED:
            kind, delay = OutcomeKind.CRASHED, 0
        case ResultKind.SKIP_RETRY | ResultKind.UNDECODABLE:
            kind, delay = OutcomeKind.DEAD, 0
        case ResultKind.RAISED | ResultKind.RETRY_LATER | ResultKind.ABORTED:
            kind, delay = _retry_or_die(job, policy, result)
    follow_up: NewJob | None = None
    if kind is OutcomeKind.SUCCEEDED and policy.on_success is not None:
        ran = RanJob(job, instance, started_at, finished_at)
        follow_up = success_follow_up(ran, policy.on_success, result.result, result.result_error)
    elif job.on_dead and is_fatal(job, kind):
        follow_up = _dead_follow_up(RanJob(job, instance, started_at, finished_at), kind, result)
    return Outcome(
        id=job.id,
        token=job.token,
        kind=kind,
        started_at=started_at,
        finished_at=finished_at,
        follow_up=follow_up,
        result=result.result,
        result_error=result.result_error,
        error=result.error,
        delay=delay,
        suspension=result.suspension,
    )


def malformed_outcome(malformed: MalformedJob, instance: InstanceId) -> Outcome:
    """The outcome of a claimed job whose stored record cannot be read. It never started."""
    job = malformed.job
    result = HandlerResult(
        kind=ResultKind.UNDECODABLE, error=Failure("Undecodable", make_storable(malformed.reason, MESSAGE_LIMIT))
    )
    can_follow = job.on_dead and job.queue
    return Outcome(
        id=job.id,
        token=job.token,
        kind=OutcomeKind.DEAD,
        error=result.error,
        follow_up=_dead_follow_up(RanJob(job, instance, job.token, job.token), OutcomeKind.DEAD, result)
        if can_follow
        else None,
    )


def _retry_or_die(job: ClaimedJob, policy: RetryPolicy, result: HandlerResult) -> tuple[OutcomeKind, int]:
    """A failed attempt: a retry, or a dead letter."""
    retries = policy.retries if job.retries is None else job.retries
    is_timeout = result.reason is AbortReason.TIMED_OUT
    if job.failures >= retries or (is_timeout and not policy.retry_filter.accepts_timeout()):
        return OutcomeKind.DEAD, 0
    if result.kind is ResultKind.RETRY_LATER:
        return OutcomeKind.RETRY, result.delay
    return OutcomeKind.RETRY, policy.backoff.delay_us(job.failures + 1, random.random)


class RanJob(NamedTuple):
    """A job whose last run has ended, for the record that its follow-up gets."""

    job: ClaimedJob
    instance: InstanceId
    started_at: int
    finished_at: int

    def to_record(self, **changes: Any) -> Job:
        job = self.job
        fields: dict[str, Any] = {name: getattr(job, name) for name in _SHARED_FIELDS}
        fields |= {name: from_us(fields[name]) for name in ("created_at", "due_at", "run_at")}
        fields |= {
            "started_at": from_us(self.started_at),
            "finished_at": from_us(self.finished_at),
            "instance": self.instance,
            "timeout": None if job.timeout is None else job.timeout / 1e6,
        }
        return Job(**fields | changes)


def success_follow_up(ran: RanJob, on_success: str, result: str | None, result_error: str | None) -> NewJob:
    record = ran.to_record(state=JobState.SUCCEEDED, result=result, result_error=result_error)
    return make_on_success_job(record, on_success)


def _dead_follow_up(ran: RanJob, kind: OutcomeKind, result: HandlerResult) -> NewJob | None:
    error = result.error or Failure("Unknown", "")
    is_crash = kind is OutcomeKind.CRASHED
    record = ran.to_record(
        state=JobState.DEAD,
        failures=ran.job.failures + (not is_crash),
        crashes=ran.job.crashes + is_crash,
        error=error,
    )
    return make_on_dead_job(record, error)
