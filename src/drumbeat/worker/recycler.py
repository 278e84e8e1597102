"""Ends a worker process after so many jobs, or with so much memory, so that a fresh one takes its place: what leaks is freed.

It drains as after SIGTERM, so no attempt is charged, and exits with EXIT_RECYCLE. Its supervisor, or whoever started it,
starts it again.
"""

import logging
from collections.abc import Callable, Iterable

from drumbeat.processes.exit_codes import EXIT_RECYCLE
from drumbeat.processes.memory import resident_bytes
from drumbeat.service import Wakeup
from drumbeat.worker.core import WorkerCore

log = logging.getLogger(__name__)

CHECK_INTERVAL = 1.0


class Recycler:
    def __init__(self, core: WorkerCore, child_pids: Callable[[], Iterable[int]]) -> None:
        """`child_pids`: child processes whose memory counts, too."""
        self._settings = core.settings
        self._shutdown = core.shutdown
        self._clock = core.clock
        self._child_pids = child_pids
        self._started = 0
        if self._settings.max_jobs is not None or self._settings.max_memory is not None:
            core.runs.on_start = self._count

    def _count(self, jobs: int) -> None:
        self._started += jobs
        if self._settings.max_jobs is not None and self._started >= self._settings.max_jobs:
            self._recycle(f"{self._started} jobs have begun")

    async def watch_memory(self, limit: int) -> None:
        """Until the worker stops."""
        wakeup = Wakeup(self._clock)
        self._shutdown.on_stop.append(wakeup.set)
        while not self._shutdown.is_stopping:
            wakeup.clear()
            # Not before the first job: a program that is larger than the limit would be started again and again for nothing.
            if self._started and (used := resident_bytes(self._child_pids())) > limit:
                self._recycle(f"{used / 1e6:.0f} MB are in use")
                return
            await wakeup.wait(CHECK_INTERVAL)

    def _recycle(self, reason: str) -> None:
        if self._shutdown.request_replacement(EXIT_RECYCLE):
            log.info("this worker is recycled", extra={"reason": reason, "exit_code": EXIT_RECYCLE})
