"""Check whether handlers that called `complete()` in a transaction have committed it: only the store knows.

Such a handler may have forgotten to commit, may have failed after the commit, or may have lost the answer to it. So its job is
looked up before its result is reported.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from drumbeat.context import Completion
from drumbeat.core.claim import ClaimedJob, ClaimRef
from drumbeat.core.job import JobState
from drumbeat.service import OutageBackoff
from drumbeat.store.protocol import Inspector
from drumbeat.worker.core import WorkerCore
from drumbeat.worker.result import NOT_COMMITTED, RETURNED_NOTHING, HandlerResult, ResultKind

log = logging.getLogger(__name__)


@dataclass(slots=True)
class UnverifiedCompletion:
    job: ClaimedJob
    result: HandlerResult
    completion: Completion
    settle: Callable[[HandlerResult, bool], None]
    """Called with the result to report, and whether the store has it already."""
    is_parent: bool = True
    """Other jobs may wait for this one."""


class CompletionVerifier:
    name = "commit check"

    def __init__(self, core: WorkerCore, inspect: Inspector, on_releasing: Callable[[], None]) -> None:
        """`on_releasing`: called for what was committed; the transaction itself follows no edges to children."""
        self._inspect = inspect
        self._on_releasing = on_releasing
        self._backoff = OutageBackoff(core.clock, core.outage_reporter)
        self._inbox: asyncio.Queue[UnverifiedCompletion | None] = asyncio.Queue()

    def put(self, completion: UnverifiedCompletion) -> None:
        """Cannot wait and cannot fail, so that a cancelled slot can still hand over. The job stays held meanwhile."""
        self._inbox.put_nowait(completion)

    def close(self) -> None:
        """Return from `run` once every completion is checked."""
        self._inbox.put_nowait(None)

    async def run(self) -> None:
        while (unverified := await self._inbox.get()) is not None:
            claim, result = ClaimRef(unverified.job.id, unverified.job.token), unverified.result
            if unverified.completion is Completion.CONFIRMED or await self.is_committed(claim):
                unverified.settle(RETURNED_NOTHING, True)
                if unverified.is_parent:
                    self._on_releasing()
                _warn_of_ignored(unverified.job, result)
            else:
                unverified.settle(NOT_COMMITTED if result.kind is ResultKind.RETURNED else result, False)

    async def is_committed(self, claim: ClaimRef) -> bool:
        """Whether this claim ended as succeeded; retried until the store answers."""
        found = await self._backoff.retry(lambda: self._inspect.get_jobs([claim.id], preview=0))
        record = found.get(claim.id)
        return record is not None and record.state is JobState.SUCCEEDED and record.token == claim.token


def _warn_of_ignored(job: ClaimedJob, result: HandlerResult) -> None:
    """What a handler does after it has completed its job has no effect."""
    facts = {"job": job.id, "task": job.task}
    if result.kind is not ResultKind.RETURNED:
        reason = result.error or result.reason or result.kind
        log.warning("a handler failed after its job was completed", extra=facts | {"error": str(reason)})
    elif result.result is not None:
        log.warning("a handler returned a result after its job was completed: give it to complete()", extra=facts)
