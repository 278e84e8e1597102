"""The border between Drumbeat and a database: a few small parts, each a few operations, batch in and batch out.

Every engine implements all of it; there are no optional operations and no capability flags, and no caller asks which
engine it has. The docstrings are the contract: who may call, what is atomic, what a second call does, what is raised. Each
operation may raise StoreUnavailable: nothing was done, or it is unknown whether it was; calling again is harmless wherever
the docstring does not say otherwise.

A store belongs to one event loop of one process. Cancelling a call may leave it done or undone, never half done.
"""

from types import TracebackType
from typing import Protocol, Self

from .audit import Audit
from .inside import Inside, OwnTransaction
from .inspect import Inspect
from .instances import Instances
from .jobs import Jobs
from .locks import Locks
from .rooms import Rooms
from .schedules import Schedules
from .stats import Stats
from .wake import Wake

__all__ = [
    "Audit",
    "Inside",
    "Inspect",
    "Instances",
    "Jobs",
    "Locks",
    "OwnTransaction",
    "Rooms",
    "Schedules",
    "Stats",
    "Store",
    "Wake",
]


class Store(Protocol):
    """One database, as seen from one event loop. Open it with `store.urls.open_store`."""

    url: str
    """Without a password: fit for messages."""
    jobs: Jobs
    instances: Instances
    schedules: Schedules
    locks: Locks
    rooms: Rooms
    stats: Stats
    inspect: Inspect
    audit: Audit
    wake: Wake
    inside: Inside

    async def close(self) -> None:
        """Give back all connections and threads. Calls under way end with StoreUnavailable. Harmless twice."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
