"""Queues of local locks: who holds a lock, who waits for it, and who gets it next.

A waiter is a task, woken through a future of its loop, or a thread, woken through its gate. Whoever releases a lock grants it
to the next waiter. With `per`, starts are remembered for that long, and the first waiter learns when the window opens. A start
counts from when the holder really goes on, not from when it was woken, so that a busy loop cannot bunch starts.

One mutex guards all queues. It is held for a few microseconds, and never while anything waits.
"""

from __future__ import annotations

import asyncio
import math
import threading
from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop, Future
from collections import OrderedDict, deque

from drumbeat.clock import SYSTEM
from drumbeat.errors import LockReentered
from drumbeat.fork import reset_in_child

NEVER = math.inf
now = SYSTEM.monotonic
_NOT_STARTED = math.inf


class WindowStart:
    """One start in a rate window."""

    __slots__ = ("at",)

    def __init__(self, at: float) -> None:
        self.at = at


class LocalWaiter(ABC):
    """A task or thread in the queue. Methods are called with the mutex held, in any thread."""

    __slots__ = ("check_at", "granted", "lock", "owner", "start")

    def __init__(self, owner: object, lock: object) -> None:
        self.owner = owner
        self.lock = lock
        """The LocalLock object that it was acquired by."""
        self.granted = False
        self.check_at = NEVER
        """When the rate window may open for it."""
        self.start: WindowStart | None = None

    @abstractmethod
    def wake(self) -> bool:
        """Tell it that it holds the lock now. False if its loop is closed."""

    @abstractmethod
    def check_again_at(self, queue: LocalQueue, at: float) -> None:
        """Have it check again at this time."""


class LocalQueue:
    """The holders and waiters of one lock. Every method is called with the mutex held."""

    __slots__ = ("holders", "limit", "name", "per", "starts", "waiters")

    def __init__(self, name: str) -> None:
        self.name = name
        self.limit = 1
        self.per: float | None = None
        self.holders: dict[object, object] = {}
        """From the owner to the LocalLock object that it acquired."""
        self.waiters: OrderedDict[LocalWaiter, None] = OrderedDict()
        self.starts: deque[WindowStart] = deque()

    def try_acquire(self, owner: object, lock: object) -> bool:
        """Acquire it at once, if it is free and has no waiters.

        Raises:
            LockReentered: this owner already holds it.
        """
        if owner in self.holders:
            raise LockReentered(self.name)
        if self.waiters or len(self.holders) >= self.limit:
            return False
        if self.per is not None:
            at = now()
            if self._window_opens_at(at) > at:
                return False
            self.starts.append(WindowStart(at))
        self.holders[owner] = lock
        return True

    def add_waiter(self, waiter: LocalWaiter) -> None:
        self.waiters[waiter] = None
        if len(self.waiters) == 1:
            self.grant_next()

    def start_now(self, start: WindowStart) -> None:
        """The holder goes on now."""
        start.at = now()
        self.grant_next()

    def release(self, owner: object) -> None:
        del self.holders[owner]
        if self.waiters:
            self.grant_next()
        elif not self.holders and not self.starts:
            LOCAL_QUEUES.by_name.pop(self.name, None)

    def cancel(self, waiter: LocalWaiter) -> None:
        """Remove a waiter, or release what was granted to it but never started."""
        if waiter in self.waiters:
            del self.waiters[waiter]
            self.grant_next()
        elif waiter.granted:
            if waiter.start is not None:
                self.starts.remove(waiter.start)
            self.release(waiter.owner)

    def grant_next(self) -> None:
        """Grant the free slots to the first waiters; the next one learns when the window opens."""
        while self.waiters and len(self.holders) < self.limit:
            waiter = next(iter(self.waiters))
            start = None
            if self.per is not None:
                at = now()
                if (opens_at := self._window_opens_at(at)) > at:
                    if opens_at < NEVER:
                        waiter.check_again_at(self, opens_at)
                    return
                start = WindowStart(_NOT_STARTED)
            del self.waiters[waiter]
            # Before it is woken: another thread may go on with it at once.
            waiter.granted = True
            waiter.start = start
            if waiter.wake():
                self.holders[waiter.owner] = waiter.lock
                if start is not None:
                    self.starts.append(start)

    def is_idle(self) -> bool:
        if self.holders or self.waiters:
            return False
        if self.per is not None:
            self._window_opens_at(now())
        return self.per is None or not self.starts

    def _window_opens_at(self, at: float) -> float:
        """When the window opens; never, while a woken holder has not started yet."""
        assert self.per is not None
        starts = self.starts
        # Holders woken together may start in another order; an older start behind a younger one only stays a little longer.
        while starts and starts[0].at + self.per <= at:
            starts.popleft()
        return at if len(starts) < self.limit else starts[len(starts) - self.limit].at + self.per


