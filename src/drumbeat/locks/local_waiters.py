"""Who may stand in the line of a local lock: a task, told by a future of its loop, or a thread, told by its gate.

How the line is served is in `line.py`, which calls `wake` and `alarm` with the mutex held, from any thread.
"""

import asyncio
import threading
from asyncio import AbstractEventLoop, Future

from drumbeat.locks.local_queue import LOCAL_QUEUES, NEVER, LocalQueue, WindowStart, now


class _BaseWaiter:
    """What both have."""

    __slots__ = ("check_at", "granted", "lock", "owner", "start")

    def __init__(self, owner: object, lock: object) -> None:
        self.owner = owner
        self.lock = lock
        self.granted = False
        self.check_at = NEVER
        """When the window may have room for it."""
        self.start: WindowStart | None = None


class LoopWaiter(_BaseWaiter):
    __slots__ = ("future", "loop")

    def __init__(self, owner: object, lock: object, loop: AbstractEventLoop) -> None:
        super().__init__(owner, lock)
        self.loop = loop
        self.future: Future[None] = loop.create_future()

    def wake(self) -> bool:
        if asyncio._get_running_loop() is self.loop:
            self._finish()
            return True
        try:
            self.loop.call_soon_threadsafe(self._finish)
        except RuntimeError:  # its loop was closed under it
            return False
        return True

    def check_again_at(self, queue: LocalQueue, at: float) -> None:
        if at == self.check_at:
            return
        self.check_at = at
        try:
            if asyncio._get_running_loop() is self.loop:
                self._set_timer(queue)
            else:
                self.loop.call_soon_threadsafe(self._set_timer, queue)
        except RuntimeError:
            queue.waiters.pop(self, None)
            queue.grant_next()

    def _finish(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def _set_timer(self, queue: LocalQueue) -> None:
        self.loop.call_later(max(0.0, self.check_at - now()), self._check, queue)

    def _check(self, queue: LocalQueue) -> None:
        with LOCAL_QUEUES.mutex:
            self.check_at = NEVER
            queue.grant_next()


class ThreadWaiter(_BaseWaiter):
    __slots__ = ("gate",)

    def __init__(self, owner: object, lock: object) -> None:
        super().__init__(owner, lock)
        self.gate = threading.Lock()
        self.gate.acquire()

    def wake(self) -> bool:
        self._open_gate()
        return True

    def check_again_at(self, queue: LocalQueue, at: float) -> None:
        if at != self.check_at:
            self.check_at = at
            self._open_gate()  # it waits for the right moment by itself

    def check_granted(self, queue: LocalQueue) -> bool:
        """Asked by the thread itself, without the mutex: whether its turn has come. It looks, if its moment has."""
        with LOCAL_QUEUES.mutex:
            if not self.granted and now() >= self.check_at:
                self.check_at = NEVER
                queue.grant_next()
            return self.granted

    def _open_gate(self) -> None:
        if self.gate.locked():
            self.gate.release()
