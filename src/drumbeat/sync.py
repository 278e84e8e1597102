"""The event loop behind sync calls: one daemon thread for each process, started by the first call.

Any number of threads may call at the same time. A forked child gets a loop of its own. This module knows nothing of jobs.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, ParamSpec, TypeVar

from .errors import WrongContext

P = ParamSpec("P")
T = TypeVar("T")

_GOODBYE_SECONDS = 5.0
_SLICE_SECONDS = 0.5


class LoopThread:
    """Runs coroutines for threads that have no loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._says_goodbye = False

    def call(self, called: str, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and wait for what it returns. Ctrl-C ends the wait, and cancels the work.

        Raises:
            WrongContext: this is the thread of a running loop; `called` is what the refusal names.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            work.close()
            raise WrongContext(called, "the async form, with await", loop_runs=True)
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            # In slices: a signal that arrives just before a thread blocks on a lock does not wake it (seen in 1 of 60).
            while not wait([future], _SLICE_SECONDS).done:
                pass
            return future.result()
        finally:
            future.cancel()  # changes nothing once it is done

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # Daemon: a program may end without a word to us, as it would with a plain function.
                self._thread = threading.Thread(target=_turn, args=[self._loop], name="drumbeat sync", daemon=True)
                self._thread.start()
                if not self._says_goodbye:
                    atexit.register(self.close)
                    self._says_goodbye = True
            return self._loop

    def close(self) -> None:
        """End the thread; what was opened on its loop is closed there. The next call starts a new one."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_GOODBYE_SECONDS)

    def forget(self) -> None:
        """In a forked child: the thread is not here, and its lock may have been held."""
        self._lock = threading.Lock()
        _left_behind.append(self._loop)
        self._loop = self._thread = None


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        # As asyncio.run does it: stores opened on this loop are closed by the end of its async generators.
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.wait(pending, timeout=_GOODBYE_SECONDS))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


_left_behind: list[asyncio.AbstractEventLoop | None] = []
"""The parent's loops, kept so that nothing in a forked child closes what the parent still uses."""

THREAD = LoopThread()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=THREAD.forget)


def blocking(called: str, function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """The same function for code without a loop."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return THREAD.call(called, function(*args, **kwargs))

    call.__name__ = call.__qualname__ = called
    call.__doc__ = function.__doc__
    return call
