"""Protect the event loop of a process from the handlers that run on it.

asyncio lets SystemExit and KeyboardInterrupt of any task or callback escape from the loop, and any code may stop the loop or
cancel every task on it. None of that may stop a worker: signals do. So the loop is run again until the worker's own coroutine
has ended, and job code cannot cancel the worker's tasks, except its own run.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from types import coroutine
from typing import Any, TypeVar

from drumbeat.context import CURRENT_BATCH, CURRENT_JOB
from drumbeat.processes.standard_streams import reopen_streams

log = logging.getLogger(__name__)

T = TypeVar("T")
IN_LIFESPAN: ContextVar[bool] = ContextVar("drumbeat_in_lifespan", default=False)
"""Tasks created in a lifespan belong to the program: its handlers may cancel them."""
GUEST_CALL: ContextVar[object | None] = ContextVar("drumbeat_guest", default=None)
"""One call of a room's handler or of a subscriber: like a job, it may not cancel the worker's tasks."""
LEFTOVERS_TIMEOUT = 5.0
MAX_ESCAPES = 1_000_000
"""A broken loop must not be run for ever."""


@coroutine
def yield_to_loop() -> Generator[None, None, None]:
    """Let others run; a cancellation that is on its way arrives here."""
    yield


def run_until_done(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, T]) -> T:
    """Run the loop until this coroutine has ended, whatever else escapes from it.

    Raises:
        KeyboardInterrupt: Ctrl-C, where that signal has no handler; the coroutine was cancelled.
    """
    task = loop.create_task(main)
    interrupted, escapes, recursion = False, 0, sys.getrecursionlimit()
    while True:
        try:
            return loop.run_until_complete(task)
        except BaseException as error:  # its own, or an uncaught one of another task
            if task.done():
                if interrupted and isinstance(error, asyncio.CancelledError):
                    raise KeyboardInterrupt from None
                raise
            sys.setrecursionlimit(max(recursion, sys.getrecursionlimit()))
            escapes += 1
            # Before the loop opens anything: a stream that a handler closed must not become a descriptor of the loop.
            reopen_streams()
            if loop.is_closed() or loop.is_running() or escapes > MAX_ESCAPES:
                raise  # uvloop still reports `is_running` if it could not stop properly: it never recovers
            if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                interrupted = task.cancel()
            elif isinstance(error, RuntimeError):
                log.error("the event loop was stopped by a handler: restarted; to stop a worker, send it a signal")
            else:
                log.error("uncaught exception in a background task or callback; the worker goes on", exc_info=error)


def cancel_leftovers(loop: asyncio.AbstractEventLoop) -> bool:
    """Cancel tasks that handlers have left on the loop, once the worker has ended; False: some do not end."""
    tasks = asyncio.all_tasks(loop)
    if not tasks:
        return True
    for task in tasks:
        task.cancel()
    _, left = run_until_done(loop, asyncio.wait(tasks, timeout=LEFTOVERS_TIMEOUT))
    return not left


def guest_context() -> Context:
    """A context for code of the program that is not a job."""
    context = copy_context()
    context.run(GUEST_CALL.set, object())
    return context


TaskFactory = Callable[..., "asyncio.Task[Any]"]


def task_factory(is_own_run: Callable[["asyncio.Task[Any]"], bool]) -> TaskFactory:
    """For a worker's loop: its own tasks cannot be cancelled by handlers.

    `is_own_run(task)`: the job whose code is executing runs in this task.
    """

    last_culprit: object = None

    class OwnTask(asyncio.Task[Any]):
        guest: object | None = None
        """The guest call that runs in it; None: a task of the worker."""

        def cancel(self, msg: Any = None) -> bool:
            nonlocal last_culprit
            if not _is_user_code() or is_own_run(self) or (self.guest is not None and GUEST_CALL.get() is self.guest):
                return super().cancel(msg)
            culprit = CURRENT_JOB.get(None) or CURRENT_BATCH.get(None)
            if last_culprit is not culprit or culprit is None:
                last_culprit = culprit  # logged once for each: it may try every task
                log.error("a handler tried to cancel a task of the worker: refused", extra={"refused": self.get_name()})
            return False

    def make(
        loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], context: Context | None = None, **options: Any
    ) -> "asyncio.Task[Any]":
        if _is_user_code() or IN_LIFESPAN.get():
            return asyncio.Task(coro, loop=loop, context=context, **options)
        task = OwnTask(coro, loop=loop, context=context, **options)
        if context is not None:
            task.guest = context.get(GUEST_CALL)
        return task

    return make


def _is_user_code() -> bool:
    return CURRENT_JOB.get(None) is not None or CURRENT_BATCH.get(None) is not None or GUEST_CALL.get() is not None
