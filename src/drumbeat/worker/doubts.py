"""Jobs whose handlers have completed them inside a transaction: only the store knows whether that was committed.

A handler that called `complete()` may have forgotten to commit, may have failed after the commit, or may have lost the answer
to it. So what it returned or raised is not told blindly: its job is looked up first.
"""

import asyncio
import logging
from collections.abc import Callable

from drumbeat.context import Completion
from drumbeat.errors import JobExpired, JobNotFound, StoreUnavailable
from drumbeat.ids import InstanceId
from drumbeat.model.job import Claimed, Hold, JobState, Outcome, OutcomeKind, Verdict
from drumbeat.service import Patience
from drumbeat.store.protocol import Inspect
from drumbeat.worker.ending import NOT_COMMITTED, Ending, How
from drumbeat.worker.reporter import Reporter

log = logging.getLogger(__name__)


class Doubt:
    __slots__ = ("completion", "ending", "finished_at", "job", "otherwise", "settled", "started_at")

    def __init__(
        self,
        job: Claimed,
        ending: Ending,
        completion: Completion,
        started_at: int,
        finished_at: int,
        otherwise: Callable[[Ending], Outcome | None],
        settled: Callable[[Outcome | None], None],
    ) -> None:
        self.job = job
        self.ending = ending
        self.completion = completion
        self.started_at = started_at
        self.finished_at = finished_at
        self.otherwise = otherwise
        """How the job ends if it was not completed."""
        self.settled = settled
        """Hears how it ended."""


class Doubts:
    name = "doubts"

    def __init__(
        self, inspect: Inspect, reporter: Reporter, patience: Patience, identity: Callable[[], InstanceId]
    ) -> None:
        self._inspect = inspect
        self._reporter = reporter
        self._patience = patience
        self._identity = identity
        self._inbox: asyncio.Queue[Doubt | None] = asyncio.Queue()

    def put(self, doubt: Doubt) -> None:
        """Cannot wait and cannot fail, so that a cancelled slot can still hand over. The job stays held meanwhile."""
        self._inbox.put_nowait(doubt)

    def close(self) -> None:
        """Return from `run` once every doubt is settled."""
        self._inbox.put_nowait(None)

    async def run(self) -> None:
        while (doubt := await self._inbox.get()) is not None:
            if doubt.completion is Completion.SURE or await self.is_committed(Hold(doubt.job.id, doubt.job.token)):
                outcome: Outcome | None = self._succeed(doubt)
            else:
                outcome = doubt.otherwise(NOT_COMMITTED if doubt.ending.how is How.RETURNED else doubt.ending)
            doubt.settled(outcome)

    async def is_committed(self, hold: Hold) -> bool:
        """Whether this claim ended as succeeded; asked until the store answers."""
        while True:
            try:
                record = await self._inspect.job(hold.id)
            except StoreUnavailable as error:
                await self._patience.suffer(error)
            except (JobNotFound, JobExpired):
                return False
            else:
                self._patience.over()
                return record.state is JobState.SUCCEEDED and record.token == hold.token

    def _succeed(self, doubt: Doubt) -> Outcome:
        job, ending = doubt.job, doubt.ending
        outcome = Outcome(
            id=job.id,
            token=job.token,
            kind=OutcomeKind.SUCCEEDED,
            started_at=doubt.started_at,
            finished_at=doubt.finished_at,
        )
        self._reporter.told(self._identity(), [outcome], [Verdict.ALREADY])
        facts = {"job": job.id, "task": job.task}
        if ending.how is not How.RETURNED:
            why = ending.error or ending.reason or ending.how
            log.warning("a handler failed after its job was completed", extra=facts | {"error": str(why)})
        elif ending.result is not None:
            log.warning("a handler returned a result after its job was completed: give it to complete()", extra=facts)
        return outcome
