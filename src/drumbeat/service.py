"""How long-running parts live: until cancelled, in nested lifetimes, patient with a store that is away.

A service has a name and `run()`. `Wakeup` is how one part shortens another's sleep; `Patience` is the only place that waits
out an outage.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from drumbeat.clock import Clock, jittered
from drumbeat.errors import StoreUnavailable


class Service(Protocol):
    name: str

    async def run(self) -> None:
        """Work until cancelled."""
        ...


@asynccontextmanager
async def background(*services: Service) -> AsyncIterator[None]:
    """Run services while the body runs; they are cancelled, and have ended, when it is left.

    A service that fails takes the body and the others down with it.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(service.run(), name=service.name) for service in services]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


class Wakeup:
    """Something may have changed: look again. Clear, then look, then wait, so that no call between is lost."""

    __slots__ = ("_clock", "_event")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, timeout: float | None) -> None:
        """Until set, or for so many seconds; None: until set."""
        if timeout is None or self._event.is_set():
            await self._event.wait()
            return
        # The timer sets the event itself: to a sleeper it is all the same why it looks.
        timer = self._clock.later(max(0.0, timeout), self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()


class Patience:
    """Back-off during an outage of the store, told once when it begins and once when it ends."""

    FIRST, LONGEST = 0.05, 2.0

    def __init__(self, clock: Clock, *, down: Callable[[StoreUnavailable], None], up: Callable[[], None]) -> None:
        self._clock = clock
        self._down = down
        self._up = up
        self._delay = 0.0

    @property
    def is_out(self) -> bool:
        return self._delay > 0

    def over(self) -> None:
        """A call has been answered."""
        if self._delay:
            self._delay = 0.0
            self._up()

    async def suffer(self, error: StoreUnavailable) -> None:
        """A call has failed: wait a little, longer each time."""
        if not self._delay:
            self._down(error)
        self._delay = min(self.LONGEST, self._delay * 2 or self.FIRST)
        await self._clock.sleep(jittered(self._delay))


class LoopThread:
    """A service that runs a coroutine in a daemon thread with an event loop of its own."""

    def __init__(self, name: str, main: Callable[[], Coroutine[Any, Any, None]], *, patience: float) -> None:
        self.name = name
        self._main = main
        self._patience = patience
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until the coroutine ends; its exception is raised here.

        When this is cancelled, the coroutine is cancelled over there and given `patience` seconds to end.
        """
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        threading.Thread(target=self._work, args=(ended,), name=self.name, daemon=True).start()
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # it has ended by itself
                if self._loop is not None and self._task is not None:
                    self._loop.call_soon_threadsafe(self._task.cancel)
            await asyncio.wait([ended], timeout=self._patience)
            raise

    def _work(self, ended: "asyncio.Future[None]") -> None:
        error: Exception | None = None
        try:
            asyncio.run(self._begin())
        except asyncio.CancelledError:
            error = None
        except Exception as broken:  # carried to the caller's loop
            error = broken
        with suppress(RuntimeError):  # that loop is closed: nobody waits
            ended.get_loop().call_soon_threadsafe(_finish, ended, error)

    async def _begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        await self._main()


def _finish(future: "asyncio.Future[None]", error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
