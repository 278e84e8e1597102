"""What a worker needs of the controller that runs beside it."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from drumbeat.heartbeat import HeartbeatCompanion
from drumbeat.ids import InstanceId
from drumbeat.outage import OutageReporter
from drumbeat.service import Service
from drumbeat.store.protocol import Store

InThread = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]


class WorkerController(HeartbeatCompanion, Protocol):
    """What looks after the cluster beside a worker: most of it on the heart's loop, this here on the worker's."""

    @property
    def outage_reporter(self) -> OutageReporter:
        """What the whole instance tells of its store."""
        ...

    def resign(self) -> None:
        """Lead no more, from the next beat on."""
        ...

    def create_pruner(self, store: Store) -> Service: ...

    async def run_startup(self, store: Store, *, in_thread: InThread, identity: Callable[[], InstanceId]) -> None:
        """Make the calls that come before the first claim."""
        ...

    def stop_startup(self) -> None:
        """Tell the one that is under way that the process stops, and make no other."""
        ...
