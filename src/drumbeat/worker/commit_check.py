"""Jobs whose handlers have completed them inside a transaction: only the store knows whether that was committed.

A handler that called `complete()` may have forgotten to commit, may have failed after the commit, or may have lost the answer
to it. So what it returned or raised is not told blindly: its job is looked up first.
"""

import asyncio
import logging
from collections.abc import Callable

from drumbeat.context import Completion
from drumbeat.core.claim import ClaimedJob, ClaimRef, Outcome, WriteStatus
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.errors import StoreUnavailable
from drumbeat.ids import InstanceId
from drumbeat.service import OutageBackoff
from drumbeat.store.protocol import Inspector
from drumbeat.worker.reporter import OutcomeReporter
from drumbeat.worker.result import NOT_COMMITTED, HandlerResult, ResultKind

log = logging.getLogger(__name__)


class UnverifiedCompletion:
    __slots__ = ("completion", "finished_at", "job", "on_settled", "put_result", "result", "started_at")

    def __init__(
        self,
        job: ClaimedJob,
        result: HandlerResult,
        completion: Completion,
        started_at: int,
        finished_at: int,
        put_result: Callable[[HandlerResult], Outcome | None],
        on_settled: Callable[[Outcome | None], None],
    ) -> None:
        self.job = job
        self.result = result
        self.completion = completion
        self.started_at = started_at
        self.finished_at = finished_at
        self.put_result = put_result
        """How the job ends if it was not completed."""
        self.on_settled = on_settled
        """Hears how it ended."""


class CompletionVerifier:
    name = "doubts"

    def __init__(
        self, inspect: Inspector, reporter: OutcomeReporter, backoff: OutageBackoff, identity: Callable[[], InstanceId]
    ) -> None:
        self._inspect = inspect
        self._reporter = reporter
        self._backoff = backoff
        self._identity = identity
        self._inbox: asyncio.Queue[UnverifiedCompletion | None] = asyncio.Queue()

    def put(self, doubt: UnverifiedCompletion) -> None:
        """Cannot wait and cannot fail, so that a cancelled slot can still hand over. The job stays held meanwhile."""
        self._inbox.put_nowait(doubt)

    def close(self) -> None:
        """Return from `run` once every doubt is settled."""
        self._inbox.put_nowait(None)

    async def run(self) -> None:
        while (doubt := await self._inbox.get()) is not None:
            if doubt.completion is Completion.CONFIRMED or await self.is_committed(
                ClaimRef(doubt.job.id, doubt.job.token)
            ):
                outcome: Outcome | None = self._report_success(doubt)
            else:
                outcome = doubt.put_result(NOT_COMMITTED if doubt.result.kind is ResultKind.RETURNED else doubt.result)
            doubt.on_settled(outcome)

    async def is_committed(self, hold: ClaimRef) -> bool:
        """Whether this claim ended as succeeded; asked until the store answers."""
        while True:
            try:
                record = (await self._inspect.get_jobs([hold.id], preview=0)).get(hold.id)
            except StoreUnavailable as error:
                await self._backoff.wait(error)
            else:
                self._backoff.reset()
                return record is not None and record.state is JobState.SUCCEEDED and record.token == hold.token

    def _report_success(self, doubt: UnverifiedCompletion) -> Outcome:
        job, ending = doubt.job, doubt.result
        outcome = Outcome(
            id=job.id,
            token=job.token,
            kind=OutcomeKind.SUCCEEDED,
            started_at=doubt.started_at,
            finished_at=doubt.finished_at,
        )
        self._reporter.apply_statuses(self._identity(), [outcome], [WriteStatus.DUPLICATE])
        facts = {"job": job.id, "task": job.task}
        if ending.kind is not ResultKind.RETURNED:
            reason = ending.error or ending.reason or ending.kind
            log.warning("a handler failed after its job was completed", extra=facts | {"error": str(reason)})
        elif ending.result is not None:
            log.warning("a handler returned a result after its job was completed: give it to complete()", extra=facts)
        return outcome
