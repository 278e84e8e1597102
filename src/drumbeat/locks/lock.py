"""`app.lock(...)`: a turn in the whole cluster, for tasks; `app.sync.lock(...)`: the same for threads.

Entering and leaving go by the store of the caller's own loop, so that an uncontended lock costs two round trips and no detour;
waiting and renewing is the keeper's business.
"""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from types import TracebackType
from typing import Any, TypedDict

import msgspec

from drumbeat.clock import Clock
from drumbeat.context import CURRENT
from drumbeat.durations import Duration, seconds
from drumbeat.errors import InvalidArguments, LockError, LockLost, LockTimeout, StoreUnavailable
from drumbeat.locks.keeper import Keeper
from drumbeat.locks.place import Lost, Place, Stage
from drumbeat.locks.wishes import check_limit, check_per
from drumbeat.model.lock import NewTicket, Seen, for_job
from drumbeat.names import check_name, shown
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store
from drumbeat.sync import THREAD

SHORTEST_LEASE_S = 0.3


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants of a lock. Lengths of time are seconds."""

    name: str
    limit: int
    per: float | None
    timeout: float | None
    lease: float | None
    """None: as the settings say."""
    cancel_on_loss: bool


class LockOptions(TypedDict, total=False):
    """What `app.lock` may be told."""

    limit: int
    """At most so many hold it in the whole cluster. 1 if it is not said."""
    per: Duration | None
    """Also at most `limit` starts in any span of this length, by the store's clock."""
    timeout: Duration | None
    """Wait at most so long for the turn, then LockTimeout. Not said: for ever."""
    lease: Duration | None
    """The next in line gets it when this process has been silent for so long; `lock_lease` of the settings if not said."""
    cancel_on_loss: bool
    """Cancel the block when the lock is lost, and raise LockLost. True if it is not said."""


def read_wish(name: object, options: LockOptions) -> Wish:
    """Raises:
    InvalidArguments: an option is unknown or impossible; it says what is allowed.
    """
    unknown = set(options) - set(LockOptions.__annotations__)
    if unknown:
        raise InvalidArguments(f"a lock has no option {min(unknown)!r}; use {', '.join(LockOptions.__annotations__)}")
    per, timeout, lease = options.get("per"), options.get("timeout"), options.get("lease")
    return Wish(
        name=check_name("lock", name),
        limit=check_limit(options.get("limit", 1)),
        per=None if per is None else check_per(per),
        timeout=None if timeout is None else seconds(timeout, name="timeout", error=InvalidArguments),
        lease=None if lease is None else _check_lease(lease),
        cancel_on_loss=options.get("cancel_on_loss", True),
    )


def _check_lease(lease: Duration) -> float:
    length = seconds(lease, name="lease", error=InvalidArguments)
    if length < SHORTEST_LEASE_S:
        raise InvalidArguments(f"lease must be at least {SHORTEST_LEASE_S:g} s, not {shown(lease)}", "lease")
    return length


class HeldLock:
    """What `async with app.lock(...) as lock` gives: the proof that it is held, while it is."""

    def __init__(self, place: Place, seen: Seen) -> None:
        self._place = place
        self.name = place.lock
        self.token: int = seen.token
        """Grows with each grant of the lock (with limit > 1: within its lane). Give it to the resource that the lock protects,
        and let that refuse smaller ones than it has seen."""
        self.lane: int = seen.lane
        """Which of the `limit` places this is, from 0 on."""
        self.granted_at: int = seen.granted_at or 0
        """By the store's clock, in microseconds since 1970."""

    @property
    def lost(self) -> Lost:
        """Whether it was lost meanwhile: `is_set()`, `wait(timeout)` in threads, awaitable, `reason`."""
        return self._place.lost

    def check(self) -> None:
        """Raises:
        LockLost: it is no longer ours.
        """
        reason = self._place.lost.reason
        if reason is not None:
            raise LockLost(self.name, reason)

    def __repr__(self) -> str:
        return f"<HeldLock {self.name} token={self.token}>"


