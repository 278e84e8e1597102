"""Start-up calls (`@app.on_start`): made by a process before its first claim.

With `once`, one instance makes the call for each version of the app; the others wait until it is done, and if that instance
dies or leaves, another takes over. Each call has the timeout and the retries of its task. One that fails for good ends the
process: a worker whose start-up failed must not work.

A process that is asked to stop meanwhile signals the running call (`abort_signal()`), and makes no other. An `async def` call
is cancelled after CANCEL_DELAY; one in a thread has the drain timeout. A call that returns is done, also then; one that
raises or is cancelled is not, and with `once` another instance makes it.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from drumbeat.clock import Clock, jitter
from drumbeat.context import CURRENT_SIGNAL, AbortReason, AbortSignal
from drumbeat.core.schedule import OnceState
from drumbeat.errors import ConfigError, StartFailed
from drumbeat.ids import InstanceId
from drumbeat.retry import RetryLater, SkipRetry, Snooze
from drumbeat.service import OutageBackoff
from drumbeat.settings import Settings
from drumbeat.store.protocol import ScheduleStore
from drumbeat.tasks.options import Options
from drumbeat.tasks.schedule_decorators import DeclaredStartupCall
from drumbeat.user_code import call_with_timeout, is_own_cancellation

log = logging.getLogger(__name__)

POLL_INTERVAL = 0.5
CANCEL_DELAY = 1.0
"""How long an async call may run on after it was signalled."""

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
AcquireLock = Callable[[str], AbstractAsyncContextManager[Any]]


@dataclass(eq=False, repr=False)
class StartupRunner:
    """Makes all start-up calls of a process, in the order of their declaration."""

    calls: Sequence[DeclaredStartupCall]
    settings: Settings
    clock: Clock
    backoff: OutageBackoff
    in_thread: InThread
    acquire_lock: AcquireLock
    identity: Callable[[], InstanceId]
    prepare: Callable[[], Awaitable[None]] | None = None
    """Called before the first of them."""

    def __post_init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._signal: AbortSignal | None = None
        self._runs_in_thread = False
        self._is_stopped = False

    def stop(self) -> None:
        """The process stops: signal the running call, and make no other. `run` returns when it has ended."""
        self._is_stopped = True
        if self._signal is None:
            self._cancel()
            return
        self._signal.set(AbortReason.DRAINING)
        if not self._runs_in_thread:
            self.clock.call_later(CANCEL_DELAY, self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def run(self, schedules: ScheduleStore) -> None:
        """Make them all, or as many as possible before `stop`.

        Raises:
            StartFailed: one failed, and no retry is left.
        """
        self._task = task = asyncio.current_task()
        try:
            await self._run(schedules)
        except asyncio.CancelledError:
            if not self._is_stopped or task is None or task.uncancel():
                raise
        finally:
            self._task = None

    async def _run(self, schedules: ScheduleStore) -> None:
        if self.prepare is not None:
            await self.prepare()
        for call in self.calls:
            if "both" not in (call.role, self.settings.role) and call.role != self.settings.role:
                continue
            if call.once:
                await self._run_once(schedules, call)
            else:
                await self._call(call)

    async def _run_once(self, schedules: ScheduleStore, call: DeclaredStartupCall) -> None:
        key = f"{self.settings.name}:{self.settings.version}:{call.name}"
        while True:
            me = self.identity()
            match await self.backoff.retry(lambda me=me: schedules.claim_once(key, me)):  # type: ignore[misc]
                case OnceState.DONE:
                    return
                case OnceState.BUSY:
                    await self.clock.sleep(jitter(POLL_INTERVAL))
                case OnceState.YOURS:
                    if not await self._call(call):
                        return
                    # Refused if we were declared dead meanwhile and another instance makes the call: then that one finishes it.
                    if await self.backoff.retry(lambda me=me: schedules.complete_once(key, me)):  # type: ignore[misc]
                        return

    async def _call(self, call: DeclaredStartupCall) -> bool:
        """Repeat the call until it succeeds; False: it did not, and the process stops."""
        task, failures = call.task, 0
        while not self._is_stopped:
            try:
                async with self.acquire_lock(call.lock) if call.lock is not None else nullcontext():
                    await self._attempt(call)
            except Snooze as signal:
                await self.clock.sleep(signal.delay_us / 1e6)
            except BaseException as error:  # the user's own code
                if is_own_cancellation(error):
                    raise
                if self._is_stopped:
                    return False
                failures += 1
                if _is_final(error, task.options) or failures > task.options.resolve_retries(self.settings):
                    raise StartFailed(call.name, _describe_error(error)) from error
                backoff = task.options.resolve_backoff(self.settings)
                delay_us = error.delay_us if isinstance(error, RetryLater) else backoff.delay_us(failures)
                facts = {
                    "task": task.name,
                    "attempt": failures,
                    "error": _describe_error(error),
                    "retry_in": delay_us / 1e6,
                }
                log.warning("start-up task failed; trying again", extra=facts)
                await self.clock.sleep(delay_us / 1e6)
            else:
                log.debug("start-up task done", extra={"task": task.name})
                return True
        return False

    async def _attempt(self, call: DeclaredStartupCall) -> None:
        task = call.task
        function = functools.partial(task.function, *call.args, **call.kwargs)
        self._signal, self._runs_in_thread = AbortSignal(), not task.is_async
        token = CURRENT_SIGNAL.set(self._signal)
        try:
            await call_with_timeout(
                function if task.is_async else lambda: self.in_thread(function), task.options.timeout_us, self._signal
            )
        finally:
            CURRENT_SIGNAL.reset(token)
            self._signal = None


def _is_final(error: BaseException, options: Options) -> bool:
    if isinstance(error, SkipRetry | ConfigError):
        return True
    return not isinstance(error, RetryLater) and not options.retry_filter.accepts(error)


def _describe_error(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # its own __str__
        return type(error).__name__
