"""The border between Drumbeat and a database: a few small parts, each a few operations, batch in and batch out.

Every engine implements all of it; there are no optional operations and no capability flags, and no caller asks which
engine it has. The docstrings are the contract: who may call, what is atomic, what a second call does, what is raised. Each
operation may raise StoreUnavailable: nothing was done, or it is unknown whether it was; calling again is harmless wherever
the docstring does not say otherwise. (Schedules, locks and rooms arrive with the parts that use them.)

A store belongs to one event loop of one process. Cancelling a call may leave it done or undone, never half done.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, Self

from drumbeat.ids import InstanceId, JobId
from drumbeat.model.instance import Buried, Instance, NewInstance, Pulse
from drumbeat.model.job import (
    Added,
    Attempt,
    CancelAnswer,
    Claim,
    Ended,
    Exchanged,
    Hold,
    Job,
    JobFilter,
    NewJob,
    Outcome,
    QueueStats,
    Replayed,
    TaskStats,
)


class Jobs(Protocol):
    """A job's life. Bulk operations lock rows in the order of ids."""

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        """Store jobs, all or none, in one transaction; durable when it returns. One answer for each, in order.

        An id that exists anywhere (live, history, dead letter) is not stored again: `created` is False and its id is
        returned, so repeating a call whose answer was lost is harmless. A unique job whose task and key are held by a
        live unique job (Unique.LIVE: pending or running; Unique.PENDING: pending only) is not stored: the holder's id is
        returned. Two of one call may collide with each other likewise. Only unique jobs collide. Wakes workers.

        Raises:
            StoreFull: nothing was stored, there is no room.
        """
        ...

    async def exchange(self, instance: InstanceId, outcomes: Sequence[Outcome], claim: Claim | None) -> Exchanged:
        """Record how claims ended, and claim the next jobs, in one transaction. One verdict for each outcome.

        Called by the instance that holds the claims. An outcome counts only if the job is running under this instance with
        this token. Else it is ALREADY if history, the dead letters or an attempt has this very outcome of that (id, token) by
        the same instance, else STALE, which is counted in the instance's `refused`; neither changes the job. (A burial is on
        record as a crash: the late result of an instance that was buried is STALE.) SUCCEEDED and CANCELLED move the job to
        history; DEAD, and CRASHED at crash_limit, to the dead letters together with `follow_up`; others make it pending again,
        but if its cancellation was requested it is CANCELLED instead. Each ended run that had started and is not the job's
        last is kept as an Attempt; the last one is in the history row itself. RELEASED and PARKED without started_at leave no
        attempt.

        Claims: for each queue of `claim` that is not paused, pending jobs with run_at <= now that wait for nothing, by
        priority, then run_at, then id. Each gets token = max(last token + 1, now in µs). A buried or unknown instance gets
        no jobs. When nothing is due, nothing is written.
        """
        ...

    async def running(self, instance: InstanceId) -> list[Hold]:
        """All jobs that the store believes are running under this instance."""
        ...

    async def release(self, instance: InstanceId, holds: Sequence[Hold]) -> int:
        """Give back claims that never started, unharmed and uncharged. Stale ones are passed over. Wakes workers."""
        ...

    async def note(self, instance: InstanceId, notes: Sequence[tuple[Hold, str]]) -> None:
        """Keep the progress (JSON text) of running jobs. Stale ones are passed over."""
        ...

    async def cancel(self, ids: Sequence[JobId]) -> list[CancelAnswer]:
        """Cancel jobs. A pending one becomes history at once and never runs; a running one is asked to stop."""
        ...

    async def cancel_key(self, task: str, key: str) -> list[CancelAnswer]:
        """Cancel all live jobs of this task and key, atomically against claims. One answer for each job found."""
        ...

    async def run_now(self, ids: Sequence[JobId]) -> int:
        """Make pending jobs due now. Others are passed over. Wakes workers. Returns how many."""
        ...

    async def replay(self, ids: Sequence[JobId]) -> list[Replayed]:
        """Give dead letters a new life under the same id: life + 1, failures and crashes 0, due now; attempts stay on record.

        Atomic for each id. Refused for one whose unique key a live job holds. Wakes workers.
        """
        ...

    async def discard(self, ids: Sequence[JobId]) -> int:
        """Move dead letters to history, as dead. Returns how many there were."""
        ...

    async def ended(self, ids: Sequence[JobId]) -> list[Ended | None]:
        """How these jobs ended; None for one that is still live.

        Raises:
            JobNotFound: for the first id that is nowhere and cannot have been pruned.
            JobExpired: for the first id that is nowhere, but is so old that its history may have been pruned.
        """
        ...

    async def expire_waits(self, prefix: str, before: int, limit: int) -> int:
        """Make dead letters (with their follow-ups) of jobs whose waits_for begins with prefix since before `before`."""
        ...

    async def prune(self, before: int, limit: int) -> int:
        """Delete history that finished before `before`, oldest first, with its attempts; at most `limit`. Returns how many."""
        ...

    async def pause(self, queue: str, *, by: str, why: str) -> None:
        """No claim gives a job of this queue from now on. Harmless when paused already."""
        ...

    async def resume(self, queue: str) -> bool:
        """Undo pause. False if it was not paused. Wakes workers."""
        ...