class LocalQueues:
    """The queues of this process, by name. A queue exists only while it has holders, waiters or starts in its window."""

    __slots__ = ("__weakref__", "_sweep_at", "by_name", "mutex")

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.by_name: dict[str, LocalQueue] = {}
        self._sweep_at = 256

    def create(self, name: str) -> LocalQueue:
        """With the mutex held."""
        if len(self.by_name) >= self._sweep_at:
            # Queues with a window outlive their last holder: remove those whose window is empty by now.
            for idle in [each.name for each in self.by_name.values() if each.is_idle()]:
                del self.by_name[idle]
            self._sweep_at = max(256, 2 * len(self.by_name))
        queue = self.by_name[name] = LocalQueue(name)
        return queue

    def reset_after_fork(self) -> None:
        """A forked child has only the thread and task that forked, with what it holds."""
        self.mutex = threading.Lock()
        task = None if asyncio._get_running_loop() is None else asyncio.current_task()
        for queue in list(self.by_name.values()):
            queue.waiters.clear()
            queue.holders = {
                owner: lock for owner, lock in queue.holders.items() if owner == threading.get_ident() or owner is task
            }


LOCAL_QUEUES = LocalQueues()
reset_in_child(LOCAL_QUEUES)


class LoopWaiter(LocalWaiter):
    __slots__ = ("future", "loop")

    def __init__(self, owner: object, lock: object, loop: AbstractEventLoop) -> None:
        super().__init__(owner, lock)
        self.loop = loop
        self.future: Future[None] = loop.create_future()

    def wake(self) -> bool:
        if asyncio._get_running_loop() is self.loop:
            self._finish()
            return True
        try:
            self.loop.call_soon_threadsafe(self._finish)
        except RuntimeError:  # its loop is closed
            return False
        return True

    def check_again_at(self, queue: LocalQueue, at: float) -> None:
        if at == self.check_at:
            return
        self.check_at = at
        try:
            if asyncio._get_running_loop() is self.loop:
                self._set_timer(queue)
            else:
                self.loop.call_soon_threadsafe(self._set_timer, queue)
        except RuntimeError:
            queue.waiters.pop(self, None)
            queue.grant_next()

    def _finish(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def _set_timer(self, queue: LocalQueue) -> None:
        self.loop.call_later(max(0.0, self.check_at - now()), self._check, queue)

    def _check(self, queue: LocalQueue) -> None:
        with LOCAL_QUEUES.mutex:
            self.check_at = NEVER
            queue.grant_next()


class ThreadWaiter(LocalWaiter):
    __slots__ = ("gate",)

    def __init__(self, owner: object, lock: object) -> None:
        super().__init__(owner, lock)
        self.gate = threading.Lock()
        self.gate.acquire()

    def wake(self) -> bool:
        self._open_gate()
        return True

    def check_again_at(self, queue: LocalQueue, at: float) -> None:
        if at != self.check_at:
            self.check_at = at
            self._open_gate()  # it computes its own timeout

    def check_granted(self, queue: LocalQueue) -> bool:
        """Whether it was granted; called by the thread itself, without the mutex. Checks the window if it is time."""
        with LOCAL_QUEUES.mutex:
            if not self.granted and now() >= self.check_at:
                self.check_at = NEVER
                queue.grant_next()
            return self.granted

    def _open_gate(self) -> None:
        if self.gate.locked():
            self.gate.release()
