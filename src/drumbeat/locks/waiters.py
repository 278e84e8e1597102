"""Who may stand in the line of a local lock: a task, told by a future of its loop, or a thread, told by its gate.

How the line is served is in `line.py`, which calls `wake` and `alarm` with the mutex held, from any thread.
"""

import asyncio
import threading
from asyncio import AbstractEventLoop, Future

from drumbeat.locks.line import LINES, NEVER, Line, Start, now


class _InLine:
    """What both have."""

    __slots__ = ("granted", "lock", "look_at", "owner", "start")

    def __init__(self, owner: object, lock: object) -> None:
        self.owner = owner
        self.lock = lock
        self.granted = False
        self.look_at = NEVER
        """When the window may have room for it."""
        self.start: Start | None = None


class LoopWaiter(_InLine):
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

    def alarm(self, line: Line, at: float) -> None:
        if at == self.look_at:
            return
        self.look_at = at
        try:
            if asyncio._get_running_loop() is self.loop:
                self._set_timer(line)
            else:
                self.loop.call_soon_threadsafe(self._set_timer, line)
        except RuntimeError:
            line.waiters.pop(self, None)
            line.serve()

    def _finish(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def _set_timer(self, line: Line) -> None:
        self.loop.call_later(max(0.0, self.look_at - now()), self._look, line)

    def _look(self, line: Line) -> None:
        with LINES.mutex:
            self.look_at = NEVER
            line.serve()


class ThreadWaiter(_InLine):
    __slots__ = ("gate",)

    def __init__(self, owner: object, lock: object) -> None:
        super().__init__(owner, lock)
        self.gate = threading.Lock()
        self.gate.acquire()

    def wake(self) -> bool:
        self._open()
        return True

    def alarm(self, line: Line, at: float) -> None:
        if at != self.look_at:
            self.look_at = at
            self._open()  # it waits for the right moment by itself

    def is_served(self, line: Line) -> bool:
        """Asked by the thread itself, without the mutex: whether its turn has come. It looks, if its moment has."""
        with LINES.mutex:
            if not self.granted and now() >= self.look_at:
                self.look_at = NEVER
                line.serve()
            return self.granted

    def _open(self) -> None:
        if self.gate.locked():
            self.gate.release()
