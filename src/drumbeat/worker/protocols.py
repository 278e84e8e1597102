"""What a worker must know of the program that it works for, and of the controller that the program brings: protocols only."""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from drumbeat.clock import Clock
from drumbeat.events import Events
from drumbeat.heartbeat import HeartbeatCompanion
from drumbeat.ids import InstanceId
from drumbeat.locks import LeaseKeeper
from drumbeat.outage import OutageReporter
from drumbeat.service import Service
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store
from drumbeat.tasks import Room, Task

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


class WorkerApp(Protocol):
    """What a worker must know of the app it works for."""

    @property
    def settings(self) -> Settings: ...
    @property
    def events(self) -> Events: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def registered_tasks(self) -> Sequence[Task[..., Any]]: ...
    @property
    def registered_rooms(self) -> Sequence[Room[..., Any]]: ...
    @property
    def keeper(self) -> LeaseKeeper: ...
    @property
    def lifespans(self) -> Sequence[Callable[[], AbstractAsyncContextManager[Any]]]: ...

    @property
    def companions(self) -> Sequence[Callable[[], AbstractAsyncContextManager[None]]]:
        """What runs beside the worker of a process, but not in its children."""
        ...

    def controller(self, settings: Settings) -> WorkerController:
        """A new one, for one worker."""
        ...

    async def store(self) -> Store:
        """The running loop's store, shared with handlers that enqueue."""
        ...

    async def open_store(self) -> Store:
        """Another store of its own, for the heart."""
        ...
