"""How a handler finishes its job inside a transaction: its own, or one that is brought along.

Used by the worker and by its child processes. Whether a transaction was committed is not known here, but for those that were
brought along: for the others the worker asks the store when the handler has ended (`doubts`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from drumbeat.codec import Unstorable, encode_result
from drumbeat.context import Aborted, AbortReason, Completion, JobTransaction, RunningJob
from drumbeat.errors import ClaimLost, StoreUnavailable, TransactionTooLong
from drumbeat.ids import InstanceId
from drumbeat.model.job import Hold
from drumbeat.store.protocol import Inside


class Completing:
    """A `context.Completer`. `identity` is asked at each completion: what was claimed under an earlier one is refused."""

    def __init__(
        self,
        inside: Inside,
        identity: Callable[[], InstanceId],
        *,
        payload_limit: int,
        is_committed: Callable[[Hold], Awaitable[bool]] | None = None,
    ) -> None:
        self.inside = inside
        self._identity = identity
        self._payload_limit = payload_limit
        self.is_committed = is_committed
        """Asks the store; None where there is none to ask: then the worker does when the handler has ended."""

    async def complete(self, job: RunningJob, conn: Any, result: Any) -> None:
        facts = self._facts(job, result)
        try:
            await self.inside.complete(conn, self._identity(), Hold(job.id, job.token), **facts)
        except ClaimLost as lost:
            raise self._ended(job, lost) from lost

    def complete_sync(self, job: RunningJob, conn: Any, result: Any) -> None:
        facts = self._facts(job, result)
        try:
            self.inside.complete_sync(conn, self._identity(), Hold(job.id, job.token), **facts)
        except ClaimLost as lost:
            raise self._ended(job, lost) from lost

    def transaction(self, job: RunningJob) -> JobTransaction:
        return Block(self, job)

    def _facts(self, job: RunningJob, result: Any) -> dict[str, Any]:
        """Everything that can go wrong with the result goes wrong before the store is asked."""
        kept = reason = None
        if result is not None:
            try:
                kept = encode_result(result, limit=self._payload_limit)
            except Unstorable as error:
                reason = error.reason
        job.completion = Completion.UNSURE
        return {"started_at": job.started_us, "result": kept, "result_error": reason}

    def _ended(self, job: RunningJob, lost: ClaimLost) -> BaseException:
        """A lost lease ends the attempt as one that the worker hears of by itself does. A second completion is a mistake."""
        if lost.completed:
            return lost
        job.aborted.set(AbortReason.LEASE_LOST)
        return Aborted(AbortReason.LEASE_LOST)


class Block:
    """A `context.JobTransaction`: begin, the handler's block, complete unless the block has done so itself, commit."""

    def __init__(self, completing: Completing, job: RunningJob) -> None:
        self._completing = completing
        self._job = job
        self._own = completing.inside.transaction()
        self._conn: Any = None
        self._time: asyncio.Timeout | None = None
        self._before: Completion | None = None

    async def __aenter__(self) -> Any:
        self._conn = await self._own.begin()
        self._enter()
        if self._own.limit is not None:
            # What waits in the block is told at once; the transaction itself is watched by the engine.
            self._time = asyncio.timeout(self._own.limit)
            await self._time.__aenter__()
        return self._conn

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._time is not None:
                await self._time.__aexit__(kind, error, trace)
            if error is None and self._job.completion is None:
                await self._completing.complete(self._job, self._conn, None)
        except TimeoutError as late:
            await self._own.rollback()
            assert self._own.limit is not None
            raise TransactionTooLong(self._own.limit) from late
        except BaseException:
            await self._own.rollback()
            raise
        if error is not None:
            self._job.completion = self._before
            await self._own.rollback()
            return
        try:
            await self._own.commit()
        except StoreUnavailable:
            # The answer is lost, which says nothing about the commit.
            asks = self._completing.is_committed
            if asks is None or not await asks(Hold(self._job.id, self._job.token)):
                raise
        self._job.completion = Completion.SURE

    def __enter__(self) -> Any:
        self._conn = self._own.begin_sync()
        self._enter()
        return self._conn

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._job.completion is None:
                self._completing.complete_sync(self._job, self._conn, None)
        except BaseException:
            self._own.rollback_sync()
            raise
        if error is not None:
            self._job.completion = self._before
            self._own.rollback_sync()
            return
        self._own.commit_sync()
        self._job.completion = Completion.SURE

    def _enter(self) -> None:
        """Whether this block completes the job is seen by a clean slate; what an earlier transaction left is put back."""
        self._before, self._job.completion = self._job.completion, None
