"""Locks within one process: the same meaning as `app.lock`, without a store, and so without leases and tokens.

    enter --room, and nobody waits--> holds --leave--> the next in line holds
      \\--else--> waits in line --one callback--> holds

A line belongs to a name and is shared by all threads and event loops of the process. Whoever leaves finds the next and hands
over: a future of the next one's loop is done, or its thread's gate is opened. With `per`, starts are remembered for that long;
the first in line knows the moment at which the window has room and looks again then. A start counts from the moment at which
the holder really goes on, not from the one at which it was told, so that a busy loop cannot bunch starts together.

One mutex guards all lines. It is held for a few microseconds and never while anything waits.
"""

import asyncio
import math
import os
import threading
from asyncio import AbstractEventLoop, Future, TimerHandle
from collections import OrderedDict, deque
from types import TracebackType

from drumbeat.clock import SYSTEM
from drumbeat.durations import Duration, seconds
from drumbeat.errors import InvalidArguments, LockError, LockReentered, LockTimeout, WrongContext
from drumbeat.names import check_name, shown

MOST = 10_000
"""The highest limit."""
_SLICE_S = 0.5  # a signal that arrives just before a thread blocks on a lock does not wake it
_NOT_STARTED = math.inf
_NEVER = math.inf
_now = SYSTEM.monotonic


def local_lock(
    name: str, *, limit: int = 1, per: Duration | None = None, timeout: Duration | None = None
) -> "LocalLock":
    """A lock within this process: `async with local_lock("edgar"): ...`, or `with` in a thread without a loop.

    At most `limit` hold it at the same time, first come, first served. With `per` there are also at most `limit` starts in any
    span of that length. Where two callers name different limits, the newest counts. What it gives may be kept and entered
    again, also by several tasks at once.

    Raises, on entering:
        LockTimeout: the turn did not come within `timeout`.
        LockReentered: this task or thread has it already.
    """
    if name not in _lines:
        check_name("lock", name)
    return LocalLock(
        name,
        check_limit(limit),
        None if per is None else check_per(per),
        None if timeout is None else _length(timeout, "timeout"),
    )


def check_limit(limit: object) -> int:
    """How many may hold a lock."""
    if type(limit) is int and 1 <= limit <= MOST:
        return limit
    raise InvalidArguments(f"limit must be a whole number from 1 to {MOST}, not {shown(limit)}", "limit")


def check_per(per: Duration) -> float:
    """The length of a rate window, in seconds."""
    length = _length(per, "per")
    if length < 0.001:
        raise InvalidArguments(f"per must be at least 1 ms, not {shown(per)}", "per")
    return length


def _length(value: Duration, name: str) -> float:
    # `seconds` reckons in fractions, which takes longer than the whole lock.
    if type(value) is float and 0 <= value <= 1e9:
        return value
    return seconds(value, name=name, error=InvalidArguments)


