"""Hints: how a sleep is shortened."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Wake(Protocol):
    """Hints that something is due. They only shorten a sleep; whoever sleeps also polls."""

    def listen(self, hear: Callable[[int], None]) -> AbstractAsyncContextManager[str | None]:
        """Call `hear(run_at)` on this loop whenever a job with this due moment may have come (0: look now).

        Gives the address that must stand in this instance's row (NewInstance.wake), or None where none is needed.
        """
        ...
