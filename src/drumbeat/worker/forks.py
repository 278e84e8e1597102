"""A handler that forks and returns in the copy: the copy must end there, or it would go on as a second worker.

It has the same claims, connections and marks as the worker, and nobody knows of it. A handler may fork (multiprocessing does,
and what calls exec); only coming back to the worker's own code, or to its loop, is the end of a copy. A worker that is made
in a forked process is no copy: it compares with the count of its own beginning.
"""

import asyncio
import os
import sys

EXIT_COPY = 70


class Forks:
    """How often this process has been forked off another, counted in the new one."""

    def __init__(self) -> None:
        self.count = 0
        self._loops: list[asyncio.AbstractEventLoop] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._on_fork)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """A copy that comes back to this loop ends."""
        self._loops = [each for each in self._loops if not each.is_closed()] + [loop]

    def leave_copy(self, error: BaseException | None = None) -> None:
        """End this process at once: nothing of what it shares with the worker is written or closed."""
        code = error.code if isinstance(error, SystemExit) else EXIT_COPY if error is not None else 0
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)

    def _on_fork(self) -> None:
        self.count += 1
        loops, self._loops = self._loops, []
        for loop in loops:
            if not loop.is_closed():
                loop.call_soon(self._came_back)

    def _came_back(self) -> None:
        sys.stderr.write("drumbeat: a handler forked, and its copy of the worker came back to the loop: it ends\n")
        self.leave_copy()


FORKS = Forks()
