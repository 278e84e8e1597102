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
from drumbeat.context import CURRENT_JOB
from drumbeat.core.lock import NewTicket, TicketStatus, describe_job
from drumbeat.durations import Duration, seconds
from drumbeat.errors import InvalidArguments, LockError, LockLost, LockTimeout, StoreUnavailable
from drumbeat.locks.lease_keeper import LeaseKeeper
from drumbeat.locks.option_checks import check_limit, check_per
from drumbeat.locks.ticket import LossSignal, Ticket, TicketStage
from drumbeat.names import check_name, short_repr
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store
from drumbeat.sync_loop import SYNC_LOOP

MIN_LEASE_S = 0.3


class LockRequest(msgspec.Struct, frozen=True, kw_only=True):
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


def parse_options(name: object, options: LockOptions) -> LockRequest:
    """Raises:
    InvalidArguments: an option is unknown or impossible; it says what is allowed.
    """
    unknown = set(options) - set(LockOptions.__annotations__)
    if unknown:
        raise InvalidArguments(f"a lock has no option {min(unknown)!r}; use {', '.join(LockOptions.__annotations__)}")
    per, timeout, lease = options.get("per"), options.get("timeout"), options.get("lease")
    return LockRequest(
        name=check_name("lock", name),
        limit=check_limit(options.get("limit", 1)),
        per=None if per is None else check_per(per),
        timeout=None if timeout is None else seconds(timeout, name="timeout", error=InvalidArguments),
        lease=None if lease is None else _check_lease(lease),
        cancel_on_loss=options.get("cancel_on_loss", True),
    )


def _check_lease(lease: Duration) -> float:
    length = seconds(lease, name="lease", error=InvalidArguments)
    if length < MIN_LEASE_S:
        raise InvalidArguments(f"lease must be at least {MIN_LEASE_S:g} s, not {short_repr(lease)}", "lease")
    return length


class HeldLock:
    """What `async with app.lock(...) as lock` gives: the proof that it is held, while it is."""

    def __init__(self, ticket: Ticket, status: TicketStatus) -> None:
        self._ticket = ticket
        self.name = ticket.lock
        self.token: int = status.token
        """Grows with each grant of the lock (with limit > 1: within its lane). Give it to the resource that the lock protects,
        and let that refuse smaller ones than it has seen."""
        self.lane: int = status.lane
        """Which of the `limit` places this is, from 0 on."""
        self.granted_at: int = status.granted_at or 0
        """By the store's clock, in microseconds since 1970."""

    @property
    def lost(self) -> LossSignal:
        """Whether it was lost meanwhile: `is_set()`, `wait(timeout)` in threads, awaitable, `reason`."""
        return self._ticket.lost

    def check(self) -> None:
        """Raises:
        LockLost: it is no longer ours.
        """
        reason = self._ticket.lost.reason
        if reason is not None:
            raise LockLost(self.name, reason)

    def __repr__(self) -> str:
        return f"<HeldLock {self.name} token={self.token}>"


class LockClient:
    """Entering and leaving: shared by tasks and threads."""

    def __init__(
        self,
        request: LockRequest,
        keeper: LeaseKeeper,
        store: Callable[[], Coroutine[Any, Any, Store]],
        settings: Callable[[], Settings],
        clock: Clock,
    ) -> None:
        self.request = request
        self.keeper = keeper
        self.clock = clock
        self._store = store
        self._settings = settings

    def new_ticket(self, owner: object, loop: asyncio.AbstractEventLoop) -> Ticket:
        """Raises:
        LockReentered: this task or thread has it already.
        """
        lease = self._settings().lock_lease if self.request.lease is None else self.request.lease
        place = Ticket(self.request.name, lease, owner, self.clock, loop)
        self.keeper.table.add(place)
        return place

    async def acquire(self, ticket: Ticket, label: str) -> HeldLock:
        """Wait for the turn."""
        try:
            wake = await self.keeper.ensure_running()
            store = await self._store()
            ticket.request = self._build_request(ticket, label, wake)
            asked_at = self.clock.monotonic()
            seen = await store.locks.acquire(ticket.request)
            self.keeper.record_acquire(ticket, seen, asked_at)
            if ticket.stage is not TicketStage.HELD:
                seen = await self._wait_for_grant(ticket)
            return HeldLock(ticket, seen)
        except BaseException:  # cancelled, out of time, or without a store: the line goes on without us
            self.keeper.abandon(ticket)
            raise

    async def release(self, ticket: Ticket, *, wait: bool = True) -> None:
        if ticket.pid != os.getpid():
            return  # a forked child must not leave for its parent
        if not wait:
            self.keeper.abandon(ticket)  # a lock is often lost because the store is away
        if not self.keeper.table.remove(ticket):
            return
        try:
            store = await self._store()
            await store.locks.release([ticket.id])
        except StoreUnavailable:
            self.keeper.release(ticket)  # it goes on trying; the work under the lock is done
        except asyncio.CancelledError:
            self.keeper.release(ticket)
            raise

    async def _wait_for_grant(self, ticket: Ticket) -> TicketStatus:
        if self.request.timeout is None:
            return await ticket.grant_future
        timer = self.clock.call_later(self.request.timeout, lambda: self._time_out(ticket))
        try:
            return await ticket.grant_future
        finally:
            timer.cancel()

    def _time_out(self, ticket: Ticket) -> None:
        if not ticket.grant_future.done():
            ticket.grant_future.set_exception(LockTimeout(self.request.name, self.request.timeout or 0))

    def _build_request(self, ticket: Ticket, label: str, channel: str | None) -> NewTicket:
        wish = self.request
        return NewTicket(
            id=ticket.id,
            lock=wish.name,
            limit=wish.limit,
            per=None if wish.per is None else round(wish.per * 1_000_000),
            lease=round(ticket.lease * 1_000_000),
            owner=f"{self._settings().name} {_hostname()}:{os.getpid()}",
            what=label,
            wake=channel,
        )


