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
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from drumbeat.clock import Clock
from drumbeat.errors import StoreLost
from drumbeat.protocols import WorkerApp
from drumbeat.settings import Settings
from drumbeat.worker import EXIT_NO_STORE, Worker
from drumbeat.worker.crash_journal import CrashJournal
from drumbeat.worker.event_loop import cancel_leftovers, run_until_done, task_factory

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SIGNAL_DEBOUNCE_SECONDS = 0.5
URGENT_TIMEOUT = 3.7
"""So long after the second request to stop the process is gone, whatever its store and its handlers do."""
FLUSH_TIMEOUT = 0.3

log = logging.getLogger(__name__)


async def serve(program: WorkerApp, settings: Settings, *, ref: str | None = None) -> None:
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


def run(program: WorkerApp, settings: Settings, *, ref: str | None = None, marks_path: str | None = None) -> int:
    """Work in this process until SIGTERM or SIGINT, drain, and return the exit code."""

    worker: Worker | None = None

    async def main() -> int:
        nonlocal worker
        widest = max((task.batch or 1 for task in program.registered_tasks), default=1)
        marks = None if marks_path is None else CrashJournal.create(marks_path, settings.concurrency, widest)
        worker = Worker(
            program,
            settings,
            ref=ref,
            journal=marks,
            may_exit=True,
            on_stuck=_exit_now,
            install_signals=lambda: install_signal_handlers(stop),
        )

        def request() -> None:
            if worker.is_stopping:
                _exit_after_timeout()
            worker.request_stop()

        stop = request if marks_path is None else _debounce(request, program.clock)
        with stop_on_signals(stop):
            code = await worker.run()
        if worker.has_stuck_handlers:
            # A stuck handler must not go on with a job that somebody else has started meanwhile.
            _exit_now(code)
        return code

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            loop = runner.get_loop()
            loop.set_task_factory(task_factory(lambda task: worker is not None and worker.runs.is_current_slot(task)))
            try:
                code = run_until_done(loop, main())
            finally:
                loop.set_task_factory(None)  # what is left to be closed needs none, and a handler may have broken it
            if not cancel_leftovers(loop):
                _exit_now(code)
            return code
    except BaseExceptionGroup as group:
        lost: BaseException | None = group.subgroup(StoreLost)
        if lost is None:
            raise
        while isinstance(lost, BaseExceptionGroup):
            lost = lost.exceptions[0]
        # What runs belongs to a store that is no more: there is nothing to wait for, and nobody to tell.
        log.error("the store is lost: this process leaves", extra={"reason": str(lost)})
        return EXIT_NO_STORE


def _debounce(stop: Callable[[], None], clock: Clock) -> Callable[[], None]:
    """For a supervised process: the same request may come twice at once, because a service manager that stops a service
    signals all of its processes, and the supervisor passes on its own. Only a later one means that it is urgent."""
    called_at = -math.inf

    def call() -> None:
        nonlocal called_at
        if clock.monotonic() - called_at > SIGNAL_DEBOUNCE_SECONDS:
            called_at = clock.monotonic()
            stop()

    return call


def _exit_now(code: int = 0) -> None:
    # In a thread, because whoever reads our output may have stopped reading.
    flushing = threading.Thread(target=_flush, name="drumbeat-last-words", daemon=True)
    flushing.start()
    flushing.join(FLUSH_TIMEOUT)
    os._exit(code)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed by a handler
            stream.flush()


def _exit_after_timeout() -> None:
    """Have this process end, in good order or, when its time is over, without: from a thread, which nothing can hold up."""
    timer = threading.Timer(URGENT_TIMEOUT, _force_exit)
    timer.daemon = True
    timer.start()


def _force_exit() -> None:
    saying = threading.Thread(target=log.error, args=["this process leaves by force: its work did not end in time"])
    saying.daemon = True
    saying.start()
    saying.join(FLUSH_TIMEOUT)
    _exit_now(EXIT_NO_STORE)


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
    install_signal_handlers(stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def install_signal_handlers(stop: Callable[[], None]) -> None:
    """Have `stop` called at each SIGINT and SIGTERM, whoever has them now."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop)
