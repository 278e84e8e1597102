"""What `flow.enqueue` and `app.get_workflow` return: a workflow's id, and what can be done with all of its jobs."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Self

from drumbeat.core.job import Cancelled, ReplayResult
from drumbeat.core.workflow import Workflow
from drumbeat.durations import Duration
from drumbeat.handle import JobHandle, SyncJobHandle
from drumbeat.protocols import Enqueuer
from drumbeat.sync_loop import SYNC_LOOP


class WorkflowHandle:
    """One workflow. It holds no connection and no state of its jobs."""

    __slots__ = ("_enqueuer", "id", "jobs")

    def __init__(self, enqueuer: Enqueuer, id: str, jobs: Sequence[JobHandle[Any]] = ()) -> None:
        self._enqueuer = enqueuer
        self.id = id
        self.jobs = tuple(jobs)
        """The jobs that `flow.enqueue` stored, in their order; empty of a handle by id."""

    async def result(self, timeout: Duration | None = None) -> Any:
        """Wait for the last job of the workflow, the one that no other waits for, and return its result.

        Raises:
            WorkflowError: it has several last jobs; the message says how to end in one.
            WorkflowNotFound: it is not in the store, or no longer.
            JobFailed, JobCancelled, TimeoutError: as `JobHandle.result`.
        """
        return await self._enqueuer.workflow_result(self.id, timeout)

    async def cancel(self) -> Cancelled:
        """Cancel the workflow: nothing new of it starts; what waits will never run, and what runs is asked to stop.

        Raises:
            WorkflowNotFound: it is not in the store, or no longer.
        """
        return await self._enqueuer.cancel_workflow(self.id)

    async def replay(self) -> list[ReplayResult]:
        """Run again what has failed: its dead letters, and then the jobs that their deaths cancelled. What has succeeded is not
        run again.

        Raises:
            WorkflowNotFound: it is not in the store, or no longer.
        """
        return await self._enqueuer.replay_workflow(self.id)

    async def get(self) -> Workflow:
        """The current record: name, labels, how many jobs are in which state.

        Raises:
            WorkflowNotFound: it is not in the store, or no longer.
        """
        return await self._enqueuer.get_workflow(self.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


class SyncWorkflowHandle:
    """One workflow, for code without a loop; the methods are those of `WorkflowHandle`, and block."""

    __slots__ = ("_handle", "jobs")

    def __init__(self, handle: WorkflowHandle) -> None:
        self._handle = handle
        self.jobs = tuple(SyncJobHandle(job) for job in handle.jobs)

    @classmethod
    def run(cls, api_name: str, enqueuing: Coroutine[Any, Any, WorkflowHandle]) -> Self:
        return cls(SYNC_LOOP.run(api_name, enqueuing))

    @property
    def id(self) -> str:
        return self._handle.id

    def result(self, timeout: Duration | None = None) -> Any:
        return SYNC_LOOP.run("workflow.result", self._handle.result(timeout))

    def cancel(self) -> Cancelled:
        return SYNC_LOOP.run("workflow.cancel", self._handle.cancel())

    def replay(self) -> list[ReplayResult]:
        return SYNC_LOOP.run("workflow.replay", self._handle.replay())

    def get(self) -> Workflow:
        return SYNC_LOOP.run("workflow.get", self._handle.get())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"
