"""What `enqueue` returns: a job's id, and access to its result.

A handle holds no connection and no state of the job. It may be used on any loop, and any number of handles may wait at the
same time: the client polls the store once for all. `SyncJobHandle` is the same for code without a loop.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from .core.job import CancelAnswer, Failure, Job, JobState
from .durations import Duration
from .errors import JobCancelled, JobError, JobFailed, JobNotStarted, JobTimedOut
from .ids import JobId
from .protocols import Enqueuer
from .sync_loop import SYNC_LOOP

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

TIMED_OUT = f"{JobTimedOut.__module__}.{JobTimedOut.__qualname__}"
"""`Failure.type` of an attempt that the worker ended at its timeout. A TimeoutError that a handler raises itself is an
ordinary failure."""


class JobHandle(msgspec.Struct, Generic[R_co], frozen=True, eq=False):
    """One job. `created` is False if `enqueue` found a live job with the same unique key and returned that one.

    A struct, because `enqueue_many` makes one for each job.
    """

    _client: Enqueuer
    id: JobId
    created: bool

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until the job has succeeded, and return what its function returned.

        Raises:
            JobFailed: it is a dead letter. JobTimedOut: likewise, and its last attempt exceeded its timeout.
            JobCancelled: it was cancelled.
            TimeoutError: `timeout` has passed; the job goes on.
            JobNotFound, JobExpired: the store does not have it, or no longer.
        """
        result: R_co = await self._client.result(self.id, timeout)
        return result

    async def cancel(self) -> CancelAnswer:
        """Cancel the job, or ask it to stop if it runs. After the answer `requested` it may still end otherwise."""
        return await self._client.cancel_job(self.id)

    async def job(self) -> Job:
        """The current record of the job."""
        return await self._client.get_job(self.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


class SyncJobHandle(Generic[R_co]):
    """One job, for code without a loop; the methods are those of `JobHandle`, and block."""

    __slots__ = ("_handle",)

    def __init__(self, handle: JobHandle[R_co]) -> None:
        self._handle = handle

    @property
    def id(self) -> JobId:
        return self._handle.id

    @property
    def created(self) -> bool:
        return self._handle.created

    def result(self, timeout: Duration | None = None) -> R_co:
        return SYNC_LOOP.run("job.result", self._handle.result(timeout))

    def cancel(self) -> CancelAnswer:
        return SYNC_LOOP.run("job.cancel", self._handle.cancel())

    def job(self) -> Job:
        return SYNC_LOOP.run("job.job", self._handle.job())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


def job_error(id: JobId, task: str, state: JobState, failure: Failure | None) -> JobError:
    """The error for a job that ended without a result."""
    facts: dict[str, str] = {} if failure is None else msgspec.structs.asdict(failure)
    if state is JobState.CANCELLED:
        return JobCancelled(id, task, **facts)
    if state is JobState.EXPIRED:
        return JobNotStarted(id, task, **facts)
    if failure is not None and failure.type == TIMED_OUT:
        return JobTimedOut(id, task, **facts)
    return JobFailed(id, task, **facts)
