"""The lines of local locks: who holds and who waits, and what is given to whom. No loop, and nothing that waits.

Whoever leaves finds the next and hands over; how somebody in line is told is its own business (`waiters.py`). With `per`,
starts are remembered for that long; the first in line learns the moment at which the window has room. A start counts from the
moment at which the holder really goes on, not from the one at which it was told, so that a busy loop cannot bunch starts.

One mutex guards all lines. It is held for a few microseconds and never while anything waits.
"""

import asyncio
import math
import os
import threading
from collections import OrderedDict, deque
from typing import Protocol

from drumbeat.clock import SYSTEM
from drumbeat.errors import LockReentered

NEVER = math.inf
now = SYSTEM.monotonic
_NOT_STARTED = math.inf


class WindowStart:
    """One start in a rate window."""

    __slots__ = ("at",)

    def __init__(self, at: float) -> None:
        self.at = at


class LocalWaiter(Protocol):
    """Somebody in line. Methods are called with the mutex held, by any thread."""

    owner: object
    """The task or thread."""
    lock: object
    """By which of the locks of this name it came."""
    granted: bool
    start: WindowStart | None

    def wake(self) -> bool:
        """Tell that it holds now. False if there is nobody any more who could be told."""
        ...

    def check_again_at(self, queue: "LocalQueue", at: float) -> None:
        """Have it look again at this moment."""
        ...


class LocalQueue:
    """All who hold or want one lock. Every method is called with the mutex held."""

    __slots__ = ("holders", "limit", "name", "per", "starts", "waiters")

    def __init__(self, name: str) -> None:
        self.name = name
        self.limit = 1
        self.per: float | None = None
        self.holders: dict[object, object] = {}
        """Owners, and the locks by which they came."""
        self.waiters: OrderedDict[LocalWaiter, None] = OrderedDict()
        self.starts: deque[WindowStart] = deque()

    def try_acquire(self, owner: object, lock: object) -> bool:
        """Hold it at once, if there is room and nobody is before us.

        Raises:
            LockReentered: this owner has it already.
        """
        if owner in self.holders:
            raise LockReentered(self.name)
        if self.waiters or len(self.holders) >= self.limit:
            return False
        if self.per is not None:
            moment = now()
            if self._window_opens_at(moment) > moment:
                return False
            self.starts.append(WindowStart(moment))
        self.holders[owner] = lock
        return True

    def add_waiter(self, waiter: LocalWaiter) -> None:
        self.waiters[waiter] = None
        if len(self.waiters) == 1:
            self.grant_next()

    def start_now(self, start: WindowStart) -> None:
        """Whoever was granted this goes on now."""
        start.at = now()
        self.grant_next()

    def release(self, owner: object) -> None:
        del self.holders[owner]
        if self.waiters:
            self.grant_next()
        elif not self.holders and not self.starts:
            LOCAL_QUEUES.by_name.pop(self.name, None)

    def cancel(self, waiter: LocalWaiter) -> None:
        """Leave the line, or give back what was granted and never begun."""
        if waiter in self.waiters:
            del self.waiters[waiter]
            self.grant_next()
        elif waiter.granted:
            if waiter.start is not None:
                self.starts.remove(waiter.start)
            self.release(waiter.owner)

    def grant_next(self) -> None:
        """Give to the first in line whatever is free; the next one learns its moment."""
        while self.waiters and len(self.holders) < self.limit:
            waiter = next(iter(self.waiters))
            start = None
            if self.per is not None:
                moment = now()
                if (opens_at := self._window_opens_at(moment)) > moment:
                    if opens_at < NEVER:
                        waiter.check_again_at(self, opens_at)
                    return
                start = WindowStart(_NOT_STARTED)
            del self.waiters[waiter]
            # Before it is told: another thread may go on with it at once.
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
        """From when on the window has room; never, while somebody has been told to go on and has not begun."""
        assert self.per is not None
        starts = self.starts
        # Those told at the same moment may begin in another order; an older one behind a younger only stays a little longer.
        while starts and starts[0].at + self.per <= at:
            starts.popleft()
        return at if len(starts) < self.limit else starts[len(starts) - self.limit].at + self.per


class LocalQueues:
    """Those of this process, by name. They are there only while somebody holds or waits, or a window counts."""

    __slots__ = ("_sweep_at", "by_name", "mutex")

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.by_name: dict[str, LocalQueue] = {}
        self._sweep_at = 256

    def create(self, name: str) -> LocalQueue:
        """With the mutex held."""
        if len(self.by_name) >= self._sweep_at:
            # Lines with a window outlive their last holder: remove those whose window is empty by now.
            for idle in [each.name for each in self.by_name.values() if each.is_idle()]:
                del self.by_name[idle]
            self._sweep_at = max(256, 2 * len(self.by_name))
        line = self.by_name[name] = LocalQueue(name)
        return line

    def reset_after_fork(self) -> None:
        """In a forked child: of all threads and tasks only the one that forked is here, with what it holds."""
        self.mutex = threading.Lock()
        task = None if asyncio._get_running_loop() is None else asyncio.current_task()
        for line in list(self.by_name.values()):
            line.waiters.clear()
            line.holders = {
                owner: lock for owner, lock in line.holders.items() if owner == threading.get_ident() or owner is task
            }


LOCAL_QUEUES = LocalQueues()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LOCAL_QUEUES.reset_after_fork)
