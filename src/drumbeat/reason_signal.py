"""ReasonSignal: tells tasks and threads that something has happened, and why."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Generic, TypeVar

ReasonT = TypeVar("ReasonT")
_mutex = threading.Lock()  # guards every signal; held for a few instructions only


class ReasonSignal(Generic[ReasonT]):
    """Set once, by any thread. Tasks await it, threads call `wait`."""

    __slots__ = ("_callbacks", "_event", "_reason")

    def __init__(self) -> None:
        self._reason: ReasonT | None = None
        self._event: threading.Event | None = None  # made by the first `wait`: most signals have none
        self._callbacks: tuple[Callable[[], object], ...] = ()

    @property
    def reason(self) -> ReasonT | None:
        """None until it is set."""
        return self._reason

    def is_set(self) -> bool:
        return self.reason is not None

    def set(self, reason: ReasonT) -> None:
        """The first reason stays."""
        with _mutex:
            if self._reason is None or self._is_replaceable():
                self._reason = reason
            event, callbacks, self._callbacks = self._event, self._callbacks, ()
        if event is not None:
            event.set()
        for callback in callbacks:
            callback()

    def wait(self, timeout: float | None = None) -> bool:
        """Block this thread until the signal is set; False when `timeout` has passed. Not for code on an event loop."""
        with _mutex:
            if self._event is None:
                self._event = threading.Event()
            if self._reason is not None:
                self._event.set()
        self._event.wait(timeout)
        return self.is_set()

    def __await__(self) -> Generator[Any, None, ReasonT]:
        return self._wait().__await__()

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call this, in any thread, when the signal is set; at once if it is."""
        with _mutex:
            if self._reason is None:
                self._callbacks += (callback,)
                return
        callback()

    async def _wait(self) -> ReasonT:
        if self.reason is None:
            loop = asyncio.get_running_loop()
            is_set: asyncio.Future[None] = loop.create_future()

            def finish() -> None:
                if not is_set.done():
                    is_set.set_result(None)

            def wake() -> None:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(finish)

            self.add_callback(wake)
            await is_set
        assert self._reason is not None
        return self._reason

    def _is_replaceable(self) -> bool:
        """Whether the reason that is set gives way to another."""
        return False
