"""Run a worker as a process: event loop, signals, exit code.

`run` is for a process of its own, started by a person, a service manager or the supervisor; `serve` is for a program that
has its own loop.
"""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from drumbeat.errors import StoreLost
from drumbeat.processes.exit_codes import EXIT_NO_STORE
from drumbeat.processes.signals import debounce, install_signal_handlers, stop_on_signals
from drumbeat.protocols import WorkerApp
from drumbeat.settings import Settings
from drumbeat.worker import Worker
from drumbeat.worker.crash_journal import CrashJournal
from drumbeat.worker.event_loop import cancel_leftovers, run_until_done, task_factory
from drumbeat.worker.worker_health import WorkerHealth

log = logging.getLogger(__name__)

SIGNAL_DEBOUNCE_SECONDS = 0.5
"""A supervised process may get one request twice: a service manager signals all processes of a service, and the supervisor
passes its own signal on. Only a later one means that it is urgent."""
URGENT_TIMEOUT = 3.7
"""How long after the second stop request the process exits, whatever its store and its handlers do."""
FLUSH_TIMEOUT = 0.3


async def serve(app: WorkerApp, settings: Settings, *, ref: str | None = None) -> None:
    """Work on the running loop until cancelled; a cancellation drains."""
    worker = Worker(app, settings, ref=ref)
    async with asyncio.TaskGroup() as group:
        work = group.create_task(worker.run(), name="worker")
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            worker.request_stop()
            await asyncio.wait([work])
            raise


def run(
    app: WorkerApp,
    settings: Settings,
    *,
    ref: str | None = None,
    journal_path: str | None = None,
    health: WorkerHealth | None = None,
) -> int:
    """Work in this process until SIGTERM or SIGINT, drain, and return the exit code. `health` is told of the worker."""

    worker: Worker | None = None

    def request_stop() -> None:
        if worker is not None:
            if worker.shutdown.is_stopping:
                _exit_after_timeout()
            worker.request_stop()

    async def main() -> int:
        nonlocal worker
        widest = max((task.options.batch or 1 for task in app.registry), default=1)
        journal = None if journal_path is None else CrashJournal.create(journal_path, settings.concurrency, widest)
        stop = request_stop if journal_path is None else debounce(request_stop, SIGNAL_DEBOUNCE_SECONDS, app.clock)
        worker = Worker(
            app,
            settings,
            ref=ref,
            journal=journal,
            may_exit=True,
            on_stuck=_exit_now,
            install_signals=lambda: install_signal_handlers(stop),
        )
        if health is not None:
            health.attach(worker)
        with stop_on_signals(stop):
            code = await worker.run()
        if worker.core.stuck.count:
            # A stuck handler must not go on with a job that another worker may run by now.
            _exit_now(code)
        return code

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            loop = runner.get_loop()
            loop.set_task_factory(
                task_factory(lambda task: worker is not None and worker.core.runs.is_current_slot(task))
            )
            try:
                code = run_until_done(loop, main())
            finally:
                loop.set_task_factory(None)  # closing needs none, and a handler may have broken it
            if not cancel_leftovers(loop):
                _exit_now(code)
            return code
    except BaseExceptionGroup as group:
        if (lost := group.subgroup(StoreLost)) is None:
            raise
        # What runs belongs to a store that is gone: there is nothing to wait for.
        log.error("the store is lost: this process exits", extra={"reason": str(first_of_group(lost))})
        return EXIT_NO_STORE


def first_of_group(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _exit_now(code: int = 0) -> None:
    _run_briefly(_flush)
    os._exit(code)


def _run_briefly(call: Callable[..., None], *args: str) -> None:
    """In a thread: a reader of our output that has stopped reading would block us."""
    thread = threading.Thread(target=call, args=args, name="drumbeat-flush", daemon=True)
    thread.start()
    thread.join(FLUSH_TIMEOUT)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed by a handler
            stream.flush()


def _exit_after_timeout() -> None:
    """Force the exit after URGENT_TIMEOUT, from a thread, which a blocked loop cannot delay."""
    timer = threading.Timer(URGENT_TIMEOUT, _force_exit)
    timer.daemon = True
    timer.start()


def _force_exit() -> None:
    _run_briefly(log.error, "this process exits by force: its work did not end in time")
    _exit_now(EXIT_NO_STORE)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
