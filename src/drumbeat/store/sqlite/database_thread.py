"""A thread that works on a database for an event loop.

    loop: submit(work, argument) --queue--> thread: handler.run_group(group) --> deliver(results) --> loop: futures done

Requests are queued one by one and processed in groups: `writer` makes a transaction of a group, `reader` answers each request
from its own snapshot. The results of a group go back to the loop in one call, because each such call wakes the loop.
The thread is a daemon and starts with the first request. With an inline clock there is none: a group is a step of the loop.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import msgspec

from drumbeat.clock import Clock
from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.store.sqlite.connection import translate_error

# A stopped process that holds the write lock blocks everybody: calls fail after this time, and may be repeated.
CALL_TIMEOUT = 30.0
# The thread may hang in a lock that a stopped process holds; it is a daemon, so `close` leaves it behind.
_CLOSE_TIMEOUT = 5.0
_MAX_GROUP_SIZE = 1_000
_MAX_GROUP_WEIGHT = 10_000
# How often an idle thread checks whether its loop was closed without `close`.
_LOOP_CHECK_INTERVAL = 2.0

A = TypeVar("A")
C = TypeVar("C")
R = TypeVar("R")
Work = Callable[[C, A], R]
BatchWork = Callable[[C, Sequence[A]], Sequence[R]]
RequestResult = tuple["asyncio.Future[Any]", Any, Exception | None]


class DatabaseRequest(msgspec.Struct, Generic[C], frozen=True, eq=False):
    """`work(context, argument)`, or `batch_work(context, arguments)` for several requests of a kind."""

    future: "asyncio.Future[Any]"
    work: Work[C, Any, Any]
    argument: Any
    batch_work: BatchWork[C, Any, Any] | None
    durable: bool
    weight: int
    """About how many rows it writes."""


RequestGroup = list[DatabaseRequest[C]]
TakeQueued = Callable[[int], RequestGroup[C]]


class GroupHandler(Generic[C]):
    """What the thread does with requests. All but `interrupt` is called on the thread."""

    def run_group(self, group: RequestGroup[C], take_queued: TakeQueued[C]) -> Sequence[RequestResult]:
        """Process a group. It is of one request; the handler adds those that `take_queued(weight)` gives.

        Returns a result for each request; those that are missing are delivered later. What is raised fails the whole group.
        """
        raise NotImplementedError

    def idle_timeout(self) -> float | None:
        """How many seconds to wait for a request before `on_idle` is called; None: for ever."""
        return None

    def on_idle(self) -> None:
        """No request came within `idle_timeout`."""

    def close(self) -> None:
        """Release everything: the thread ends."""

    def interrupt(self) -> None:
        """Called on the loop's thread when the store is closed: abort what may be aborted."""


