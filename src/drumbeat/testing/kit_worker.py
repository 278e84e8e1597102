"""The worker of a kit: started, crashed, stopped; and what it has to do."""

from __future__ import annotations

import asyncio
import contextvars
import sysconfig
from contextlib import suppress
from typing import Any

from drumbeat.clock import SYSTEM
from drumbeat.errors import ConfigError, StoreUnavailable
from drumbeat.ids import InstanceId, JobId
from drumbeat.internals import AppInternals
from drumbeat.store.protocol import Store
from drumbeat.testing.gate import StoreGate
from drumbeat.testing.loop_turns import is_quiet, run_ready
from drumbeat.testing.virtual_clock import WORKER_NUMBER, VirtualClock
from drumbeat.worker import Worker

STOP_PATIENCE = 5.0
REAL_WAIT = 0.001
LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


class KitWorker:
    """One worker after another. Not started: there is none, and nothing to do."""

    def __init__(self, internals: AppInternals, gate: StoreGate, clock: VirtualClock, store: Store) -> None:
        self._internals = internals
        self._gate = gate
        self._clock = clock
        self._store = store
        self._number = 0
        self._worker: Worker | None = None
        self._task: asyncio.Task[int] | None = None
        self._crashed: list[asyncio.Task[int]] = []

    def start(self) -> None:
        self._number += 1
        context = contextvars.copy_context()
        context.run(WORKER_NUMBER.set, self._number)
        self._task = asyncio.get_running_loop().create_task(self._work(), name="worker of the kit", context=context)

    async def _work(self) -> int:
        self._worker = Worker(self._internals, self._internals.settings, in_process=True)
        return await self._worker.run()

    def check(self) -> None:
        """Raise what ended the worker."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            error = self._task.exception()
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            if error is not None:
                raise error

    def crash(self) -> None:
        if self._task is None or self._worker is None:
            raise ConfigError("this kit has no worker that could crash: it was made with worker=False")
        self._gate.crashed.add(self._number)
        instance = self._worker.core.identity()
        self._crashed.append(self._task)
        self._task.cancel()
        self.start()
        self._clock.call_later(self._internals.settings.dead_after, lambda: self._declare_dead(instance))

    def _declare_dead(self, instance: InstanceId) -> None:
        """What another instance would do, whose heartbeats the kit passes over."""
        reason = "it crashed in a test"
        declared = self._store.instances.declare_dead(instance, beat=None, started=None, reason=reason)
        asyncio.get_running_loop().create_task(_ignore(declared), name="declaring a crashed worker dead")

    async def stop(self) -> None:
        """Orderly, so that the program's own resources are closed."""
        task, worker = self._task, self._worker
        if task is not None and worker is not None and not task.done():
            worker.request_stop()
            deadline = SYSTEM.monotonic() + STOP_PATIENCE
            while not task.done() and SYSTEM.monotonic() < deadline:
                await run_ready()
                if is_quiet() and (due := self._clock.next_timer(upkeep=True)) is not None:
                    self._clock.move_to(due)
                else:
                    await SYSTEM.sleep(REAL_WAIT)
        self.check()

    async def close(self) -> None:
        """However it went."""
        for task in [*self._crashed, *([] if self._task is None else [self._task])]:
            if not task.done():
                self._gate.crashed.add(self._number)
                task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    @property
    def is_started(self) -> bool:
        return self._task is not None

    def running_jobs(self) -> set[JobId]:
        return set() if self._worker is None else {job.id for run in self._worker.core.runs for job in run.jobs}

    def timeouts(self, jobs: set[JobId]) -> list[int | None]:
        """When each of these handlers is timed out, in microseconds of its clock; None: never."""
        runs = () if self._worker is None else tuple(self._worker.core.runs)
        deadlines = [run.deadline for run in runs if run.jobs[0].id in jobs]
        return [None if deadline is None else round(deadline * 1_000_000) for deadline in deadlines]

    def next_due(self) -> int | None:
        """When the next job is due that the worker knows of, in microseconds of its clock."""
        parts = None if self._worker is None else self._worker.parts
        due_at = None if parts is None else parts.fetcher.timer.due_at
        return None if due_at is None else round(due_at * 1_000_000)

    async def has_work(self) -> bool:
        """Whether a job is due that it could run, by the store, or it holds one that does not wait for virtual time."""
        if self._task is None:
            return False
        parts = None if self._worker is None else self._worker.parts
        if parts is None:
            return True  # it has not begun yet
        if parts.reporter.held:
            return not self.running_jobs()
        while await self._store.dependencies.advance():  # what waits for jobs that have ended becomes due
            pass
        served = set(parts.fetcher.queues)
        queues = await self._store.inspect.list_queues()
        return any(queue.ready and not queue.paused for queue in queues if queue.name in served)

    def hint(self) -> None:
        """Tell it that a job may be due."""
        if self._worker is not None and self._worker.parts is not None:
            self._worker.parts.fetcher.on_notification(0)

    def describe(self, jobs: set[JobId]) -> str:
        """Where the handlers of these jobs are."""
        runs = () if self._worker is None else tuple(self._worker.core.runs)
        places = [f"{run.task} (job {run.jobs[0].id}) at {_where(run.slot)}" for run in runs if run.jobs[0].id in jobs]
        return "; ".join(places)


def _where(slot: asyncio.Task[Any]) -> str:
    """The line of the program that a handler waits in; of one in a thread, that of ours that waits for it."""
    places: list[str] = []
    waiting: Any = slot.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        places.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        waiting = waiting.cr_await
    of_program = [place for place in places if not place.startswith(LIBRARIES)]
    return (of_program or places or ["an unknown place"])[-1]


async def _ignore(work: Any) -> None:
    with suppress(StoreUnavailable):
        await work
