"""Locks within one process: as `app.lock`, but without a store, and so without leases and tokens.

    acquire --free, no waiters--> held --release--> granted to the next waiter
      \\--else--> waits --one callback--> held

Each name has one queue, shared by all threads and event loops of the process: `local_queue.py`.
"""

import asyncio
import threading

from drumbeat.durations import Duration
from drumbeat.errors import LockError, LockTimeout, WrongContext
from drumbeat.locks.local_queue import LOCAL_QUEUES, NEVER, LocalQueue, LocalWaiter, LoopWaiter, ThreadWaiter, now
from drumbeat.locks.lock_client import check_duration, check_limit, check_per
from drumbeat.names import check_name

_WAIT_SLICE_S = 0.5  # a signal that arrives just before a thread blocks on a lock does not wake it


def local_lock(
    name: str, *, limit: int = 1, per: Duration | None = None, timeout: Duration | None = None
) -> "LocalLock":
    """A lock within this process: `async with local_lock("edgar"): ...`, or `with` in a thread without a loop.

    At most `limit` hold it at the same time, first come, first served. With `per` there are also at most `limit` starts in any
    window of that length. If callers name different limits, the newest counts. The object may be kept and entered again, also
    by several tasks at once.

    Raises, on entering:
        LockTimeout: it was not granted within `timeout`.
        LockReentered: this task or thread already holds it.
    """
    if name not in LOCAL_QUEUES.by_name:
        check_name("lock", name)
    return LocalLock(
        name,
        check_limit(limit),
        None if per is None else check_per(per),
        None if timeout is None else check_duration(timeout, "timeout"),
    )


class LocalLock:
    """The type of `local_lock(...)`."""

    __slots__ = ("_limit", "_name", "_per", "_timeout")

    def __init__(self, name: str, limit: int, per: float | None, timeout: float | None) -> None:
        self._name = name
        self._limit = limit
        self._per = per
        self._timeout = timeout

    async def __aenter__(self) -> None:
        owner = asyncio.current_task()
        with LOCAL_QUEUES.mutex:
            queue = self._get_queue()
            if queue.try_acquire(owner, self):
                return
            waiter = LoopWaiter(owner, self, asyncio.get_running_loop())
            self._add_waiter(queue, waiter)
        await self._wait_for_grant(queue, waiter)

    async def __aexit__(self, *_: object) -> None:
        self._release(asyncio.current_task())

    def __enter__(self) -> None:
        if asyncio._get_running_loop() is not None:
            raise WrongContext("`with local_lock`", "`async with`", loop_runs=True)
        owner = threading.get_ident()
        with LOCAL_QUEUES.mutex:
            queue = self._get_queue()
            if queue.try_acquire(owner, self):
                return
            waiter = ThreadWaiter(owner, self)
            self._add_waiter(queue, waiter)
        self._wait_in_thread(queue, waiter)

    def __exit__(self, *_: object) -> None:
        self._release(threading.get_ident())

    def _get_queue(self) -> LocalQueue:
        queue = LOCAL_QUEUES.by_name.get(self._name)
        if queue is None:
            queue = LOCAL_QUEUES.create(self._name)
        queue.limit = self._limit
        queue.per = self._per
        return queue

    def _add_waiter(self, queue: LocalQueue, waiter: LocalWaiter) -> None:
        if self._timeout == 0:
            raise LockTimeout(self._name, 0)
        queue.add_waiter(waiter)

    async def _wait_for_grant(self, queue: LocalQueue, waiter: LoopWaiter) -> None:
        timer = None if self._timeout is None else waiter.loop.call_later(self._timeout, self._time_out, queue, waiter)
        try:
            await waiter.future
        except BaseException:  # cancelled or timed out: do not hold up the next waiter
            with LOCAL_QUEUES.mutex:
                queue.cancel(waiter)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if waiter.start is not None:
            with LOCAL_QUEUES.mutex:
                queue.start_now(waiter.start)

    def _time_out(self, queue: LocalQueue, waiter: LoopWaiter) -> None:
        with LOCAL_QUEUES.mutex:
            if waiter not in queue.waiters or waiter.future.done():
                return
            queue.cancel(waiter)
        waiter.future.set_exception(LockTimeout(self._name, self._timeout or 0))

    def _wait_in_thread(self, queue: LocalQueue, waiter: ThreadWaiter) -> None:
        deadline = NEVER if self._timeout is None else now() + self._timeout
        try:
            while not waiter.check_granted(queue):
                if now() >= deadline:
                    raise LockTimeout(self._name, self._timeout or 0)
                until = min(deadline, waiter.check_at) - now()
                waiter.gate.acquire(timeout=max(0.0, min(until, _WAIT_SLICE_S)))
        except BaseException:  # timed out, or Ctrl-C
            with LOCAL_QUEUES.mutex:
                queue.cancel(waiter)
            raise
        if waiter.start is not None:
            with LOCAL_QUEUES.mutex:
                queue.start_now(waiter.start)

    def _release(self, owner: object) -> None:
        with LOCAL_QUEUES.mutex:
            queue = LOCAL_QUEUES.by_name.get(self._name)
            if queue is None or queue.holders.get(owner) is not self:
                owner = self._find_only_owner(queue)
            assert queue is not None
            queue.release(owner)

    def _find_only_owner(self, queue: LocalQueue | None) -> object:
        """Released by another task, as fixtures and exit stacks do: fine if there is only one holder."""
        owners = [] if queue is None else [owner for owner, lock in queue.holders.items() if lock is self]
        if len(owners) != 1:
            raise LockError(self._name, "is not held by this task or thread: leave it where it was entered")
        return owners[0]
