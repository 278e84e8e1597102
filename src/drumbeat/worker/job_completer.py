"""Complete a job in a transaction: one of the handler's own (`complete`), or one that we provide (`transaction`).

Used by the worker and by its child processes. Only for transactions that we provide is it known here whether they were
committed; for the others the worker asks the store when the handler has ended (commit_check.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any

from drumbeat.codec import Unstorable
from drumbeat.context import Aborted, AbortReason, Completion, JobTransaction, RunningJob
from drumbeat.core.claim import ClaimRef, CompletedJob
from drumbeat.errors import ClaimLost, StoreUnavailable, TransactionTooLong
from drumbeat.ids import InstanceId
from drumbeat.protocols import WorkerApp
from drumbeat.store.protocol import Transactional
from drumbeat.worker.job_steps import JobSteps, StepContext, StepPort
from drumbeat.worker.result import RanJob, ResultEncoder, success_follow_up


class JobCompleter:
    """A `context.Completer`. `identity` is read at each completion: a claim under an earlier id is refused."""

    def __init__(
        self,
        transactional: Transactional,
        identity: Callable[[], InstanceId],
        *,
        encode_result: ResultEncoder,
        now: Callable[[], int],
        on_success: Mapping[str, str],
        steps: StepPort,
        app: WorkerApp,
        is_committed: Callable[[ClaimRef], Awaitable[bool]] | None = None,
    ) -> None:
        self.transactional = transactional
        self._identity = identity
        self._encode_result = encode_result
        self._now = now
        self._on_success = on_success
        """The on_success tasks by the names of their tasks."""
        codec, enqueuer = app.registry.codec, app.client
        self._step_context = StepContext(steps, transactional, identity, now, encode_result, codec, enqueuer)
        self.is_committed = is_committed
        """Asks the store; None in a child process: there the worker asks when the handler has ended."""

    @property
    def instance(self) -> InstanceId:
        return self._identity()

    async def complete(self, job: RunningJob, conn: Any, result: Any) -> None:
        completed = self._build_completed(job, result)
        try:
            job.is_parent = await self.transactional.complete(conn, completed)
        except ClaimLost as lost:
            raise self._translate_lost_claim(job, lost) from lost

    def complete_sync(self, job: RunningJob, conn: Any, result: Any) -> None:
        completed = self._build_completed(job, result)
        try:
            job.is_parent = self.transactional.complete_sync(conn, completed)
        except ClaimLost as lost:
            raise self._translate_lost_claim(job, lost) from lost

    def transaction(self, job: RunningJob) -> JobTransaction:
        return CompletingTransaction(self, job)

    def open_steps(self, job: RunningJob) -> JobSteps:
        return JobSteps(job, self._step_context)

    def _build_completed(self, job: RunningJob, result: Any) -> CompletedJob:
        """Encodes the result, so that this fails before the store is called."""
        encoded = reason = None
        if result is not None:
            try:
                encoded = self._encode_result(result)
            except Unstorable as error:
                reason = error.reason
        job.completion = Completion.UNCONFIRMED
        follow_up, instance = None, self._identity()
        if (on_success := self._on_success.get(job.task)) is not None:
            ran = RanJob(job.claimed, instance, job.started_us, self._now())
            follow_up = success_follow_up(ran, on_success, encoded, reason)
        return CompletedJob(
            instance=instance,
            claim=ClaimRef(job.id, job.token),
            started_at=job.started_us,
            result=encoded,
            result_error=reason,
            follow_up=follow_up,
        )

    def _translate_lost_claim(self, job: RunningJob, lost: ClaimLost) -> BaseException:
        """A lost claim ends the attempt as a lost lease does. A second completion is a bug of the handler."""
        if lost.completed:
            return lost
        job.aborted.set(AbortReason.LEASE_LOST)
        return Aborted(AbortReason.LEASE_LOST)


class CompletingTransaction:
    """A `context.JobTransaction`: begin, the handler's block, complete unless the block has done so, commit."""

    def __init__(self, completer: JobCompleter, job: RunningJob) -> None:
        self._completer = completer
        self._job = job
        self._transaction = completer.transactional.transaction()
        self._conn: Any = None
        self._timeout: asyncio.Timeout | None = None
        self._previous_completion: Completion | None = None

    async def __aenter__(self) -> Any:
        self._conn = await self._transaction.begin()
        self._reset_completion()
        if self._transaction.timeout is not None:
            # Ends waits in the block at once; the engine limits the transaction itself.
            self._timeout = asyncio.timeout(self._transaction.timeout)
            await self._timeout.__aenter__()
        return self._conn

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._timeout is not None:
                await self._timeout.__aexit__(kind, error, trace)
            if error is None and self._job.completion is None:
                await self._completer.complete(self._job, self._conn, None)
        except TimeoutError as late:
            await self._transaction.rollback()
            assert self._transaction.timeout is not None
            raise TransactionTooLong(self._transaction.timeout) from late
        except BaseException:
            await self._transaction.rollback()
            raise
        if error is not None:
            self._job.completion = self._previous_completion
            await self._transaction.rollback()
            return
        try:
            await self._transaction.commit()
        except StoreUnavailable:
            # The answer is lost: the commit may have succeeded.
            is_committed = self._completer.is_committed
            if is_committed is None or not await is_committed(ClaimRef(self._job.id, self._job.token)):
                raise
        self._job.completion = Completion.CONFIRMED

    def __enter__(self) -> Any:
        self._conn = self._transaction.begin_sync()
        self._reset_completion()
        return self._conn

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._job.completion is None:
                self._completer.complete_sync(self._job, self._conn, None)
        except BaseException:
            self._transaction.rollback_sync()
            raise
        if error is not None:
            self._job.completion = self._previous_completion
            self._transaction.rollback_sync()
            return
        self._transaction.commit_sync()
        self._job.completion = Completion.CONFIRMED

    def _reset_completion(self) -> None:
        """Detect whether this block completes the job; a rollback restores what an earlier transaction left."""
        self._previous_completion, self._job.completion = self._job.completion, None