class DatabaseThread(Generic[C]):
    """A queue of requests, and the thread that hands them to a handler."""

    def __init__(
        self, name: str, path: Path, loop: asyncio.AbstractEventLoop, clock: Clock, handler: GroupHandler[C]
    ) -> None:
        self._name = name
        self._inline = clock.inline
        self._path = path
        self._loop = loop
        self._handler = handler
        self._pid = os.getpid()
        self._requests: SimpleQueue[DatabaseRequest[C] | None] = SimpleQueue()
        self._has_started = False
        self._thread: threading.Thread | None = None
        self._thread_ended: asyncio.Future[Any] = loop.create_future()
        self._closing = False
        self._deadlines: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    # On the loop's thread.

    def submit(
        self,
        work: Work[C, A, R],
        argument: A,
        batch_work: BatchWork[C, A, R] | None = None,
        *,
        durable: bool = True,
        weight: int = 1,
    ) -> "asyncio.Future[R]":
        """Queue a request. Cancelling the future leaves the work done or undone, never half done.

        `batch_work` does the same for several requests at once. It must do all or raise; then each is done alone. `weight`
        is about how many rows the work writes: heavy requests do not share a transaction, so that other writers get the
        lock in between.

        A durable request is on disk when its future is done. Others survive the death of any process, but not a power cut:
        claims and heartbeats, because a power cut ends those who made them as well, and waiting for the disk would delay
        a due job most.

        Raises:
            StoreError: this process is a fork of the one that opened the store.
            StoreUnavailable: the store is closed.
        """
        if os.getpid() != self._pid:
            raise StoreError(
                f"{self._path} was opened before this process was forked: open the store anew in the child"
            )
        if self._closing:
            raise StoreUnavailable(f"{self._path}: the store is closed")
        loop, deadlines = self._loop, self._deadlines
        future: asyncio.Future[R] = loop.create_future()
        self._requests.put(DatabaseRequest(future, work, argument, batch_work, durable, weight))
        if self._inline:
            self._has_started = True
            loop.call_soon(self._main)
        elif not self._has_started:
            self._has_started = True
            self._thread = threading.Thread(target=self._main, name=f"drumbeat {self._name}", daemon=True)
            self._thread.start()
        # One timer for all: the deadlines are in order.
        while deadlines and deadlines[0][1].done():
            deadlines.popleft()
        deadlines.append((loop.time() + CALL_TIMEOUT, future))
        if self._timer is None:
            self._timer = loop.call_later(CALL_TIMEOUT, self._fail_overdue)
        return future

    async def close(self) -> None:
        """Refuse new requests, process those that are queued, and end the thread. What takes too long fails."""
        self._closing = True
        if os.getpid() != self._pid:
            return
        if self._timer is not None:
            self._timer.cancel()
        if not self._has_started:
            return
        self._requests.put(None)
        if self._inline:
            self._loop.call_soon(self._main)
        self._handler.interrupt()
        await asyncio.wait([self._thread_ended], timeout=_CLOSE_TIMEOUT)
        for _, future in self._deadlines:
            if not future.done():
                future.set_exception(StoreUnavailable(f"{self._path}: the store was closed"))
        self._deadlines.clear()

    def _fail_overdue(self) -> None:
        now, deadlines = self._loop.time(), self._deadlines
        while deadlines and (deadlines[0][1].done() or deadlines[0][0] <= now):
            future = deadlines.popleft()[1]
            if not future.done():
                future.set_exception(
                    StoreUnavailable(f"{self._path}: no answer in {CALL_TIMEOUT:g} s; another process holds the lock")
                )
        # Without deadlines the next request starts the timer.
        self._timer = self._loop.call_at(deadlines[0][0], self._fail_overdue) if deadlines else None

    # On the thread; with an inline clock, a step of the loop for each request, of which the first may process them all.

    def _main(self) -> None:
        handler, requests, is_over = self._handler, self._requests, True
        try:
            while True:
                timeout = handler.idle_timeout()
                try:
                    first = requests.get(not self._inline, _LOOP_CHECK_INTERVAL if timeout is None else timeout)
                except Empty:
                    if self._inline:
                        is_over = False
                        if timeout is not None:
                            self._loop.call_later(timeout, handler.on_idle)
                        return
                    if timeout is not None:
                        handler.on_idle()
                    if self._loop.is_closed():
                        break
                    continue
                if first is None:
                    break
                group = [first]
                try:
                    results = handler.run_group(group, self._take_queued)
                except Exception as error:  # of any kind: the thread must go on, and the callers must get an answer
                    results = [(request.future, None, error) for request in group]
                deliver(self._path, results)
        finally:
            if is_over:
                handler.close()
                deliver(self._path, [(self._thread_ended, None, None)])

    def _take_queued(self, weight: int) -> RequestGroup[C]:
        """The queued requests that join a request of this weight, up to a limit: others wait for the end of the group."""
        taken: RequestGroup[C] = []
        while len(taken) < _MAX_GROUP_SIZE and weight < _MAX_GROUP_WEIGHT:
            try:
                request = self._requests.get_nowait()
            except Empty:
                break
            if request is None:
                self._requests.put(None)  # for `_main`
                break
            taken.append(request)
            weight += request.weight
        return taken


def deliver(path: Path, results: Sequence[RequestResult]) -> None:
    """Hand results to their callers, who all wait on one loop. May be called on any thread."""
    if results:
        loop = results[0][0].get_loop()
        # A loop that runs this needs no wake-up.
        call = loop.call_soon if loop is asyncio._get_running_loop() else loop.call_soon_threadsafe
        try:
            call(_set_results, path, results)
        except RuntimeError:
            pass  # the loop is closed, so no caller waits any more


def _set_results(path: Path, results: Sequence[RequestResult]) -> None:
    for future, value, error in results:
        if future.done():
            continue  # cancelled, or timed out
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(translate_error(error, path))
