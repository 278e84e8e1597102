"""Claimed jobs that wait for a slot, in the order of their claim. The fetcher bounds it (prefetch.py)."""

import asyncio
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress

from drumbeat.core.claim import ClaimedJob
from drumbeat.ids import JobId


class JobBuffer:
    def __init__(self, on_low: Callable[[], None], can_start: Callable[[], bool] = lambda: True) -> None:
        """While `can_start` is false no job is handed out; `wake` when it is true again."""
        self._on_low = on_low
        self._can_start = can_start
        self.low_watermark = 0
        """`on_low` is called when at most this many jobs are left after a take; once, until more are put."""
        self.taken_count = 0
        """Jobs taken since the start. Unchanged for long means that jobs wait here in vain."""
        self._jobs: deque[ClaimedJob] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._is_low_signalled = False

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def idle_slots(self) -> int:
        """The number of slots that wait for a job."""
        return len(self._waiters)

    def __iter__(self) -> Iterator[ClaimedJob]:
        return iter(self._jobs)

    def put(self, jobs: Iterable[ClaimedJob], first: Sequence[ClaimedJob] = ()) -> None:
        """`first`: those that were claimed for free slots; they go before what waits here."""
        self._jobs.extend(jobs)
        self._jobs.extendleft(reversed(first))
        self._is_low_signalled = False
        self.wake()

    def wake(self) -> None:
        """Wake as many slots as there are jobs."""
        for _ in range(min(len(self._jobs), len(self._waiters))):
            woken = self._waiters.popleft()
            if not woken.done():
                woken.set_result(None)

    async def take(self) -> ClaimedJob | None:
        """The next job; None when the buffer is closed."""
        while not self._jobs or not self._can_start():
            if self._closed:
                return None
            woken = asyncio.get_running_loop().create_future()
            self._waiters.append(woken)
            self._on_low()
            try:
                await woken
            except asyncio.CancelledError:
                with suppress(ValueError):
                    self._waiters.remove(woken)
                raise
        self.taken_count += 1
        job = self._jobs.popleft()
        if not self._is_low_signalled and len(self._jobs) <= self.low_watermark:
            self._is_low_signalled = True
            self._on_low()
        return job

    def take_more(self, task: str, limit: int) -> list[ClaimedJob]:
        """Up to `limit` further jobs of one task, oldest first, without crash suspects; the others keep their order."""
        if limit <= 0 or not self._jobs:
            return []
        taken: list[ClaimedJob] = []
        kept: deque[ClaimedJob] = deque()
        for job in self._jobs:
            (taken if job.task == task and not job.crashes and len(taken) < limit else kept).append(job)
        self._jobs = kept
        return taken

    def remove(self, ids: Container[JobId]) -> list[ClaimedJob]:
        """Take these out: they must not start."""
        removed = [job for job in self._jobs if job.id in ids]
        if removed:
            self._jobs = deque(job for job in self._jobs if job.id not in ids)
        return removed

    def drain(self) -> list[ClaimedJob]:
        jobs, self._jobs = list(self._jobs), deque()
        return jobs

    def close(self) -> list[ClaimedJob]:
        """Stop handing out jobs; slots end. Returns the jobs that were left."""
        self._closed = True
        for woken in self._waiters:
            if not woken.done():
                woken.set_result(None)
        self._waiters.clear()
        return self.drain()
