"""Times in which the machine did not let a process go on are faults, too: it cannot renew a lease then.

The harness watches itself, and what it sees concerns everybody. Each process of the run watches itself as well: with more
processes than cores one of them may stand still while the others go on.
"""

import threading
import time
from collections.abc import Callable

from tests.chaos import journal

MAX_STALL_SECONDS = 0.5
LOOK_SECONDS = 0.1


class StallWatch:
    def __init__(self, record: Callable[[float, float], None]) -> None:
        self._record = record
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stall watch", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        seen = time.monotonic()
        while not self._over.wait(LOOK_SECONDS):
            now = time.monotonic()
            if now - seen > MAX_STALL_SECONDS:
                self._record(seen, now)
            seen = now


def watch_process() -> None:
    """Write the stalls of this process into the journal, as long as it lives."""
    StallWatch(lambda start, _: journal.write("stalled", start=start)).__enter__()
