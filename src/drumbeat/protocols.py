"""What the parts of the package need of an app: `Enqueuer` for tasks, `WorkerApp` for workers.

`client.Client` is the one implementation of `Enqueuer`, `internals.AppInternals` that of `WorkerApp`. These parts lie below
`drumbeat.app` and never import it. The dashboard lies above `drumbeat.admin`, and takes its `Admin`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from drumbeat.clock import Clock
    from drumbeat.codec import JsonCodec
    from drumbeat.core.dependencies import NewWorkflow
    from drumbeat.core.edge import NewEdge
    from drumbeat.core.job import CancelAnswer, Cancelled, Job, NewJob, ReplayResult
    from drumbeat.core.workflow import Workflow
    from drumbeat.durations import Duration
    from drumbeat.events import Events
    from drumbeat.handle import JobHandle, SyncJobHandle
    from drumbeat.ids import JobId
    from drumbeat.locks import LeaseKeeper
    from drumbeat.settings import Settings
    from drumbeat.store.protocol import Store
    from drumbeat.tasks import Registry, Room, Task
    from drumbeat.tasks.limits import DeclaredQueue
    from drumbeat.worker.protocols import WorkerController
    from drumbeat.workflow_handle import WorkflowHandle

ShareEncoder = Callable[[int], Sequence[str]]
"""From the number of workers in a room to the arguments (JSON) to send, at most one for each worker."""


class Enqueuer(Protocol):
    """What tasks, rooms and job handles need of the app they belong to."""

    @property
    def settings(self) -> Settings: ...

    @property
    def codec(self) -> JsonCodec: ...

    @property
    def queue_policies(self) -> Mapping[str, DeclaredQueue]:
        """The policies of queues that stand over their jobs."""
        ...

    def register(self, task: Task[..., Any]) -> None: ...

    def declared_queues(self) -> frozenset[str]: ...

    async def enqueue(self, job: NewJob[Any]) -> JobHandle[Any]: ...

    def enqueue_sync(self, api_name: str, job: NewJob[Any]) -> SyncJobHandle[Any]: ...

    async def enqueue_in_transaction(
        self, conn: Any, jobs: Sequence[NewJob[Any]], notify: bool
    ) -> list[JobHandle[Any]]: ...

    def enqueue_in_transaction_sync(
        self, conn: Any, jobs: Sequence[NewJob[Any]], notify: bool
    ) -> list[SyncJobHandle[Any]]: ...

    async def broadcast(self, room: str, signature: str, args: str) -> int:
        """Send these arguments (JSON) to every live worker in this room; returns how many of them are healthy."""
        ...

    async def fan_out(self, room: str, signature: str, encode_shares: ShareEncoder) -> int:
        """Send one share to each healthy worker in this room; returns how many got one."""
        ...

    async def result(self, id: JobId, timeout: Duration | None) -> Any:
        """Wait for the end of a job and return its decoded result, or raise what `JobHandle.result` documents."""
        ...

    async def cancel_job(self, id: JobId) -> CancelAnswer: ...

    async def get_job(self, id: JobId) -> Job: ...

    def check_graph(self, jobs: Iterable[NewJob[Any]]) -> tuple[list[NewJob[Any]], list[NewEdge]]:
        """Refuse what can be refused of jobs that wait for each other without the store. Returns them and their edges."""
        ...

    async def enqueue_workflow(self, workflow: NewWorkflow, jobs: Sequence[NewJob[Any]]) -> WorkflowHandle: ...

    async def workflow_result(self, id: str, timeout: Duration | None) -> Any:
        """Wait for the only job of a workflow that no other waits for, and return its result."""
        ...

    async def cancel_workflow(self, id: str) -> Cancelled: ...

    async def replay_workflow(self, id: str) -> list[ReplayResult]: ...

    async def get_workflow(self, id: str) -> Workflow: ...


class WorkerApp(Protocol):
    """What a worker needs of the app whose jobs it runs."""

    @property
    def settings(self) -> Settings: ...
    @property
    def events(self) -> Events: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def registry(self) -> Registry: ...
    @property
    def client(self) -> Enqueuer: ...
    @property
    def rooms(self) -> Mapping[str, Room[..., Any]]: ...
    @property
    def keeper(self) -> LeaseKeeper: ...
    @property
    def lifespans(self) -> Sequence[Callable[[], AbstractAsyncContextManager[Any]]]: ...

    @property
    def companions(self) -> Sequence[Callable[[], AbstractAsyncContextManager[None]]]:
        """Services to run beside the worker of a process, but not in its child processes."""
        ...

    def controller(self, settings: Settings) -> WorkerController:
        """A new controller, for one worker."""
        ...

    async def store(self) -> Store:
        """The running loop's store, shared with handlers that enqueue."""
        ...

    async def open_store(self) -> Store:
        """A separate store on the same database; the caller closes it."""
        ...
