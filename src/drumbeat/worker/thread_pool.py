"""Threads for `def` handlers: daemon threads of our own, because a stuck one must be replaced and must not delay the exit.

A thread cannot be cancelled. One whose handler outlives its timeout is abandoned: its result is discarded, and a new thread
takes its place. Its own thread records when a handler ends: a blocked loop may learn of it much later. The context is copied,
so `current_job()` works inside.
"""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from drumbeat.clock import SYSTEM, Clock
from drumbeat.worker.fork_detector import FORKS
from drumbeat.worker.stuck_handlers import StuckHandlers


@dataclass(slots=True, eq=False)
class ThreadCall:
    """One call of a handler in a thread."""

    _call: Callable[[], Any]
    future: "asyncio.Future[None]"
    _clock: Clock
    _context: Context = field(default_factory=copy_context)
    abandoned: bool = False
    has_exited: bool = False
    """The thread saw that it was abandoned, and has ended."""
    value: Any = None
    error: BaseException | None = None
    ended_at: float | None = None
    """When the handler ended, by the monotonic clock; set in its own thread."""

    def execute(self) -> None:
        try:
            self.value = self._context.run(self._call)
        except BaseException as error:  # the handler's own; handled on the loop
            self.error = error
        self.ended_at = self._clock.monotonic()


class ThreadPool:
    def __init__(self, stuck: StuckHandlers, clock: Clock = SYSTEM) -> None:
        self._stuck = stuck
        self._clock = clock
        self._inbox: SimpleQueue[ThreadCall | None] = SimpleQueue()
        self._done: deque[ThreadCall] = deque()
        self._loop = asyncio.get_running_loop()
        self._is_wake_pending = False
        self._idle = 0  # touched on the loop's thread only
        self._started = 0

    async def run(self, call: Callable[[], Any]) -> Any:
        """Call in a thread; returns its value or raises its exception. Cancellation abandons the thread.

        May be awaited on another loop: handlers in threads may run one of their own."""
        if asyncio.get_running_loop() is not self._loop:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.run(call), self._loop))
        submitted = self.submit(call)
        await self.wait(submitted)
        if submitted.error is not None:
            raise submitted.error
        return submitted.value

    def submit(self, call: Callable[[], Any]) -> ThreadCall:
        """Start this call in a thread; `wait` must follow."""
        submitted = ThreadCall(call, self._loop.create_future(), self._clock)
        if self._idle:
            self._idle -= 1
        else:
            self._started += 1
            threading.Thread(target=self._work, name=f"drumbeat-handler-{self._started}", daemon=True).start()
        self._inbox.put(submitted)
        return submitted

    async def wait(self, call: ThreadCall) -> None:
        """Return when the call has ended. Cancellation before that abandons its thread."""
        try:
            await call.future
        except asyncio.CancelledError:
            if call.ended_at is None:
                call.abandoned = True
                self._stuck.add_thread()
                raise

    def close(self) -> None:
        """End idle threads; stuck ones end with the process."""
        for _ in range(self._idle):
            self._inbox.put(None)
        self._idle = 0

    def _work(self) -> None:
        forks, recursion = FORKS.count, sys.getrecursionlimit()
        while (call := self._inbox.get()) is not None:
            call.execute()
            if FORKS.count != forks:
                FORKS.exit_forked_copy(call.error)
            if (
                sys.getrecursionlimit() < recursion
            ):  # here: the loop's thread may be deeper already, and the call would fail
                sys.setrecursionlimit(recursion)
            exits = call.has_exited = call.abandoned
            self._done.append(call)
            # One wake-up serves all calls that end before the loop gets to it. `_deliver` clears the flag before it reads.
            if not self._is_wake_pending:
                self._is_wake_pending = True
                try:
                    self._loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:  # the loop is closed
                    return
            if exits:
                return

    def _deliver(self) -> None:
        self._is_wake_pending = False
        while self._done:
            call = self._done.popleft()
            if call.abandoned:
                self._stuck.in_threads -= 1
            if call.has_exited:
                continue
            self._idle += 1
            if not call.future.done():
                call.future.set_result(None)
