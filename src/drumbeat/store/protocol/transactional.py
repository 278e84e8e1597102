"""Operations inside a transaction of the caller."""

from collections.abc import Sequence
from typing import Any, Protocol

from drumbeat.core.claim import CompletedJob
from drumbeat.core.job import AddResult, NewJob
from drumbeat.core.signals import NewSignal, SignalAnswer
from drumbeat.core.step import NewStep
from drumbeat.ids import InstanceId


class EngineTransaction(Protocol):
    """A connection of the store for one transaction of a handler. Begin it once, then commit it or roll it back once."""

    timeout: float | None
    """Seconds after its begin at which it is rolled back automatically; None: never."""

    async def begin(self) -> Any:
        """Returns the driver's connection, inside a transaction."""
        ...

    def begin_sync(self) -> Any: ...

    async def commit(self) -> None:
        """Durable when it returns. Returns the connection to the store.

        Raises:
            TransactionTooLong: it had been rolled back.
            StoreUnavailable: it is unknown whether it was committed.
        """
        ...

    def commit_sync(self) -> None: ...

    async def rollback(self) -> None:
        """Harmless after anything else. Returns the connection to the store.

        Raises:
            TransactionTooLong: it had been rolled back already, and the user of it must be told why.
        """
        ...

    def rollback_sync(self) -> None: ...


class Transactional(Protocol):
    """Operations inside a transaction of the caller, on the caller's connection to the same database.

    They become visible, or vanish, with that transaction; on a connection in autocommit mode they are committed at
    once. Which kinds of connection are supported is up to the engine. The `_sync` forms are for a connection of a sync
    driver, on the thread that it belongs to; the others take both.

    Raised by all:
        NotTransactional: this engine has no such transactions.
        InvalidArguments: `conn` is of a kind that cannot be used here, or is connected to another database.
        Errors of the caller's connection: as its driver raises them.
    """

    def check_connection(self, conn: Any, *, sync: bool) -> None:
        """Only raise what is said above, as far as the kind of the connection tells: for what is to be refused before anything
        is done. `sync`: it is for a `_sync` form."""
        ...

    async def add(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[AddResult]:
        """As `JobStore.add`, but it takes effect with the caller's commit, which also wakes workers if `notify`."""
        ...

    def add_sync(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[AddResult]: ...

    async def complete(self, conn: Any, completed: CompletedJob) -> bool:
        """Move a running job to history as succeeded, only if it runs under this instance with this token.
        (`declare_dead` takes an instance's jobs from it in one step, so this also checks its lease.) A requested
        cancellation comes too late. Returns whether other jobs may wait for it: after the commit `DependencyStore.advance` is
        to be called.

        Raises:
            ClaimLost: it does not; the caller's transaction can only be rolled back now.
        """
        ...

    def complete_sync(self, conn: Any, completed: CompletedJob) -> bool: ...

    async def record_step(self, conn: Any, instance: InstanceId, step: NewStep) -> None:
        """As `StepStore.record` for one step, but it takes effect with the caller's commit.

        Raises:
            ClaimLost: the job does not run under this instance with this token; the caller's transaction can only be rolled
                back now.
        """
        ...

    def record_step_sync(self, conn: Any, instance: InstanceId, step: NewStep) -> None: ...

    async def send_signal(self, conn: Any, signal: NewSignal) -> SignalAnswer:
        """As `StepStore.send_signal`, but it takes effect with the caller's commit. Neither this nor the commit waits for the
        job's row, which others may hold: then `DependencyStore.advance` makes the job due."""
        ...

    def send_signal_sync(self, conn: Any, signal: NewSignal) -> SignalAnswer: ...

    def transaction(self) -> EngineTransaction:
        """One on a connection of the store's own; nothing is opened before `begin`."""
        ...
