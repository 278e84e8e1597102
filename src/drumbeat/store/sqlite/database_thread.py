"""A thread of its own behind an event loop: requests go in one by one, are taken in groups, and answered group by group.

The thread is a daemon and starts with the first request. What it does with a group is its heir's business: `writer` makes a
transaction of it, `reader` answers each from its own snapshot. Answers of a group come back to the loop in one call, because
each such call wakes the loop.
"""

import asyncio
import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.store.sqlite.connection import translate_error

# A process that was stopped while it held the turn keeps everybody waiting: callers are told, and may try again.
CALL_TIMEOUT = 30.0
_MAX_GROUP_SIZE = 1_000
_MAX_GROUP_WEIGHT = 10_000
# How often an idle thread looks whether its loop is still there: one that was closed by hand tells nobody.
_LOOP_CHECK_S = 2.0


class WriteRequest:
    """A piece of work on its way: `work(place, argument)`, or `together(place, arguments)` for several of a kind."""

    __slots__ = ("argument", "batch_work", "durable", "future", "weight", "work")

    def __init__(
        self,
        future: "asyncio.Future[Any]",
        work: Callable[[Any, Any], Any],
        argument: Any,
        batch_work: Callable[[Any, Sequence[Any]], Sequence[Any]] | None,
        durable: bool,
        weight: int,
    ) -> None:
        self.future = future
        self.work = work
        self.argument = argument
        self.batch_work = batch_work
        self.durable = durable
        self.weight = weight
        """About how many rows it writes."""


RequestResult = tuple["asyncio.Future[Any]", Any, Exception | None]


class DatabaseThread(ABC):
    """The loop's end and the thread's end of a line of requests."""

    def __init__(self, name: str, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._name = name
        self._path = path
        self._loop = loop
        self._pid = os.getpid()
        self._requests: SimpleQueue[WriteRequest | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._thread_ended: asyncio.Future[None] = loop.create_future()
        self._closing = False
        self._pending: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    # On the loop's thread.

    def submit(
        self,
        work: Callable[[Any, Any], Any],
        argument: Any = None,
        batch_work: Callable[[Any, Sequence[Any]], Sequence[Any]] | None = None,
        durable: bool = True,
        weight: int = 1,
    ) -> "asyncio.Future[Any]":
        """Put a request in line. Cancelling the future leaves the work done or undone, never half done."""
        if os.getpid() != self._pid:
            raise StoreError(
                f"{self._path} was opened before this process was forked: open the store anew in the child"
            )
        if self._closing:
            raise StoreUnavailable(f"{self._path}: the store is closed")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._requests.put(WriteRequest(future, work, argument, batch_work, durable, weight))
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name=f"drumbeat {self._name}", daemon=True)
            self._thread.start()
        self._start_deadline(future)
        return future

    async def close(self) -> None:
        """Let the group under way end, refuse the rest, give everything back."""
        self._closing = True
        if os.getpid() != self._pid:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is None:
            return
        self._requests.put(None)
        self._interrupt()
        try:
            # A thread that hangs in a lock held by a stopped process is left behind; it is a daemon.
            await asyncio.wait_for(asyncio.shield(self._thread_ended), 5)
        except TimeoutError:
            pass
        self._fail_pending()

    def _start_deadline(self, future: "asyncio.Future[Any]") -> None:
        while self._pending and self._pending[0][1].done():
            self._pending.popleft()
        self._pending.append((self._loop.time() + CALL_TIMEOUT, future))
        if self._timer is None:
            self._timer = self._loop.call_later(CALL_TIMEOUT, self._fail_overdue)

    def _fail_overdue(self) -> None:
        now = self._loop.time()
        while self._pending and (self._pending[0][1].done() or self._pending[0][0] <= now):
            future = self._pending.popleft()[1]
            if not future.done():
                future.set_exception(
                    StoreUnavailable(f"{self._path}: no answer in {CALL_TIMEOUT:g} s; somebody holds its lock")
                )
        # Armed again by the next request if nothing waits now.
        self._timer = self._loop.call_at(self._pending[0][0], self._fail_overdue) if self._pending else None

    def _deliver(self, answers: Sequence[RequestResult]) -> None:
        for future, value, error in answers:
            if future.done():
                continue  # cancelled, or given up
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

    def _fail_pending(self) -> None:
        for _, future in self._pending:
            if not future.done():
                future.set_exception(StoreUnavailable(f"{self._path}: the store was closed"))
        self._pending.clear()

    # On the desk's own thread.

    def _main(self) -> None:
        try:
            while self._process_next_group():
                pass
        finally:
            self._close_resources()
            self._post_to_loop(lambda: None if self._thread_ended.done() else self._thread_ended.set_result(None))

    def _process_next_group(self) -> bool:
        """One group; False when it was the last."""
        pause = self._idle_timeout()
        try:
            first = self._requests.get(timeout=_LOOP_CHECK_S if pause is None else pause)
        except Empty:
            if pause is not None:
                self._on_idle()
            return not self._loop.is_closed()
        if first is None:
            return False
        group = [first]
        try:
            answers = self._process_group(group)
        except Exception as error:
            # Any at all: the thread must go on, and whoever waits must hear.
            answers = self._fail_group(group, error)
        if answers:
            self._post_to_loop(lambda: self._deliver(answers))
        return True

    def _fail_group(self, group: Sequence[WriteRequest], error: Exception) -> list[RequestResult]:
        told = self._translate(error)
        return [(request.future, None, told) for request in group]

    def _translate(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error):
            return translate_error(error, self._path)
        if isinstance(error, OSError):
            return StoreUnavailable(f"{self._path}: {error}")
        return error

    def _fill_group(self, group: list[WriteRequest]) -> None:
        """Add whoever has come in the meantime, as long as the group stays small: others wait for its end."""
        weight = sum(request.weight for request in group)
        while len(group) < _MAX_GROUP_SIZE and weight < _MAX_GROUP_WEIGHT:
            try:
                request = self._requests.get_nowait()
            except Empty:
                return
            if request is None:
                self._requests.put(None)  # the end of the line, for the next round
                return
            group.append(request)
            weight += request.weight

    def _post_to_loop(self, call: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    def _idle_timeout(self) -> float | None:
        """How long to wait for a request before `_idle` is called; None: for ever."""
        return None

    def _on_idle(self) -> None:  # noqa: B027, most heirs have nothing to do
        """Nothing came in `_pause`."""

    @abstractmethod
    def _process_group(self, group: list[WriteRequest]) -> list[RequestResult]:
        """Do the work of a group, to which more may be added by `_drain`; one answer for each request, now or later."""

    @abstractmethod
    def _close_resources(self) -> None:
        """Give back what the thread has opened."""

    def _interrupt(self) -> None:  # noqa: B027, a writer must not be cut short
        """Called on the loop's thread at close: cut short what may be cut."""


def run_request(request: WriteRequest, work: Callable[[], Any], path: Path) -> RequestResult:
    """Do one request's work and catch its error: any at all, because the thread must go on and the caller must hear."""
    try:
        return request.future, work(), None
    except sqlite3.Error as error:
        told = translate_error(error, path)
        told.__cause__ = error
        return request.future, None, told
    except Exception as error:
        return request.future, None, error
