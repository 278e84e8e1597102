"""The event loop behind sync calls: one daemon thread per process, started by the first call.

Any number of threads may call at the same time. A forked child gets a loop of its own. This module knows nothing of jobs.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from .errors import WrongContext
from .fork import reset_in_child

P = ParamSpec("P")
T = TypeVar("T")
PartT = TypeVar("PartT")

_CLOSE_TIMEOUT = 5.0
_WAIT_INTERVAL = 0.5


class SyncLoop:
    """Runs coroutines for threads that have no loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_registered_at_exit = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """None: no sync call was made yet."""
        return self._loop

    def run(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and return its result. Ctrl-C ends the wait, and cancels the work.

        Raises:
            WrongContext: this is the thread of a running loop; the message has `name`.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            work.close()
            raise WrongContext(name, "the async form, with await", loop_runs=True)
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            # In intervals: a signal that arrives just before a thread blocks on a lock does not wake it (seen in 1 of 60).
            while not wait([future], _WAIT_INTERVAL).done:
                pass
            return future.result()
        finally:
            future.cancel()  # no effect once it is done

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # Daemon: a program may exit without closing us.
                self._thread = threading.Thread(
                    target=_run_loop, args=[self._loop], name="drumbeat-sync-loop", daemon=True
                )
                self._thread.start()
                if not self._is_registered_at_exit:
                    atexit.register(self.close)
                    self._is_registered_at_exit = True
            return self._loop

    def close(self) -> None:
        """End the thread; stores that were opened on its loop are closed there. The next call starts a new thread."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_CLOSE_TIMEOUT)

    def reset_after_fork(self) -> None:
        """In a forked child: the thread does not exist here, and its lock may have been held."""
        self._lock = threading.Lock()
        _parent_loops.append(self._loop)
        self._loop = self._thread = None


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        # As in asyncio.run: the end of its async generators closes stores opened on this loop.
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.wait(pending, timeout=_CLOSE_TIMEOUT))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


_parent_loops: list[asyncio.AbstractEventLoop | None] = []
"""The parent's loops, kept alive so that a forked child closes nothing that the parent still uses."""

SYNC_LOOP = SyncLoop()
reset_in_child(SYNC_LOOP)


def to_sync(name: str, function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """A sync version of an async function."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return SYNC_LOOP.run(name, function(*args, **kwargs))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = function.__doc__
    return call


class SyncPart(Generic[PartT]):
    """The sync form of an async object: a class whose attributes are `SyncMethod`."""

    def __init__(self, part: PartT) -> None:
        self._part = part


class SyncMethod(Generic[P, T]):
    """The sync form of an async method, with the same signature; `app.sync.jobs.list` of `Jobs.list`."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self._method = method
        self._name = f"app.sync.{method.__qualname__.lower()}"
        self.__doc__ = method.__doc__

    def __get__(self, owner: SyncPart[Any], kind: type | None = None) -> Callable[P, T]:
        return to_sync(self._name, MethodType(self._method, owner._part))
