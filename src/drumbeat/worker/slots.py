"""Slots: each runs job after job from the buffer. There is no task object for each job; that is where the speed is.

All slots together yield to the loop after a millisecond, so that jobs which never wait cannot keep timers, wake-ups and the
store's answers out. Handlers of one slot share its context: if one leaves a context variable changed, the slot ends after
it and a fresh one takes its place, so that nothing leaks from job to job.
"""

import asyncio
from collections.abc import Generator
from contextvars import copy_context
from types import coroutine

from drumbeat.clock import Clock
from drumbeat.worker.buffer import Buffer
from drumbeat.worker.runner import Runner

TURN = 0.001


@coroutine
def _yield_to_loop() -> Generator[None, None, None]:
    yield


class Slots:
    def __init__(self, count: int, buffer: Buffer, runner: Runner, clock: Clock) -> None:
        self._count = count
        self._buffer = buffer
        self._runner = runner
        self._clock = clock
        self._context = copy_context()
        self._turn_ends = 0.0
        self._turn_is_over = False

    async def run(self) -> None:
        """Until the buffer is closed and the last job has ended."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._count):
                group.create_task(self._slot(group, number), name=f"slot {number}", context=self._context.copy())

    async def _slot(self, group: asyncio.TaskGroup, number: int) -> None:
        me = asyncio.current_task()
        assert me is not None
        monotonic = self._clock.monotonic
        while (job := await self._buffer.take()) is not None:
            size = self._runner.group_size(job)
            if size == 1:
                await self._runner.run_one(number, me, job)
            else:
                await self._runner.run(number, me, [job, *self._buffer.take_more(job.task, size - 1)])
            if self._is_stained():
                fresh = self._context.copy()
                group.create_task(self._slot(group, number), name=f"slot {number}", context=fresh)
                return
            if monotonic() >= self._turn_ends:
                await self._yield()

    async def _yield(self) -> None:
        """Let the loop see to everything else. The next turn begins when it has come round."""
        if not self._turn_is_over:
            self._turn_is_over = True
            asyncio.get_running_loop().call_soon(self._begin_turn)
        await _yield_to_loop()

    def _begin_turn(self) -> None:
        self._turn_is_over = False
        self._turn_ends = self._clock.monotonic() + TURN

    def _is_stained(self) -> bool:
        try:
            return copy_context() != self._context
        except Exception:  # a value's own comparison: whatever it is, it is not what was there before
            return True
