"""Slots: each runs one job after another from the buffer. No asyncio task is made for a job; that is where the speed is.

All slots together yield to the loop after a millisecond, so that jobs which never wait cannot starve timers, wake-ups and the
store's answers. Handlers of one slot share its context: if one leaves a context variable changed, the slot ends and a fresh one
takes its place, so that nothing leaks from job to job.

The number of slots is constant until the worker stops: a slot that ends for any reason is replaced, and so is one whose handler
swallows its cancellation.
"""

import asyncio
import logging
from contextvars import copy_context

from drumbeat.worker.active_runs import HandlerRun
from drumbeat.worker.buffer import JobBuffer
from drumbeat.worker.core import WorkerCore
from drumbeat.worker.event_loop import yield_to_loop
from drumbeat.worker.runner import JobRunner, SlotAbandoned

log = logging.getLogger(__name__)

TURN_SECONDS = 0.001
CHECK_INTERVAL = 1.0
DEFAULT_GRACE_SECONDS = 25.0
"""How long a cancelled handler may take to end where there is no drain timeout."""


class Slots:
    def __init__(self, core: WorkerCore, buffer: JobBuffer, runner: JobRunner) -> None:
        self._count = core.settings.concurrency
        self._buffer = buffer
        self._runner = runner
        self._runs = core.runs
        self._clock = core.clock
        self._stuck = core.stuck
        drain = core.settings.drain
        self._grace = DEFAULT_GRACE_SECONDS if drain is None else drain
        """How long a cancelled handler may take to end."""
        self._restore_loop, self._restore_process = core.guard.restore_loop, core.guard.restore_process
        self._context = copy_context()
        self._turn_ends = 0.0
        self._turn_is_over = False
        self._numbers: dict[asyncio.Task[None], int] = {}
        self._cancelled_since: dict[HandlerRun, float] = {}

    async def run(self) -> None:
        """Until the buffer is closed and the last job has ended."""
        async with asyncio.TaskGroup() as self._group:
            self._all_ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            for number in range(self._count):
                self._start(number)
            self._check_stuck()
            try:
                await self._all_ended
            except asyncio.CancelledError:
                self._runner.is_cancelled = True  # before the slots are cancelled
                raise
            finally:
                self._timer.cancel()

    def _start(self, number: int) -> None:
        slot = self._group.create_task(self._slot(number), name=f"slot {number}", context=self._context.copy())
        self._numbers[slot] = number
        slot.add_done_callback(self._on_slot_done)

    def _on_slot_done(self, slot: "asyncio.Task[None]") -> None:
        number = self._numbers.pop(slot, None)
        if number is None:  # replaced before
            self._stuck.on_loop -= 1
        elif not self._runner.is_cancelled and not self._buffer.is_closed:
            self._start(number)
        if not self._numbers and not self._all_ended.done():
            self._all_ended.set_result(None)

    async def _slot(self, number: int) -> None:
        me = asyncio.current_task()
        assert me is not None
        while True:
            try:
                await self._serve(number, me)
                return
            except asyncio.CancelledError:
                if self._runner.is_cancelled:
                    raise
                # Cancelled by a handler's code while it waited for a job: nothing else cancels slots.
                while me.cancelling():
                    me.uncancel()
            except SlotAbandoned:
                return
            except BaseException:
                self._runner.is_cancelled = True  # a bug of ours: the worker ends, and with it all slots
                raise

    async def _serve(self, number: int, me: "asyncio.Task[None]") -> None:
        """Run jobs until the buffer is closed, or a handler has changed this context."""
        monotonic = self._clock.monotonic
        while not self._runner.is_cancelled and (job := await self._buffer.take()) is not None:
            if job.task not in self._runner.batch_tasks:
                await self._runner.run_one(number, me, job)
            else:
                others = self._buffer.take_more(job.task, self._runner.group_size(job) - 1)
                await self._runner.run(number, me, [job, *others])
            self._restore_loop()
            if self._is_context_changed():
                return
            if monotonic() >= self._turn_ends:
                await self._yield()

    async def _yield(self) -> None:
        """Let the loop run everything else. The next turn begins when it comes round."""
        if not self._turn_is_over:
            self._turn_is_over = True
            asyncio.get_running_loop().call_soon(self._begin_turn)
        await yield_to_loop()

    def _begin_turn(self) -> None:
        self._turn_is_over = False
        self._restore_process()
        self._turn_ends = self._clock.monotonic() + TURN_SECONDS

    def _is_context_changed(self) -> bool:
        try:
            return copy_context() != self._context
        except BaseException:  # a value's own comparison failed: treat it as changed
            return True

    def _check_stuck(self) -> None:
        """Every second: replace slots whose handlers go on long after their cancellation."""
        self._timer = self._clock.call_later(min(CHECK_INTERVAL, self._grace), self._check_stuck)
        if self._runner.is_cancelled or self._buffer.is_closed:
            return  # a draining worker has its own timeout
        now = self._clock.monotonic()
        since = {run: self._cancelled_since.get(run, now) for run in self._runs if run.is_interrupted}
        self._cancelled_since = since
        for run, cancelled_at in since.items():
            number = self._numbers.get(run.slot)
            if number is not None and now - cancelled_at >= self._grace:
                self._replace(number, run)

    def _replace(self, number: int, run: HandlerRun) -> None:
        facts = {"task": run.task, "job": run.jobs[0].id, "reason": str(run.running.aborted.reason)}
        log.error("a handler swallows its cancellation: its slot was replaced, and it runs on", extra=facts)
        self._runner.abandon(number, run)
        del self._numbers[run.slot]
        self._start(number)
        self._stuck.add_task()
