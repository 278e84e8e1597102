"""Waiting for jobs to end: all who wait on one loop share one poll.

There is no task in the background. One of the waiters, the leader, asks the store for all of them; when its own job has
ended, or it is cancelled, it hands the lead to another:

    wait --nobody leads--> lead --own job ended--> hand over
    wait --told its end--> done        wait --handed the lead--> lead

The pause between two looks grows from 5 ms to 500 ms, and is short again as soon as a new waiter comes. Pauses are real
time, also under a clock that a test moves: nobody would move it while everybody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from drumbeat.clock import SYSTEM
from drumbeat.errors import JobExpired, JobNotFound, StoreUnavailable
from drumbeat.ids import JobId
from drumbeat.model.job import Ended
from drumbeat.service import Wakeup
from drumbeat.store.protocol import Jobs

SHORTEST, LONGEST, GROWTH = 0.005, 0.5, 1.5


class _Waiter:
    """One caller of `wait`."""

    __slots__ = ("answer", "id", "told")

    def __init__(self, id: JobId) -> None:
        self.id = id
        self.answer: Ended | JobNotFound | JobExpired | None = None
        self.told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when there is an answer, or when the lead is handed over."""

    def tell(self) -> None:
        if not self.told.done():
            self.told.set_result(None)


class ResultPoller:
    """Asks the store how jobs ended, on behalf of all who wait for one."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._waiters: dict[_Waiter, None] = {}
        self._leader: _Waiter | None = None
        self._newcomer = Wakeup(SYSTEM)
        self._pause = SHORTEST

    async def wait(self, id: JobId) -> Ended:
        """How the job ended, as soon as that is known.

        Raises:
            JobNotFound, JobExpired: the store does not have it (any more).
        """
        with self._waiting(id) as waiter:
            if self._leader is not waiter:
                await waiter.told
            while waiter.answer is None:
                await self._look()
                if waiter.answer is None:
                    await self._newcomer.wait(self._pause)
                    self._pause = min(LONGEST, self._pause * GROWTH)
        if isinstance(waiter.answer, Ended):
            return waiter.answer
        # A fresh one for each waiter: a shared exception would collect the tracebacks of all.
        raise type(waiter.answer)(waiter.answer.id)

    @contextmanager
    def _waiting(self, id: JobId) -> Iterator[_Waiter]:
        waiter = _Waiter(id)
        self._waiters[waiter] = None
        self._pause = SHORTEST
        if self._leader is None:
            self._leader = waiter
        else:
            self._newcomer.set()
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
            self._leader.tell()

    async def _look(self) -> None:
        """Ask once for all who have no answer, and tell those whose job has ended."""
        self._newcomer.clear()
        asked = {waiter.id: None for waiter in self._waiters if waiter.answer is None}
        try:
            answers: dict[JobId, Ended | JobNotFound | JobExpired | None]
            answers = dict(zip(asked, await self._jobs.ended(list(asked)), strict=True))
        except (JobNotFound, JobExpired) as error:
            answers = {JobId(error.id): error}
            self._newcomer.set()  # the others have had no answer yet
        except StoreUnavailable:
            # Whoever waits for a result can wait for the store as well; its own time-out is the limit.
            return
        for waiter in self._waiters:
            if waiter.answer is None and (answer := answers.get(waiter.id)) is not None:
                waiter.answer = answer
                waiter.tell()