class LocalLock:
    """What `local_lock` gives."""

    __slots__ = ("_limit", "_name", "_per", "_timeout")

    def __init__(self, name: str, limit: int, per: float | None, timeout: float | None) -> None:
        self._name = name
        self._limit = limit
        self._per = per
        self._timeout = timeout

    async def __aenter__(self) -> None:
        owner = asyncio.current_task()
        with _mutex:
            line = self._line()
            if line.take(owner, self):
                return
            if self._timeout == 0:
                raise LockTimeout(self._name, 0)
            waiter = _LoopWaiter(owner, self, asyncio.get_running_loop())
            line.join(waiter)
        await self._turn(line, waiter)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(asyncio.current_task())

    def __enter__(self) -> None:
        if asyncio._get_running_loop() is not None:
            raise WrongContext("`with local_lock`", "`async with`", loop_runs=True)
        owner = threading.get_ident()
        with _mutex:
            line = self._line()
            if line.take(owner, self):
                return
            if self._timeout == 0:
                raise LockTimeout(self._name, 0)
            waiter = _ThreadWaiter(owner, self)
            line.join(waiter)
        self._turn_of_thread(line, waiter)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(threading.get_ident())

    def _line(self) -> "_Line":
        line = _lines.get(self._name)
        if line is None:
            line = _new_line(self._name)
        line.limit = self._limit
        line.per = self._per
        return line

    async def _turn(self, line: "_Line", waiter: "_LoopWaiter") -> None:
        timer = None if self._timeout is None else waiter.loop.call_later(self._timeout, self._give_up, line, waiter)
        try:
            await waiter.future
        except BaseException:  # cancelled, or out of time: the line goes on without us
            with _mutex:
                line.quit(waiter)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if waiter.start is not None:
            with _mutex:
                line.begin(waiter.start)

    def _give_up(self, line: "_Line", waiter: "_LoopWaiter") -> None:
        with _mutex:
            if waiter not in line.waiters or waiter.future.done():
                return
            line.quit(waiter)
        waiter.future.set_exception(LockTimeout(self._name, self._timeout or 0))

    def _turn_of_thread(self, line: "_Line", waiter: "_ThreadWaiter") -> None:
        deadline = _NEVER if self._timeout is None else _now() + self._timeout
        try:
            while not self._is_served(line, waiter):
                if _now() >= deadline:
                    raise LockTimeout(self._name, self._timeout or 0)
                until = min(deadline, waiter.look_at) - _now()
                waiter.gate.acquire(timeout=max(0.0, min(until, _SLICE_S)))
        except BaseException:  # out of time, or Ctrl-C
            with _mutex:
                line.quit(waiter)
            raise
        if waiter.start is not None:
            with _mutex:
                line.begin(waiter.start)

    def _is_served(self, line: "_Line", waiter: "_Waiter") -> bool:
        with _mutex:
            if not waiter.granted and _now() >= waiter.look_at:
                waiter.look_at = _NEVER
                line.serve()
            return waiter.granted

    def _leave(self, owner: object) -> None:
        with _mutex:
            line = _lines.get(self._name)
            if line is None or line.holders.get(owner) is not self:
                owner = self._only_owner(line)
            assert line is not None
            line.release(owner)

    def _only_owner(self, line: "_Line | None") -> object:
        """Left by another task than the one that entered, as fixtures and exit stacks do: fine if only one can be meant."""
        owners = [] if line is None else [owner for owner, lock in line.holders.items() if lock is self]
        if len(owners) != 1:
            raise LockError(self._name, "is not held by this task or thread: leave it where it was entered")
        return owners[0]


class _Start:
    """One start in a rate window."""

    __slots__ = ("at",)

    def __init__(self, at: float) -> None:
        self.at = at


class _Waiter:
    """Somebody in line. Methods are called with the mutex held, by any thread."""

    __slots__ = ("granted", "lock", "look_at", "owner", "start")

    def __init__(self, owner: object, lock: LocalLock) -> None:
        self.owner = owner
        self.lock = lock
        self.granted = False
        self.look_at = _NEVER
        self.start: _Start | None = None

    def wake(self) -> bool:
        """Tell that it holds now. False if there is nobody any more who could be told."""
        raise NotImplementedError

    def alarm(self, line: "_Line", at: float) -> None:
        """Have it look again at this moment."""
        raise NotImplementedError


