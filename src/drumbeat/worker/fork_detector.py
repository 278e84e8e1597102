"""A handler that forks and returns in the copy: the copy must end there, or it would go on as a second worker.

It has the same claims, connections, marks and epoll descriptor as the worker, and nobody knows of it. A handler may fork
(multiprocessing does, and what calls exec); only coming back to the worker's own code, or to its loop, is the end of a copy.
A worker that is made in a forked process is no copy: it compares with the count of its own beginning.
"""

import asyncio
import inspect
import os
import sys
from types import FrameType
from typing import Any

from drumbeat.processes.exit_codes import EXIT_FORKED_COPY


class ForkDetector:
    """How often this process has been forked off another, counted in the new one."""

    def __init__(self) -> None:
        self.count = 0
        self._loops: list[asyncio.AbstractEventLoop] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._on_fork)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """A copy that comes back to this loop ends."""
        self._loops = [each for each in self._loops if not each.is_closed()] + [loop]

    def exit_forked_copy(self, error: BaseException | None = None) -> None:
        """End this process at once: nothing of what it shares with the worker is written or closed."""
        code = error.code if isinstance(error, SystemExit) else EXIT_FORKED_COPY if error is not None else 0
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)

    def _on_fork(self) -> None:
        self.count += 1
        loops, self._loops = self._loops, []
        if not any(loop.is_running() for loop in loops):
            return
        step = _outermost_coroutine(sys._getframe())
        if step is not None:
            _exit_after(step)


def _outermost_coroutine(frame: FrameType | None) -> FrameType | None:
    """The frame of the task that forks: while it is on the stack, its step goes on."""
    found = None
    while frame is not None:
        if frame.f_code.co_flags & inspect.CO_COROUTINE:
            found = frame
        frame = frame.f_back
    return found


def _exit_after(step: FrameType) -> None:
    """End this process when anything else is called than by this step: the loop goes on, or would."""

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        each: FrameType | None = frame
        while each is not None:
            if each is step:
                return
            each = each.f_back
        os._exit(0)

    # The only way to be asked before the loop makes its next call: its queue is not ours, and other handlers wait in it.
    sys.setprofile(profile)


FORKS = ForkDetector()
