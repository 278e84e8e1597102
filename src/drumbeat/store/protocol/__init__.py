"""The boundary between Drumbeat and a database: a few small parts with a few operations each, which take and return
batches.

Every engine implements all of it; there are no optional operations and no capability flags, and no caller asks which
engine it has. The docstrings are the contract: who may call, what is atomic, what a second call does, what is raised.
Each operation may raise StoreUnavailable: nothing was done, or it is unknown whether it was; calling again is harmless
unless the docstring says otherwise.

A store belongs to one event loop of one process. Cancelling a call may leave it done or undone, never half done.
"""

from collections.abc import Awaitable
from typing import Protocol, Self

from .audit import AuditStore as AuditStore
from .dependencies import DependencyStore as DependencyStore
from .inspect import Inspector as Inspector
from .instances import InstanceStore as InstanceStore
from .jobs import JobStore as JobStore
from .limits import LimitStore as LimitStore
from .locks import LockStore as LockStore
from .rooms import RoomStore as RoomStore
from .schedules import ScheduleStore as ScheduleStore
from .stats import StatsStore as StatsStore
from .steps import StepStore as StepStore
from .transactional import EngineTransaction as EngineTransaction
from .transactional import Transactional as Transactional
from .wake import Wake as Wake
from .workflows import WorkflowStore as WorkflowStore


class Store(Protocol):
    """One database, as seen from one event loop. Open it with `store.urls.open_store`. Engines inherit from it."""

    url: str
    """Without a password: safe for messages."""
    jobs: JobStore
    steps: StepStore
    dependencies: DependencyStore
    workflows: WorkflowStore
    instances: InstanceStore
    schedules: ScheduleStore
    limits: LimitStore
    locks: LockStore
    rooms: RoomStore
    stats: StatsStore
    inspect: Inspector
    audit: AuditStore
    wake: Wake
    transactional: Transactional

    async def close(self) -> None:
        """Close all connections and threads. Calls under way end with StoreUnavailable. Harmless twice."""
        ...

    async def _open_by(self, last_step: Awaitable[object]) -> Self:
        """The store, closed if the last step of opening it fails."""
        try:
            await last_step
        except BaseException:
            await self.close()
            raise
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