class _LoopWaiter(_Waiter):
    __slots__ = ("future", "loop", "timer")

    def __init__(self, owner: object, lock: LocalLock, loop: AbstractEventLoop) -> None:
        super().__init__(owner, lock)
        self.loop = loop
        self.future: Future[None] = loop.create_future()
        self.timer: TimerHandle | None = None

    def wake(self) -> bool:
        if asyncio._get_running_loop() is self.loop:
            self._finish()
            return True
        try:
            self.loop.call_soon_threadsafe(self._finish)
        except RuntimeError:  # its loop was closed under it
            return False
        return True

    def alarm(self, line: "_Line", at: float) -> None:
        if at == self.look_at:
            return
        self.look_at = at
        try:
            if asyncio._get_running_loop() is self.loop:
                self._set_timer(line)
            else:
                self.loop.call_soon_threadsafe(self._set_timer, line)
        except RuntimeError:
            line.waiters.pop(self, None)
            line.serve()

    def _finish(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def _set_timer(self, line: "_Line") -> None:
        self.loop.call_later(max(0.0, self.look_at - _now()), self._look, line)

    def _look(self, line: "_Line") -> None:
        with _mutex:
            self.look_at = _NEVER
            line.serve()


class _ThreadWaiter(_Waiter):
    __slots__ = ("gate",)

    def __init__(self, owner: object, lock: LocalLock) -> None:
        super().__init__(owner, lock)
        self.gate = threading.Lock()
        self.gate.acquire()

    def wake(self) -> bool:
        self._open()
        return True

    def alarm(self, line: "_Line", at: float) -> None:
        if at != self.look_at:
            self.look_at = at
            self._open()  # it waits for the right moment by itself

    def _open(self) -> None:
        if self.gate.locked():
            self.gate.release()


class _Line:
    """All who hold or want one lock. Every method is called with the mutex held."""

    __slots__ = ("holders", "limit", "name", "per", "starts", "waiters")

    def __init__(self, name: str) -> None:
        self.name = name
        self.limit = 1
        self.per: float | None = None
        self.holders: dict[object, LocalLock] = {}
        self.waiters: OrderedDict[_Waiter, None] = OrderedDict()
        self.starts: deque[_Start] = deque()

    def take(self, owner: object, lock: LocalLock) -> bool:
        """Hold it at once, if there is room and nobody is before us."""
        if owner in self.holders:
            raise LockReentered(self.name)
        if self.waiters or len(self.holders) >= self.limit:
            return False
        if self.per is not None:
            now = _now()
            if self._opens_at(now) > now:
                return False
            self.starts.append(_Start(now))
        self.holders[owner] = lock
        return True

    def join(self, waiter: _Waiter) -> None:
        self.waiters[waiter] = None
        if len(self.waiters) == 1:
            self.serve()

    def begin(self, start: _Start) -> None:
        """Whoever was granted this goes on now."""
        start.at = _now()
        self.serve()

    def release(self, owner: object) -> None:
        del self.holders[owner]
        if self.waiters:
            self.serve()
        elif not self.holders and not self.starts:
            _lines.pop(self.name, None)

    def quit(self, waiter: _Waiter) -> None:
        """Leave the line, or give back what was granted and never begun."""
        if waiter in self.waiters:
            del self.waiters[waiter]
            self.serve()
        elif waiter.granted:
            if waiter.start is not None:
                self.starts.remove(waiter.start)
            self.release(waiter.owner)

    def serve(self) -> None:
        """Give to the first in line whatever is free; the next one learns its moment."""
        while self.waiters and len(self.holders) < self.limit:
            waiter = next(iter(self.waiters))
            start = None
            if self.per is not None:
                now = _now()
                if (opens_at := self._opens_at(now)) > now:
                    if opens_at < _NEVER:
                        waiter.alarm(self, opens_at)
                    return
                start = _Start(_NOT_STARTED)
            del self.waiters[waiter]
            # Before it is told: another thread may go on with it at once.
            waiter.granted = True
            waiter.start = start
            if waiter.wake():
                self.holders[waiter.owner] = waiter.lock
                if start is not None:
                    self.starts.append(start)

    def _opens_at(self, now: float) -> float:
        """From when on the window has room; never, while somebody has been told to go on and has not begun."""
        assert self.per is not None
        starts = self.starts
        # Those told at the same moment may begin in another order; an older one behind a younger only stays a little longer.
        while starts and starts[0].at + self.per <= now:
            starts.popleft()
        return now if len(starts) < self.limit else starts[len(starts) - self.limit].at + self.per

    def is_idle(self) -> bool:
        if self.holders or self.waiters:
            return False
        if self.per is not None:
            self._opens_at(_now())
        return self.per is None or not self.starts


_mutex = threading.Lock()
_lines: dict[str, _Line] = {}
_sweep_at = 256


def _new_line(name: str) -> _Line:
    global _sweep_at
    if len(_lines) >= _sweep_at:
        # Lines with a window outlive their last holder: remove those whose window is empty by now.
        for idle in [each.name for each in _lines.values() if each.is_idle()]:
            del _lines[idle]
        _sweep_at = max(256, 2 * len(_lines))
    line = _lines[name] = _Line(name)
    return line


def _begin_anew() -> None:
    """In a forked child: of all threads and tasks only the one that forked is here, with what it holds."""
    global _mutex
    _mutex = threading.Lock()
    task = None if asyncio._get_running_loop() is None else asyncio.current_task()
    for line in list(_lines.values()):
        line.waiters.clear()
        line.holders = {
            owner: lock for owner, lock in line.holders.items() if owner == threading.get_ident() or owner is task
        }


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
