"""End a forked copy of the worker when it returns from the handler that forked, or it would go on as a second worker.

The copy shares the worker's claims, connections, journal and epoll descriptor. A handler may fork (multiprocessing does, and
everything that calls exec); a copy ends only when it returns to the worker's own code or to its loop. A worker that is made
in a forked process is not a copy: it compares with the count at its own start.
"""

import asyncio
import inspect
import os
import sys
from types import FrameType
from typing import Any

from drumbeat.processes.exit_codes import EXIT_FORKED_COPY


class ForkDetector:
    """Counts, in the child, how often this process descends from a fork."""

    def __init__(self) -> None:
        self.count = 0
        self._loops: list[asyncio.AbstractEventLoop] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._on_fork)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """End a copy that returns to this loop."""
        self._loops = [each for each in self._loops if not each.is_closed()] + [loop]

    def exit_forked_copy(self, error: BaseException | None = None) -> None:
        """Exit at once, without flushing or closing anything that is shared with the worker."""
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
    """The frame of the task that forks: as long as it is on the stack, the handler runs."""
    found = None
    while frame is not None:
        if frame.f_code.co_flags & inspect.CO_COROUTINE:
            found = frame
        frame = frame.f_back
    return found


def _exit_after(step: FrameType) -> None:
    """Exit as soon as anything is called outside of this frame: then the loop would go on."""

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        each: FrameType | None = frame
        while each is not None:
            if each is step:
                return
            each = each.f_back
        os._exit(0)

    # The only hook before the loop makes its next call: its queue is not accessible, and other handlers wait in it.
    sys.setprofile(profile)


FORKS = ForkDetector()
