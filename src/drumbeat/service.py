"""Building blocks of long-running parts: services, wake-ups, back-off during an outage of the store.

A service has a name and `run()`, which works until cancelled. One part shortens another's sleep by a `Wakeup`. Only
`OutageBackoff` waits out an outage; it reports to an `OutageListener`.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar

from drumbeat.clock import Clock, jitter
from drumbeat.errors import StoreFull, StoreUnavailable

OPEN_TIMEOUT = 3.0
"""A store that takes longer to open counts as unreachable."""

T = TypeVar("T")


class Service(Protocol):
    name: str

    async def run(self) -> None:
        """Work until cancelled."""
        ...


@asynccontextmanager
async def run_in_background(*services: Service) -> AsyncIterator[None]:
    """Run services while the body runs; they are cancelled and awaited at its end.

    A service that fails cancels the body and the others.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(service.run(), name=service.name) for service in services]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


class Wakeup:
    """Something may have changed: check again. Clear, then check, then wait, so that no call in between is lost."""

    __slots__ = ("_clock", "_event")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, timeout: float | None) -> None:
        """Until set, or for `timeout` seconds; None: until set."""
        if timeout is None or self._event.is_set():
            await self._event.wait()
            return
        # The timer sets the event itself: the sleeper does not care why it wakes.
        timer = self._clock.call_later(max(0.0, timeout), self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()


class OutageListener(Protocol):
    """Receives failures and answers of the store from the parts of an instance; `part` may be any object."""

    @property
    def is_away(self) -> bool:
        """The store is reported unreachable: then every answer is worth reporting."""
        ...

    def on_failure(self, part: object, error: StoreUnavailable) -> None:
        """Calls of this part have begun to fail, or fail for another reason."""
        ...

    def on_answer(self, part: object) -> None:
        """A call of this part was answered."""
        ...


class OutageBackoff:
    """Back-off of one part during an outage of the store; reports its begin and end.

    A full store answers some calls and refuses others: calls that may be refused alone need a back-off of their own, so that
    the success of others does not reset it.
    """

    MIN_DELAY, MAX_DELAY = 0.05, 2.0

    def __init__(self, clock: Clock, listener: OutageListener) -> None:
        self._clock = clock
        self._listener = listener
        self._delay = 0.0
        self._is_full = False

    @property
    def is_active(self) -> bool:
        return self._delay > 0

    def reset(self) -> None:
        """A call has been answered."""
        if self._delay or self._listener.is_away:
            self._delay = 0.0
            self._listener.on_answer(self)

    def record_failure(self, error: StoreUnavailable) -> None:
        """A call has failed, and the caller does not repeat it at once anyway."""
        is_full = isinstance(error, StoreFull)
        if not self._delay or is_full != self._is_full:
            self._is_full = is_full
            self._listener.on_failure(self, error)
        self._delay = min(self.MAX_DELAY, self._delay * 2 or self.MIN_DELAY)

    async def wait(self, error: StoreUnavailable) -> None:
        """A call has failed: sleep, longer each time."""
        self.record_failure(error)
        await self._clock.sleep(jitter(self._delay))

    async def retry(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat this call until the store answers it."""
        while True:
            try:
                answer = await call()
            except StoreUnavailable as error:
                await self.wait(error)
            else:
                self.reset()
                return answer


async def open_with_retries(
    open_store: Callable[[], Coroutine[Any, Any, T]],
    *,
    on_failure: Callable[[StoreUnavailable], None],
    stop: asyncio.Event,
    retry_delay: float,
) -> T | None:
    """Open a store; retry after `retry_delay` seconds while it is unreachable or full.

    `on_failure` is called for each failure, and every OPEN_TIMEOUT without an answer; it may set `stop`.
    None: asked to stop before it was open.
    """
    while not stop.is_set():
        opened: list[T] = []
        errors: list[Exception] = []
        async with asyncio.TaskGroup() as group, wait_task(stop) as stopping:
            opening = group.create_task(_open(open_store, opened, errors), name="opening the store")
            tasks = {opening, stopping}
            while not (await asyncio.wait(tasks, timeout=OPEN_TIMEOUT, return_when=asyncio.FIRST_COMPLETED))[0]:
                on_failure(StoreUnavailable(f"no answer in {OPEN_TIMEOUT:g} s"))
            opening.cancel()
        for store in opened:
            return store
        for error in errors:
            if not isinstance(error, StoreUnavailable):
                raise error
            on_failure(error)
            async with wait_task(stop) as stopping:
                await asyncio.wait([stopping], timeout=retry_delay)
    return None


async def _open(open_store: Callable[[], Coroutine[Any, Any, T]], opened: list[T], errors: list[Exception]) -> None:
    """Exceptions are collected, to be raised outside of the group."""
    try:
        opened.append(await open_store())
    except Exception as error:
        errors.append(error)


@asynccontextmanager
async def wait_task(event: asyncio.Event) -> AsyncIterator["asyncio.Task[Any]"]:
    """A task for `asyncio.wait` that waits for this event while the body runs."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(event.wait(), name="waiting")
        try:
            yield task
        finally:
            task.cancel()


class ServiceThread:
    """A service that runs a coroutine in a daemon thread with an event loop of its own."""

    def __init__(
        self, name: str, main: Callable[[], Coroutine[Any, Any, None]], clock: Clock, *, stop_timeout: float
    ) -> None:
        self.name = name
        self._main = main
        self._clock = clock
        self.stop_timeout = stop_timeout
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run until the coroutine ends; its exception is raised here.

        Cancellation cancels the coroutine in its thread, which has `stop_timeout` seconds to end.
        """
        ended = self._start()
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # it has ended by itself
                if self._loop is not None and self._task is not None:
                    self._loop.call_soon_threadsafe(self._task.cancel)
            await asyncio.wait([ended], timeout=self.stop_timeout)
            raise

    def _start(self) -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        if self._clock.inline:
            self._loop, self._task = loop, loop.create_task(self._main(), name=self.name)
            return self._task
        ended: asyncio.Future[None] = loop.create_future()
        threading.Thread(target=self._work, args=(ended,), name=self.name, daemon=True).start()
        return ended

    def _work(self, ended: "asyncio.Future[None]") -> None:
        error: Exception | None = None
        try:
            asyncio.run(self._begin())
        except asyncio.CancelledError:
            error = None
        except Exception as raised:  # passed to the caller's loop
            error = raised
        with suppress(RuntimeError):  # that loop is closed
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