class GlobalLock:
    """What `app.lock` gives. It may be kept and entered again, also by several tasks at once."""

    def __init__(self, client: LockClient) -> None:
        self._client = client
        self._blocks: dict[object, _LockedBlock] = {}

    async def __aenter__(self) -> HeldLock:
        task = asyncio.current_task()
        assert task is not None
        place = self._client.new_ticket(task, asyncio.get_running_loop())
        held = await self._client.acquire(place, current_job_label())
        body = self._blocks[task] = _LockedBlock(place, task)
        if self._client.request.cancel_on_loss:
            place.lost.add_callback(body.interrupt)
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body = self._pop_block()
        reason = body.end()
        if body.was_cancelled:
            ours = body.task.uncancel() <= body.cancelling
            if kind is None or not issubclass(kind, asyncio.CancelledError):
                # The body ended before it noticed: the cancellation would hit what comes after it.
                with contextlib.suppress(asyncio.CancelledError):
                    await self._client.clock.sleep(0)
            elif ours:
                kind = None
        await self._client.release(body.ticket, wait=reason is None)
        if reason is not None and kind is None and self._client.request.cancel_on_loss:
            raise LockLost(body.ticket.lock, reason) from error

    def _pop_block(self) -> "_LockedBlock":
        task: object = asyncio.current_task()
        if task not in self._blocks:
            # Left by another task than the one that entered, as fixtures and exit stacks do: fine if only one can be meant.
            if len(self._blocks) != 1:
                raise LockError(
                    self._client.request.name, "is not held by this task or thread: leave it where it was entered"
                )
            [task] = self._blocks
        return self._blocks.pop(task)


class _LockedBlock:
    """The block under the lock: cancelled when the lock is lost."""

    def __init__(self, ticket: Ticket, task: "asyncio.Task[Any]") -> None:
        self.ticket = ticket
        self.task = task
        self.cancelling = task.cancelling()
        self.was_cancelled = False
        self._is_inside = True

    def interrupt(self) -> None:
        """The lock is lost; told by any thread."""
        with contextlib.suppress(RuntimeError):  # that loop is closed
            self.ticket.loop.call_soon_threadsafe(self._cancel)

    def end(self) -> str | None:
        """It is left. Gives why the lock was lost, if it was."""
        self._is_inside = False
        return self.ticket.lost.reason

    def _cancel(self) -> None:
        if self._is_inside:
            self.was_cancelled = self.task.cancel(f"lock {self.ticket.lock!r} was lost")


class SyncLock:
    """What `app.sync.lock` gives: for threads without a loop. Nothing can cancel a thread: ask `lock.check()` or `lock.lost`
    in between; a lock that was lost is told at the end of the block."""

    def __init__(self, client: LockClient) -> None:
        self._client = client
        self._tickets: dict[int, Ticket] = {}

    def __enter__(self) -> HeldLock:
        owner, what, entered = threading.get_ident(), current_job_label(), list[Ticket]()

        async def enter() -> HeldLock:
            entered.append(self._client.new_ticket(owner, asyncio.get_running_loop()))
            return await self._client.acquire(entered[0], what)

        try:
            held = SYNC_LOOP.run("app.sync.lock", enter())
        except BaseException:  # Ctrl-C may come when it has just been granted
            for place in entered:
                self._client.keeper.abandon(place)
            raise
        self._tickets[owner] = entered[0]
        return held

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        place = self._tickets.pop(threading.get_ident())
        reason = place.lost.reason
        SYNC_LOOP.run("app.sync.lock", self._client.release(place, wait=reason is None))
        if reason is not None and kind is None and self._client.request.cancel_on_loss:
            raise LockLost(place.lock, reason)


def current_job_label() -> str:
    """For people who look at a lock: the job, or nothing."""
    job = CURRENT_JOB.get(None)
    return "" if job is None else describe_job(job.id)


@cache
def _hostname() -> str:
    return socket.gethostname()
