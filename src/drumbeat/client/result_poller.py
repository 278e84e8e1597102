"""Waiting for jobs to end: all who wait on one loop share one poll.

There is no task in the background. One of the waiters, the leader, asks the store for all of them; when its own job has
ended, or it is cancelled, it hands the lead to another:

    wait --nobody leads--> lead --own job ended--> hand over
    wait --woken its end--> done        wait --handed the lead--> lead

The pause between two looks grows from 5 ms to 500 ms, and is short again as soon as a new waiter comes. Pauses are real
time, also under a clock that a test moves: nobody would move it while everybody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from drumbeat.clock import SYSTEM
from drumbeat.core.job import EndedJob
from drumbeat.errors import JobExpired, JobNotFound, StoreUnavailable
from drumbeat.ids import JobId
from drumbeat.service import Wakeup
from drumbeat.store.protocol import JobStore

MIN_POLL_INTERVAL, MAX_POLL_INTERVAL, POLL_INTERVAL_GROWTH = 0.005, 0.5, 1.5


class _Waiter:
    """One caller of `wait`."""

    __slots__ = ("answer", "id", "woken")

    def __init__(self, id: JobId) -> None:
        self.id = id
        self.answer: EndedJob | JobNotFound | JobExpired | None = None
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when there is an answer, or when the lead is handed over."""

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class ResultPoller:
    """Asks the store how jobs ended, on behalf of all who wait for one."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs
        self._waiters: dict[_Waiter, None] = {}
        self._leader: _Waiter | None = None
        self._waiter_added = Wakeup(SYSTEM)
        self._interval = MIN_POLL_INTERVAL

    async def wait(self, id: JobId) -> EndedJob:
        """How the job ended, as soon as that is known.

        Raises:
            JobNotFound, JobExpired: the store does not have it (any more).
        """
        with self._register(id) as waiter:
            if self._leader is not waiter:
                await waiter.woken
            while waiter.answer is None:
                await self._poll()
                if waiter.answer is None:
                    await self._waiter_added.wait(self._interval)
                    self._interval = min(MAX_POLL_INTERVAL, self._interval * POLL_INTERVAL_GROWTH)
        if isinstance(waiter.answer, EndedJob):
            return waiter.answer
        # A fresh one for each waiter: a shared exception would collect the tracebacks of all.
        raise type(waiter.answer)(waiter.answer.id)

    @contextmanager
    def _register(self, id: JobId) -> Iterator[_Waiter]:
        waiter = _Waiter(id)
        self._waiters[waiter] = None
        self._interval = MIN_POLL_INTERVAL
        if self._leader is None:
            self._leader = waiter
        else:
            self._waiter_added.set()
        try:
            yield waiter
        finally:
            del self._waiters[waiter]
            if self._leader is waiter:
                self._hand_over()

    def _hand_over(self) -> None:
        # Those who have an answer are on their way out.
        self._leader = next((waiter for waiter in self._waiters if waiter.answer is None), None)
        if self._leader is not None:
            self._leader.wake()

    async def _poll(self) -> None:
        """Ask once for all who have no answer, and tell those whose job has ended."""
        self._waiter_added.clear()
        asked = {waiter.id: None for waiter in self._waiters if waiter.answer is None}
        try:
            answers: dict[JobId, EndedJob | JobNotFound | JobExpired | None]
            answers = dict(zip(asked, await self._jobs.get_results(list(asked)), strict=True))
        except (JobNotFound, JobExpired) as error:
            answers = {JobId(error.id): error}
            self._waiter_added.set()  # the others have had no answer yet
        except StoreUnavailable:
            # Whoever waits for a result can wait for the store as well; its own time-out is the limit.
            return
        for waiter in self._waiters:
            if waiter.answer is None and (answer := answers.get(waiter.id)) is not None:
                waiter.answer = answer
                waiter.wake()
