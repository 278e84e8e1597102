"""Operations inside a transaction of the caller's own."""

from collections.abc import Sequence
from typing import Any, Protocol

from drumbeat.core.claim import CompletedJob
from drumbeat.core.job import AddResult, NewJob


class EngineTransaction(Protocol):
    """A connection of the store's own, for one transaction of a handler. Begin it once, then commit it or roll it back once."""

    timeout: float | None
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


class Transactional(Protocol):
    """Operations inside a transaction of the caller's own, on the caller's own connection to the same database.

    They become visible, or vanish, with that transaction; on a connection that is in none and would commit each statement by
    itself they are committed at once. Which kinds of connection there are is the engine's business. The `_sync` form of each
    is for a connection of a sync driver and the thread that it belongs to; the others take both.

    Raised by all:
        NotTransactional: this engine has no such transactions.
        InvalidArguments: `conn` is of a kind that cannot be used here, or is connected to another database.
        Errors of the caller's own connection: as its driver makes them.
    """

    async def add(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[AddResult]:
        """As `Jobs.add`, but for the moment at which it takes effect. Workers are woken by the commit if `notify`."""
        ...

    def add_sync(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[AddResult]: ...

    async def complete(self, conn: Any, completed: CompletedJob) -> None:
        """Move a running job to history as succeeded, only if it runs under this instance with this token. A burial takes an
        instance's jobs from it in one step, so that is the lease, too. A requested cancellation comes too late.

        Raises:
            ClaimLost: it does not; the caller's transaction can only be rolled back now.
        """
        ...

    def complete_sync(self, conn: Any, completed: CompletedJob) -> None: ...

    def transaction(self) -> EngineTransaction:
        """One on a connection of the store's own; nothing is opened before `begin`."""
        ...
