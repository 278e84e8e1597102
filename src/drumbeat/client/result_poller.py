"""Waiting for jobs to end: all callers that wait on one loop share one poll.

There is no background task. One of the waiters, the leader, polls the store for all of them; when its own job has ended, or
it is cancelled, it hands over to another:

    wait --no leader--> lead --own job ended--> hand over
    wait --job ended--> done        wait --made leader--> lead

The poll interval grows from 5 ms to 500 ms, and is short again when a waiter is added. It is real time also under a test's
clock, which nobody would advance while everybody waits.
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
    """A caller of `wait`."""

    __slots__ = ("answer", "id", "woken")

    def __init__(self, id: JobId) -> None:
        self.id = id
        self.answer: EndedJob | JobNotFound | JobExpired | None = None
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when there is an answer, or when this waiter becomes the leader."""

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class ResultPoller:
    """Polls the store for all callers that wait for a job to end."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs
        self._waiters: dict[_Waiter, None] = {}
        self._leader: _Waiter | None = None
        self._waiter_added = Wakeup(SYSTEM)
        self._interval = MIN_POLL_INTERVAL

    async def wait(self, id: JobId) -> EndedJob:
        """Wait until the job has ended.

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
        # Waiters with an answer are about to return.
        self._leader = next((waiter for waiter in self._waiters if waiter.answer is None), None)
        if self._leader is not None:
            self._leader.wake()

    async def _poll(self) -> None:
        """Ask the store once for all waiters without an answer, and wake those whose job has ended."""
        self._waiter_added.clear()
        asked = {waiter.id: None for waiter in self._waiters if waiter.answer is None}
        try:
            answers: dict[JobId, EndedJob | JobNotFound | JobExpired | None]
            answers = dict(zip(asked, await self._jobs.get_results(list(asked)), strict=True))
        except (JobNotFound, JobExpired) as error:
            answers = {JobId(error.id): error}
            self._waiter_added.set()  # the others have no answer yet: poll again at once
        except StoreUnavailable:
            # Callers wait through an outage of the store; their own timeout is the limit.
            return
        for waiter in self._waiters:
            if waiter.answer is None and (answer := answers.get(waiter.id)) is not None:
                waiter.answer = answer
                waiter.wake()
