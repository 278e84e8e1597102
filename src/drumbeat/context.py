"""What running code may ask of the job it runs: `current_job()`.

A RunningJob is made for each run and lives in a context variable, which threads of the worker get as a copy. It does not
talk to the store: progress and aborts are kept here and carried by the worker.
"""

import asyncio
import threading
from collections.abc import Callable, Generator
from contextvars import ContextVar
from datetime import datetime
from enum import StrEnum
from typing import Any

from drumbeat.durations import from_us
from drumbeat.errors import NotInJob
from drumbeat.ids import JobId
from drumbeat.model.job import Claimed


class AbortReason(StrEnum):
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    DRAINING = "draining"
    LEASE_LOST = "lease lost"


class Aborted(BaseException):
    """Raised by `check()`: ends the attempt in the way that the reason asks for.

    Derives from BaseException so that a handler's own `except Exception` does not swallow it.
    """

    def __init__(self, reason: AbortReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class AbortSignal:
    """Whether a running job should stop, and why. Set once by the worker, read by handlers in any thread."""

    __slots__ = ("_callbacks", "_condition", "reason")

    def __init__(self) -> None:
        self.reason: AbortReason | None = None
        self._condition: threading.Condition | None = None
        self._callbacks: tuple[Callable[[], None], ...] = ()

    def is_set(self) -> bool:
        return self.reason is not None

    def set(self, reason: AbortReason) -> None:
        """The first reason stays, except that draining, which is only a wish, gives way to a real one."""
        if self.reason is None or self.reason is AbortReason.DRAINING:
            self.reason = reason
        with _signal_lock:
            condition, callbacks, self._callbacks = self._condition, self._callbacks, ()
        if condition is not None:
            with condition:
                condition.notify_all()
        for callback in callbacks:
            callback()

    def wait(self, timeout: float | None = None) -> bool:
        """Block this thread until the job should stop; False when the time is over. Not for code on an event loop."""
        with _signal_lock:
            if self._condition is None:
                self._condition = threading.Condition()
        with self._condition:
            self._condition.wait_for(self.is_set, timeout)
        return self.is_set()

    def __await__(self) -> Generator[Any, None, AbortReason]:
        return self._wait().__await__()

    async def _wait(self) -> AbortReason:
        if self.reason is None:
            loop = asyncio.get_running_loop()
            woken = loop.create_future()

            def finish() -> None:
                if not woken.done():
                    woken.set_result(None)

            def wake() -> None:
                loop.call_soon_threadsafe(finish)

            with _signal_lock:
                self._callbacks += (wake,)
            if self.reason is not None:  # set between the look and the registration
                wake()
            await woken
        assert self.reason is not None
        return self.reason


_signal_lock = threading.Lock()  # guards the lazy parts of every AbortSignal; held for a few instructions only


class RunningJob:
    """The job whose handler is running here."""

    __slots__ = ("_claimed", "_note", "aborted")

    def __init__(self, claimed: Claimed, note: Callable[[Claimed, Any], None]) -> None:
        self._claimed = claimed
        self._note = note
        self.aborted = AbortSignal()

    @property
    def id(self) -> JobId:
        return self._claimed.id

    @property
    def task(self) -> str:
        return self._claimed.task

    @property
    def queue(self) -> str:
        return self._claimed.queue

    @property
    def key(self) -> str | None:
        return self._claimed.key

    @property
    def attempt(self) -> int:
        """1 at the first run, one more for each charged failure before."""
        return self._claimed.attempt

    @property
    def token(self) -> int:
        """Grows with each claim: a resource that remembers the highest one seen can refuse a zombie's write."""
        return self._claimed.token

    @property
    def scheduled_for(self) -> datetime:
        """The moment this job was meant for, whatever delays and retries did since."""
        return from_us(self._claimed.due_at)

    def progress(self, value: Any) -> None:
        """Show how far this job is: any JSON value, the last one wins, stored about once a second. Never blocks."""
        self._note(self._claimed, value)

    def check(self) -> None:
        """Raise if this job should stop; the attempt then ends as the reason asks, without a charge on drain."""
        if self.aborted.reason is not None:
            raise Aborted(self.aborted.reason)


CURRENT: ContextVar[RunningJob] = ContextVar("drumbeat_current_job")


def current_job() -> RunningJob:
    """The job that this code runs in.

    Raises:
        NotInJob: this code does not run inside a handler (or inside a batch handler, whose calls say which job they are).
    """
    try:
        return CURRENT.get()
    except LookupError:
        raise NotInJob() from None