class Entrance:
    """Entering and leaving: shared by tasks and threads."""

    def __init__(
        self,
        wish: Wish,
        keeper: Keeper,
        store: Callable[[], Coroutine[Any, Any, Store]],
        settings: Callable[[], Settings],
        clock: Clock,
    ) -> None:
        self.wish = wish
        self.keeper = keeper
        self.clock = clock
        self._store = store
        self._settings = settings

    def new_place(self, owner: object, loop: asyncio.AbstractEventLoop) -> Place:
        """Raises:
        LockReentered: this task or thread has it already.
        """
        lease = self._settings().lock_lease if self.wish.lease is None else self.wish.lease
        place = Place(self.wish.name, lease, owner, self.clock, loop)
        self.keeper.books.add(place)
        return place

    async def enter(self, place: Place, what: str) -> HeldLock:
        """Wait for the turn."""
        try:
            wake = await self.keeper.ready()
            store = await self._store()
            place.ticket = self._ticket(place, what, wake)
            asked_at = self.clock.monotonic()
            seen = await store.locks.enter(place.ticket)
            self.keeper.entered(place, seen, asked_at)
            if place.stage is not Stage.HOLDING:
                seen = await self._turn(place)
            return HeldLock(place, seen)
        except BaseException:  # cancelled, out of time, or without a store: the line goes on without us
            self.keeper.give_up(place)
            raise

    async def leave(self, place: Place, *, waits: bool = True) -> None:
        if place.pid != os.getpid():
            return  # a forked child must not leave for its parent
        if not waits:
            self.keeper.give_up(place)  # a lock is often lost because the store is away
        if not self.keeper.books.remove(place):
            return
        try:
            store = await self._store()
            await store.locks.leave([place.id])
        except StoreUnavailable:
            self.keeper.leave(place)  # it goes on trying; the work under the lock is done
        except asyncio.CancelledError:
            self.keeper.leave(place)
            raise

    async def _turn(self, place: Place) -> Seen:
        if self.wish.timeout is None:
            return await place.turn
        timer = self.clock.later(self.wish.timeout, lambda: self._give_up(place))
        try:
            return await place.turn
        finally:
            timer.cancel()

    def _give_up(self, place: Place) -> None:
        if not place.turn.done():
            place.turn.set_exception(LockTimeout(self.wish.name, self.wish.timeout or 0))

    def _ticket(self, place: Place, what: str, wake: str | None) -> NewTicket:
        wish = self.wish
        return NewTicket(
            id=place.id,
            lock=wish.name,
            limit=wish.limit,
            per=None if wish.per is None else round(wish.per * 1_000_000),
            lease=round(place.lease * 1_000_000),
            owner=f"{self._settings().name} {_host()}:{os.getpid()}",
            what=what,
            wake=wake,
        )


class GlobalLock:
    """What `app.lock` gives. It may be kept and entered again, also by several tasks at once."""

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance
        self._bodies: dict[object, _Body] = {}

    async def __aenter__(self) -> HeldLock:
        task = asyncio.current_task()
        assert task is not None
        place = self._entrance.new_place(task, asyncio.get_running_loop())
        held = await self._entrance.enter(place, what_runs_here())
        body = self._bodies[task] = _Body(place, task)
        if self._entrance.wish.cancel_on_loss:
            place.lost.call(body.interrupt)
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body = self._body()
        reason = body.end()
        if body.was_cancelled:
            ours = body.task.uncancel() <= body.cancelling
            if kind is None or not issubclass(kind, asyncio.CancelledError):
                # The body ended before it noticed: the cancellation would hit what comes after it.
                with contextlib.suppress(asyncio.CancelledError):
                    await self._entrance.clock.sleep(0)
            elif ours:
                kind = None
        await self._entrance.leave(body.place, waits=reason is None)
        if reason is not None and kind is None and self._entrance.wish.cancel_on_loss:
            raise LockLost(body.place.lock, reason) from error

    def _body(self) -> "_Body":
        task: object = asyncio.current_task()
        if task not in self._bodies:
            # Left by another task than the one that entered, as fixtures and exit stacks do: fine if only one can be meant.
            if len(self._bodies) != 1:
                raise LockError(
                    self._entrance.wish.name, "is not held by this task or thread: leave it where it was entered"
                )
            [task] = self._bodies
        return self._bodies.pop(task)


class _Body:
    """The block under the lock: cancelled when the lock is lost."""

    def __init__(self, place: Place, task: "asyncio.Task[Any]") -> None:
        self.place = place
        self.task = task
        self.cancelling = task.cancelling()
        self.was_cancelled = False
        self._is_inside = True

    def interrupt(self) -> None:
        """The lock is lost; told by any thread."""
        with contextlib.suppress(RuntimeError):  # that loop is closed
            self.place.loop.call_soon_threadsafe(self._cancel)

    def end(self) -> str | None:
        """It is left. Gives why the lock was lost, if it was."""
        self._is_inside = False
        return self.place.lost.reason

    def _cancel(self) -> None:
        if self._is_inside:
            self.was_cancelled = self.task.cancel(f"lock {self.place.lock!r} was lost")


class SyncLock:
    """What `app.sync.lock` gives: for threads without a loop. Nothing can cancel a thread: ask `lock.check()` or `lock.lost`
    in between; a lock that was lost is told at the end of the block."""

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance
        self._places: dict[int, Place] = {}

    def __enter__(self) -> HeldLock:
        owner, what, entered = threading.get_ident(), what_runs_here(), list[Place]()

        async def enter() -> HeldLock:
            entered.append(self._entrance.new_place(owner, asyncio.get_running_loop()))
            return await self._entrance.enter(entered[0], what)

        try:
            held = THREAD.call("app.sync.lock", enter())
        except BaseException:  # Ctrl-C may come when it has just been granted
            for place in entered:
                self._entrance.keeper.give_up(place)
            raise
        self._places[owner] = entered[0]
        return held

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        place = self._places.pop(threading.get_ident())
        reason = place.lost.reason
        THREAD.call("app.sync.lock", self._entrance.leave(place, waits=reason is None))
        if reason is not None and kind is None and self._entrance.wish.cancel_on_loss:
            raise LockLost(place.lock, reason)


def what_runs_here() -> str:
    """For people who look at a lock: the job, or nothing."""
    job = CURRENT.get(None)
    return "" if job is None else for_job(job.id)


@cache
def _host() -> str:
    return socket.gethostname()
