"""Running a worker as a process: the event loop, the signals, the exit code.

`run` is for the process that a person, a service manager or the supervisor started; `serve` for a
program that has a loop of its own.
"""

import asyncio
import logging
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from drumbeat.clock import Clock
from drumbeat.settings import Settings
from drumbeat.worker import Worker
from drumbeat.worker.loops import end_leftovers, run_to_end, task_factory
from drumbeat.worker.marks import Marks
from drumbeat.worker.program import Program

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAME_REQUEST = 0.5


async def serve(program: Program, settings: Settings, *, ref: str | None = None) -> None:
    """Work on the running loop until cancelled; a cancellation drains."""
    worker = Worker(program, settings, ref=ref)
    async with asyncio.TaskGroup() as group:
        work = group.create_task(worker.run(), name="worker")
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            worker.request_stop()
            await asyncio.wait([work])
            raise


def run(program: Program, settings: Settings, *, ref: str | None = None, marks_path: str | None = None) -> int:
    """Work in this process until SIGTERM or SIGINT, drain, and return the exit code."""

    worker: Worker | None = None

    async def main() -> int:
        nonlocal worker
        widest = max((task.batch or 1 for task in program.registered_tasks), default=1)
        marks = None if marks_path is None else Marks.create(marks_path, settings.concurrency, widest)
        worker = Worker(
            program,
            settings,
            ref=ref,
            marks=marks,
            may_leave=True,
            on_stuck=_leave_at_once,
            take_signals=lambda: take_signals(stop),
        )
        stop = worker.request_stop if marks_path is None else _once(worker.request_stop, program.clock)
        with stop_on_signals(stop):
            code = await worker.run()
        if worker.has_stuck_handlers:
            # A stuck handler must not go on with a job that somebody else has started meanwhile.
            _leave_at_once(code)
        return code

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        loop = runner.get_loop()
        loop.set_task_factory(task_factory(lambda task: worker is not None and worker.runs.is_own(task)))
        try:
            code = run_to_end(loop, main())
        finally:
            loop.set_task_factory(None)  # what is left to be closed needs none, and a handler may have broken it
        if not end_leftovers(loop):
            _leave_at_once(code)
        return code


def _once(stop: Callable[[], None], clock: Clock) -> Callable[[], None]:
    """For a supervised process: the same request may come twice at once, because a service manager that stops a service
    signals all of its processes, and the supervisor passes on its own. Only a later one means that it is urgent."""
    called_at = -math.inf

    def call() -> None:
        nonlocal called_at
        if clock.monotonic() - called_at > SAME_REQUEST:
            called_at = clock.monotonic()
            stop()

    return call


def _leave_at_once(code: int = 0) -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed by a handler
            stream.flush()
    os._exit(code)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at each SIGINT and SIGTERM while the body runs; the old handlers come back after it."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    take_signals(stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def take_signals(stop: Callable[[], None]) -> None:
    """Have `stop` called at each SIGINT and SIGTERM, whoever has them now."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop)
