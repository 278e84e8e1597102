"""A real worker on a real store, in the test's own loop, with a recorder of its events."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from drumbeat.app import Drumbeat
from drumbeat.events import Event
from drumbeat.worker import Worker
from tests.waiting import until

E = TypeVar("E", bound=Event)


class EventRecorder:
    """Records all events of an app."""

    def __init__(self, app: Drumbeat) -> None:
        self.events: list[Event] = []
        app._internals.events.subscribe(Event, self.events.append)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    async def next(self, kind: type[E], where: Callable[[E], bool] = lambda event: True) -> E:
        """The first event of this kind, once it is there."""
        return await until(  # type: ignore[no-any-return]
            lambda: next((event for event in self.of(kind) if where(event)), None), what=f"an event {kind.__name__}"
        )


@asynccontextmanager
async def run_worker(app: Any, **settings: Any) -> AsyncIterator[Worker]:
    """Run a worker while the body runs; it drains at the end."""
    quick = {"heartbeat": 0.05, "dead_after": 0.5, "poll": 0.2, "drain": 5} | settings
    worker = Worker(app._internals, app.configure(quick), ref=None, may_exit=True)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(worker.run(), name="worker under test")
        try:
            yield worker
        finally:
            if not worker.shutdown.is_stopping:
                worker.request_stop()
            await asyncio.wait([running])
