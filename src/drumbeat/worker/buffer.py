"""Claimed jobs that wait for a slot, in the order they were claimed. Bounded by whoever fills it (see pace.py)."""

import asyncio
from collections import deque
from collections.abc import Callable, Container, Iterable
from contextlib import suppress

from drumbeat.ids import JobId
from drumbeat.model.job import Claimed


class Buffer:
    def __init__(self, on_low: Callable[[], None]) -> None:
        self._on_low = on_low
        self.low = 0
        """`on_low` is called when so many jobs or fewer are left after one was taken: once, until more are put."""
        self.taken = 0
        """How many were ever taken: unchanged for long means that what is here is hoarded."""
        self._jobs: deque[Claimed] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._told = False

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def idle(self) -> int:
        """Slots that wait for a job."""
        return len(self._waiting)

    def put(self, jobs: Iterable[Claimed]) -> None:
        self._jobs.extend(jobs)
        self._told = False
        for _ in range(min(len(self._jobs), len(self._waiting))):
            woken = self._waiting.popleft()
            if not woken.done():
                woken.set_result(None)

    async def take(self) -> Claimed | None:
        """The next job; None when the buffer is closed."""
        while not self._jobs:
            if self._closed:
                return None
            woken = asyncio.get_running_loop().create_future()
            self._waiting.append(woken)
            self._on_low()
            try:
                await woken
            except asyncio.CancelledError:
                with suppress(ValueError):
                    self._waiting.remove(woken)
                raise
        self.taken += 1
        job = self._jobs.popleft()
        if not self._told and len(self._jobs) <= self.low:
            self._told = True
            self._on_low()
        return job

    def take_more(self, task: str, most: int) -> list[Claimed]:
        """Up to so many further jobs of one task, oldest first, but no suspect; the others keep their order."""
        if most <= 0 or not self._jobs:
            return []
        taken: list[Claimed] = []
        kept: deque[Claimed] = deque()
        for job in self._jobs:
            (taken if job.task == task and not job.crashes and len(taken) < most else kept).append(job)
        self._jobs = kept
        return taken

    def remove(self, ids: Container[JobId]) -> list[Claimed]:
        """Take these out, because they must not start."""
        removed = [job for job in self._jobs if job.id in ids]
        if removed:
            self._jobs = deque(job for job in self._jobs if job.id not in ids)
        return removed

    def empty(self) -> list[Claimed]:
        """Take everything out."""
        jobs, self._jobs = list(self._jobs), deque()
        return jobs

    def close(self) -> list[Claimed]:
        """No job is given out any more; slots end. Returns what was left."""
        self._closed = True
        for woken in self._waiting:
            if not woken.done():
                woken.set_result(None)
        self._waiting.clear()
        return self.empty()
