"""The running job, as seen by its handler: `current_job()`.

A RunningJob is made for each run and set in a context variable, which threads of the worker get as a copy. It does not call the
store: the worker carries progress and aborts; completions go through a `Completer`.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from drumbeat import logs
from drumbeat.core.claim import ClaimedJob
from drumbeat.durations import from_us
from drumbeat.errors import NotInJob
from drumbeat.ids import InstanceId, JobId
from drumbeat.reason_signal import ReasonSignal
from drumbeat.step_calls import RunSteps, StepCalls

T = TypeVar("T")


class AbortReason(StrEnum):
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    DRAINING = "draining"
    LEASE_LOST = "lease lost"


class Aborted(BaseException):
    """Raised by `check()`: ends the attempt according to the reason.

    Derives from BaseException so that a handler's own `except Exception` does not swallow it.
    """

    def __init__(self, reason: AbortReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class AbortSignal(ReasonSignal[AbortReason]):
    """Whether a running job, start-up call or room handler should stop, and why. Set by the worker, read in any thread."""

    __slots__ = ()

    def check(self) -> None:
        """Raise if this code should stop."""
        if self._reason is not None:
            raise Aborted(self._reason)

    def _is_replaceable(self) -> bool:
        # Draining is only a request: a reason that ends the attempt replaces it.
        return self._reason is AbortReason.DRAINING


class Completion(StrEnum):
    """What is known of a job whose handler has completed it in a transaction."""

    UNCONFIRMED = "unsure"  # only the store knows whether the transaction was committed
    CONFIRMED = "sure"  # it was


class JobTransaction(AbstractAsyncContextManager[Any, None], AbstractContextManager[Any, None], Protocol):
    """A transaction on a connection of its own that commits the block's writes together with the job's completion."""


class Completer(Protocol):
    """Completes a job on behalf of its handler."""

    @property
    def instance(self) -> InstanceId: ...

    async def complete(self, job: "RunningJob", conn: Any, result: Any) -> None: ...

    def complete_sync(self, job: "RunningJob", conn: Any, result: Any) -> None: ...

    def transaction(self, job: "RunningJob") -> JobTransaction: ...

    def open_steps(self, job: "RunningJob") -> RunSteps: ...


class ClaimedField(Generic[T]):
    """An attribute of RunningJob that is one of its claimed job."""

    def __init__(self, get: Callable[[ClaimedJob], T]) -> None:
        self._get = get

    def __get__(self, running: "RunningJob", owner: type["RunningJob"]) -> T:
        return self._get(running._claimed)


@dataclass(slots=True, eq=False, repr=False)
class RunningJob(StepCalls):
    """The job whose handler is running here."""

    _claimed: ClaimedJob
    _report_progress: Callable[[ClaimedJob, Any], None]
    _completer: Completer
    _now_us: Callable[[], int]
    started_us: int
    completion: Completion | None = None
    aborted: AbortSignal = field(default_factory=AbortSignal)
    steps: RunSteps | None = None
    """None: this run has made no step."""
    is_parent: bool = True
    """Of a completion: other jobs may wait for this one. In child processes it is not asked."""

    @property
    def is_plain(self) -> bool:
        """Its handler has neither completed it nor made steps, as most."""
        return self.completion is None and self.steps is None

    @property
    def claimed(self) -> ClaimedJob:
        return self._claimed

    id = ClaimedField(lambda job: job.id)
    task = ClaimedField(lambda job: job.task)
    queue = ClaimedField(lambda job: job.queue)
    key = ClaimedField(lambda job: job.key)
    attempt = ClaimedField(lambda job: job.attempt)
    """1 at the first run, one more for each charged failure before."""
    token = ClaimedField(lambda job: job.token)
    """Fencing token, grows with each claim: a resource that remembers the highest one can refuse a zombie's write."""

    @property
    def instance(self) -> InstanceId:
        """The instance that runs it."""
        return self._completer.instance

    @property
    def scheduled_for(self) -> datetime:
        """The time this job was meant for, without delays and retries since."""
        return from_us(self._claimed.due_at)

    def now(self) -> datetime:
        """The time of day, UTC. In a test it is the time of the testing kit, which `datetime.now()` does not know."""
        return from_us(self._now_us())

    def progress(self, value: Any) -> None:
        """Report the progress of this job: any JSON value; the last one is stored about once a second. Never blocks."""
        self._report_progress(self._claimed, value)

    async def complete(self, *, conn: Any, result: Any = None) -> None:
        """Complete this job in your own transaction on `conn`: its writes and the job's completion are committed together.

        Make it the last statement before the commit: until then, the job can be neither cancelled nor inspected. `conn` is what
        `using(conn=...)` takes, a connection to the database that holds the jobs. If the transaction is rolled back, the job is
        not completed, and the attempt fails. The handler's return value is ignored: pass `result` here. On a connection in
        autocommit mode, outside of a transaction, the job is completed at once.

        If this job has been claimed by another worker meanwhile, the transaction fails as a whole, and the attempt is ended.

        Raises:
            InvalidArguments: `conn` cannot be used.
            NotTransactional: the store has no transactions.
            ClaimLost: this run has completed it already.
        """
        self._check_not_suspended()
        await self._completer.complete(self, conn, result)

    def complete_sync(self, *, conn: Any, result: Any = None) -> None:
        """As `complete`, for `def` handlers."""
        self._check_not_suspended()
        self._completer.complete_sync(self, conn, result)

    def transaction(self) -> JobTransaction:
        """`complete` with a connection of its own to the database that holds the jobs.

            async with current_job().transaction() as conn:
                await conn.execute(...)

        When the block ends, the job is completed and everything is committed; an exception rolls everything back. `conn` is
        asyncpg's on PostgreSQL (psycopg's in a `def` handler, with a plain `with`), and sqlite3's on SQLite, where the block
        may take at most 5 seconds, because it blocks all other writers. For a result, let the last statement of the block be
        `await current_job().complete(conn=conn, result=...)`.

        Raises:
            TransactionTooLong: it was rolled back.
            StoreUnavailable: no connection, or it was lost.
        """
        return self._completer.transaction(self)

    def _open_steps(self) -> RunSteps:
        if self.steps is None:
            self.steps = self._completer.open_steps(self)
        return self.steps

    def check(self) -> None:
        """Raise Aborted if this job should stop; a drained attempt is not charged."""
        self.aborted.check()


