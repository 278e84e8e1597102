"""A client that outlives what happens to its store, as a program in production must. Chaos and soak share it."""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from drumbeat import Drumbeat, JobHandle, NewJob
from drumbeat.clock import SYSTEM
from drumbeat.errors import DrumbeatError, StoreUnavailable
from tests.chaos import journal

Work = Callable[[], Awaitable[object]]


class PatientClient:
    def __init__(self, app: Drumbeat, dice: random.Random, survived: tuple[type[Exception], ...] = ()) -> None:
        """`survived`: errors that may happen besides those of Drumbeat."""
        self._app = app
        self._dice = dice
        self._survived: tuple[type[Exception], ...] = (DrumbeatError, *survived)

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        may_repeat: bool = True,
        send: Callable[[], Awaitable[Sequence[JobHandle[Any]]]] | None = None,
        **facts: Any,
    ) -> Any:
        """A plain job whose answer was lost is sent again, under its id. One with a unique key must not be: its first life
        may be over. `send`: how to store them, if not by enqueue_many. The journal gets `facts`, too."""
        ids = [str(job.id) for job in jobs]
        journal.write("asks", ids=ids, **facts)
        while True:
            try:
                handles = await (self._app.enqueue_many(jobs) if send is None else send())
            except StoreUnavailable:
                if not may_repeat:
                    return None
                await self._pause()
                continue
            journal.write("acknowledged", ids=ids, existing=[str(handle.id) for handle in handles])
            return handles

    async def count_ready(self) -> int:
        return sum(queue.ready for queue in await self._app.queues.list())

    async def survive(self, work: Work) -> None:
        """A mistake of its own is written down, and fails the run."""
        try:
            await work()
        except self._survived as error:
            journal.write("refused", error=f"{type(error).__name__}: {error}")
            await self._pause()
        except Exception as error:
            journal.write("mistake", error=repr(error))
            raise

    async def persist(self, work: Work) -> None:
        while True:
            await self.survive(work)

    async def _pause(self) -> None:
        await SYSTEM.sleep(self._dice.uniform(0.05, 0.3))
