"""What a worker needs of the controller that runs beside it."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

from drumbeat.heartbeat import HeartbeatCompanion
from drumbeat.ids import InstanceId
from drumbeat.outage import OutageReporter
from drumbeat.service import Service
from drumbeat.store.protocol import Store
from drumbeat.tasks.line_policies import LineView

InThread = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]


class DeclarationService(Service, Protocol):
    async def declare_all(self) -> None:
        """Before the first claim."""
        ...

    def wake(self) -> None:
        """The store may have been emptied."""
        ...


class WorkerController(HeartbeatCompanion, Protocol):
    """The controller, as far as it is used on the worker's loop; the rest runs on the heartbeat's."""

    @property
    def outage_reporter(self) -> OutageReporter:
        """Reports outages of the store for the whole instance."""
        ...

    def resign(self) -> None:
        """Give up the leadership with the next heartbeat."""
        ...

    def create_pruner(self, store: Store) -> Service: ...

    def create_release_sweeper(self, store: Store) -> Service: ...

    def create_lane_sweeper(self, store: Store, view: LineView) -> Service: ...

    def create_limit_declarations(
        self, store: Store, view: LineView, tasks: Mapping[str, str]
    ) -> DeclarationService: ...

    async def run_startup(
        self,
        store: Store,
        *,
        in_thread: InThread,
        identity: Callable[[], InstanceId],
        prepare: Callable[[], Awaitable[None]],
    ) -> None:
        """Call `prepare`, then make the start-up calls, before the first claim."""
        ...

    def stop_startup(self) -> None:
        """Signal the running call that the process stops, and make no other."""
        ...