CURRENT_JOB: ContextVar[RunningJob] = ContextVar("drumbeat_current_job")
CURRENT_BATCH: ContextVar[Sequence[ClaimedJob]] = ContextVar("drumbeat_current_batch")
"""The jobs of a batch handler, which has no current job."""
CURRENT_SIGNAL: ContextVar[AbortSignal] = ContextVar("drumbeat_abort_signal")
"""Of code that is not a job: a start-up call, a handler of a room."""


def parent_of_new_jobs() -> JobId | None:
    """The job whose handler runs this code: what it enqueues is its child. None outside of handlers, and in a batch handler,
    whose jobs have these children together."""
    running = CURRENT_JOB.get(None)
    return None if running is None else running.id


def current_job() -> RunningJob:
    """The job whose handler runs this code.

    Raises:
        NotInJob: not inside a handler, or inside a batch handler, whose calls name their jobs.
    """
    try:
        return CURRENT_JOB.get()
    except LookupError:
        raise NotInJob() from None


def abort_signal() -> AbortSignal:
    """Whether the calling code should stop. In a job's handler it is `current_job().aborted`; in start-up calls and handlers of
    rooms, which have no job, it is set when their worker drains and when they time out.

    Raises:
        NotInJob: not inside any of these.
    """
    running = CURRENT_JOB.get(None)
    signal = CURRENT_SIGNAL.get(None) if running is None else running.aborted
    if signal is None:
        raise NotInJob("abort_signal()")
    return signal


def log_fields() -> dict[str, Any]:
    """The fields that name the running job, or the batch, in log records; empty outside of handlers."""
    running = CURRENT_JOB.get(None)
    if running is not None:
        return {"job": running.id, "attempt": running.attempt, "task": running.task, "queue": running.queue}
    jobs = CURRENT_BATCH.get(None)
    if jobs is not None:
        return {"task": jobs[0].task, "queue": jobs[0].queue, "jobs": len(jobs)}
    return {}


# Registered here: logs.py knows nothing of jobs.
logs.add_field_source(log_fields)
