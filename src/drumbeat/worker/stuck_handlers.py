"""Count handlers that go on though their jobs were given up."""

from collections.abc import Callable


class StuckHandlers:
    """Handlers in abandoned threads, and on the loop in replaced slots. Only the end of the process stops them."""

    def __init__(self, limit: int, on_limit: Callable[[], object] = lambda: None) -> None:
        """`on_limit` is called each time that one is added and `limit` is reached or exceeded."""
        self._limit = limit
        self._on_limit = on_limit
        self.in_threads = 0
        self.on_loop = 0

    @property
    def count(self) -> int:
        return self.in_threads + self.on_loop

    def add_thread(self) -> None:
        self.in_threads += 1
        self._check_limit()

    def add_task(self) -> None:
        self.on_loop += 1
        self._check_limit()

    def _check_limit(self) -> None:
        if self.count >= self._limit:
            self._on_limit()