class Instances(Protocol):
    """Who lives. A heart is a count that grows; whether it stands still is judged by the observers, not by the store."""

    async def register(self, instance: NewInstance) -> None:
        """Add a living instance. A second call with the same id is harmless while it lives."""
        ...

    async def beat(self, id: InstanceId, running: int) -> Pulse:
        """Tell that this instance lives and how many jobs it runs, and hear everything it must know."""
        ...

    async def bury(self, id: InstanceId, *, beat: int | None, started: Sequence[Hold] | None, why: str) -> Buried:
        """Declare an instance dead, only if its count is still `beat` (None: whatever it is), and free its jobs, atomically.

        Of its running jobs those in `started` (None: all) get crashes = max(crashes, 1), an Attempt of outcome CRASHED with
        `why` as error, and are pending again at once, or dead at their crash_limit with their follow-up; the others are
        released unharmed. If only one had started and it was suspect already (crashes >= 1), the crash is its own: crashes
        grows by 1. Those with a requested cancellation are cancelled. Wakes workers. A second call changes nothing.
        """
        ...

    async def leave(self, id: InstanceId, why: str) -> None:
        """Say goodbye: the instance is gone, jobs that it still holds are released unharmed. Harmless twice."""
        ...

    async def forget(self, before: int) -> int:
        """Delete the rows of instances that ended before this moment. Returns how many."""
        ...


class Inspect(Protocol):
    """What people look at. Reads only, from one snapshot each."""

    async def now(self) -> int:
        """The store's clock, in microseconds."""
        ...

    async def job(self, id: JobId) -> Job:
        """One job, wherever it is. Raises JobNotFound or JobExpired as `Jobs.ended` does."""
        ...

    async def jobs(self, filter: JobFilter) -> list[Job]:
        """Jobs newest first by id, at most filter.limit."""
        ...

    async def attempts(self, id: JobId) -> list[Attempt]:
        """All ended runs of a job, oldest first, the last one of a finished job included."""
        ...

    async def queues(self) -> list[QueueStats]:
        """Every queue that has live jobs, a pause, or a living worker that takes it, by name."""
        ...

    async def tasks(self) -> list[TaskStats]:
        """Every task that has jobs anywhere or a living instance that knows it, by name."""
        ...

    async def instances(self, *, all: bool = False) -> list[Instance]:
        """Living instances, oldest first; with `all` also those that left or died."""
        ...


class Wake(Protocol):
    """Hints that something is due. They only shorten a sleep; whoever sleeps also polls."""

    def listen(self, hear: Callable[[int], None]) -> AbstractAsyncContextManager[str | None]:
        """Call `hear(run_at)` on this loop whenever a job with this due moment may have come (0: look now).

        Gives the address that must stand in this instance's row (NewInstance.wake), or None where none is needed.
        """
        ...


class OwnTransaction(Protocol):
    """A connection of the store's own, for one transaction of a handler. Begin it once, then commit it or roll it back once."""

    limit: float | None
    """So many seconds after its begin it is rolled back by itself; None: never."""

    async def begin(self) -> Any:
        """Gives the driver's connection, inside a transaction."""
        ...

    def begin_sync(self) -> Any: ...

    async def commit(self) -> None:
        """Durable when it returns, and the connection is given back.

        Raises:
            TransactionTooLong: it had been rolled back.
            StoreUnavailable: it is unknown whether it was committed.
        """
        ...

    def commit_sync(self) -> None: ...

    async def rollback(self) -> None:
        """Harmless after anything else; the connection is given back.

        Raises:
            TransactionTooLong: it had been rolled back already, and whoever used it must hear why.
        """
        ...

    def rollback_sync(self) -> None: ...


class Inside(Protocol):
    """Operations inside a transaction of the caller's own, on the caller's own connection to the same database.

    They become visible, or vanish, with that transaction; on a connection that is in none and would commit each statement by
    itself they are committed at once. Which kinds of connection there are is the engine's business. The `_sync` form of each
    is for a connection of a sync driver and the thread that it belongs to; the others take both.

    Raised by all:
        NotTransactional: this engine has no such transactions.
        InvalidArguments: `conn` is of a kind that cannot be used here, or is connected to another database.
        Errors of the caller's own connection: as its driver makes them.
    """

    def check(self) -> None:
        """Raises:
        NotTransactional: every other operation would raise it, too.
        """
        ...

    async def add(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[Added]:
        """As `Jobs.add`, but for the moment at which it takes effect. Workers are woken by the commit if `notify`."""
        ...

    def add_sync(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[Added]: ...

    async def complete(
        self,
        conn: Any,
        instance: InstanceId,
        hold: Hold,
        *,
        started_at: int,
        result: str | None,
        result_error: str | None,
    ) -> None:
        """Move a running job to history as succeeded, only if it runs under this instance with this token. A burial takes an
        instance's jobs from it in one step, so that is the lease, too. A requested cancellation comes too late.

        Raises:
            ClaimLost: it does not; the caller's transaction can only be rolled back now.
        """
        ...

    def complete_sync(
        self,
        conn: Any,
        instance: InstanceId,
        hold: Hold,
        *,
        started_at: int,
        result: str | None,
        result_error: str | None,
    ) -> None: ...

    def transaction(self) -> OwnTransaction:
        """One on a connection of the store's own."""
        ...


class Store(Protocol):
    """One database, as seen from one event loop. Open it with `store.urls.open_store`."""

    url: str
    """Without a password: fit for messages."""
    jobs: Jobs
    instances: Instances
    inspect: Inspect
    wake: Wake
    inside: Inside

    async def close(self) -> None:
        """Give back all connections and threads. Calls under way end with StoreUnavailable. Harmless twice."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
