"""Threads for `def` handlers: our own daemons, because a stuck one must be replaced and must not hold up exit.

A thread cannot be cancelled. One whose handler outlives its time-out is abandoned: nobody waits for it any more, its result
goes nowhere, and a new thread takes its place. When a handler ends is known from its own thread: the loop may be held up by
another handler and hear of it much later. The context is copied, so `current_job()` works inside.
"""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

from drumbeat.clock import SYSTEM, Clock
from drumbeat.worker.fork_detector import FORKS


class ThreadCall:
    """One call of a handler in a thread."""

    __slots__ = ("_call", "_clock", "_context", "abandoned", "ended_at", "error", "future", "has_exited", "value")

    def __init__(self, call: Callable[[], Any], future: "asyncio.Future[None]", clock: Clock) -> None:
        self._call = call
        self._clock = clock
        self._context = copy_context()
        self.future = future
        self.abandoned = False
        self.has_exited = False
        """The thread saw that it was abandoned, and has ended."""
        self.value: Any = None
        self.error: BaseException | None = None
        self.ended_at: float | None = None
        """When the handler ended, by the monotonic clock; set in its own thread."""

    def execute(self) -> None:
        try:
            self.value = self._context.run(self._call)
        except BaseException as error:  # the handler's own, whatever it is: the loop judges it
            self.error = error
        self.ended_at = self._clock.monotonic()


class ThreadPool:
    def __init__(self, on_abandoned: Callable[[int], None], clock: Clock = SYSTEM) -> None:
        self._on_abandoned = on_abandoned
        self._clock = clock
        self._inbox: SimpleQueue[ThreadCall | None] = SimpleQueue()
        self._done: deque[ThreadCall] = deque()
        self._loop = asyncio.get_running_loop()
        self._is_wake_pending = False
        self._idle = 0  # touched on the loop's thread only
        self._started = 0
        self.abandoned = 0
        """Threads whose handler goes on though nobody waits for it."""

    async def run(self, call: Callable[[], Any]) -> Any:
        """Make this call in a thread, for its value or its exception. If cancelled while it runs, the thread is abandoned."""
        made = self.submit(call)
        await self.wait(made)
        if made.error is not None:
            raise made.error
        return made.value

    def submit(self, call: Callable[[], Any]) -> ThreadCall:
        """Have this call made in a thread; `wait` must follow."""
        made = ThreadCall(call, self._loop.create_future(), self._clock)
        if self._idle:
            self._idle -= 1
        else:
            self._started += 1
            threading.Thread(target=self._work, name=f"drumbeat-handler-{self._started}", daemon=True).start()
        self._inbox.put(made)
        return made

    async def wait(self, call: ThreadCall) -> None:
        """Return when the call has ended. If cancelled before that, its thread is abandoned; after it, nothing is."""
        try:
            await call.future
        except asyncio.CancelledError:
            if call.ended_at is None:
                call.abandoned = True
                self.abandoned += 1
                self._on_abandoned(self.abandoned)
                raise

    def close(self) -> None:
        """Let idle threads end; stuck ones are daemons and end with the process."""
        for _ in range(self._idle):
            self._inbox.put(None)
        self._idle = 0

    def _work(self) -> None:
        forks, recursion = FORKS.count, sys.getrecursionlimit()
        while (call := self._inbox.get()) is not None:
            call.execute()
            if FORKS.count != forks:
                FORKS.exit_forked_copy(call.error)
            if sys.getrecursionlimit() < recursion:  # here: the loop's own thread may be deeper already, and fail
                sys.setrecursionlimit(recursion)
            left = call.has_exited = call.abandoned
            self._done.append(call)
            # One wake-up serves all calls that end before the loop comes to it. Cleared by the loop before it looks.
            if not self._is_wake_pending:
                self._is_wake_pending = True
                try:
                    self._loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:  # the loop is closed: nobody waits
                    return
            if left:
                return

    def _deliver(self) -> None:
        self._is_wake_pending = False
        while self._done:
            call = self._done.popleft()
            if call.abandoned:
                self.abandoned -= 1
            if call.has_exited:
                continue
            self._idle += 1
            if not call.future.done():
                call.future.set_result(None)
