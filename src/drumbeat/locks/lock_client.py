"""LockClient: acquires and releases cluster-wide locks, for tasks and for threads.

How a lock is waited for and granted:

    task             LockClient          LeaseKeeper, TicketTable     LeaseRenewer (own loop and store)     store
     |--acquire------>|--new_ticket------->| add (LockReentered)             |                                |
     |                |--ensure_running--->|--start_thread, host.accept----->|--listen----------------------->| channel
     |                |--locks.acquire(request), on the caller's loop--------------------------------------->| GRANTED: done
     |                |--record_acquire--->| WAITING, check_at               |<--notification(ticket)---------|
     |                |  await             |<--due_tickets-------------------|--ticket_status(renew?)-------->|
     |                |  grant_future      |                                 |<--GRANTED, token, lane---------|
     |<--HeldLock-----|<---Ticket.grant----|<--apply_statuses----------------|                                |

    cancelled or timed out: abandon -> TicketTable.queue_release -> LeaseRenewer._release_loop -> store.locks.release

Acquiring and releasing use the store of the caller's own loop, so an uncontended lock costs two round trips. The keeper only
waits and renews (`lease_keeper.py`).
"""

import asyncio
import os
import socket
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypedDict

import msgspec

from drumbeat.clock import Clock
from drumbeat.core.lock import NewTicket, TicketStatus
from drumbeat.durations import Duration, seconds
from drumbeat.errors import InvalidArguments, LockLost, LockTimeout, StoreUnavailable
from drumbeat.locks.lease_keeper import LeaseKeeper
from drumbeat.locks.ticket import LossSignal, Ticket, TicketStage
from drumbeat.names import check_name, check_number, check_option_names, short_repr
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store

MIN_LEASE_S = 0.3
MAX_LIMIT = 10_000


class LockOptions(TypedDict, total=False):
    """The options of `app.lock`."""

    limit: int
    """The maximum number of holders in the whole cluster. Default: 1."""
    per: Duration | None
    """Also at most `limit` grants in any window of this length, by the store's clock."""
    timeout: Duration | None
    """How long to wait for the grant, before LockTimeout. Default: no limit."""
    lease: Duration | None
    """The next waiter gets the lock after this process has been silent for this long. Default: the setting `lock_lease`."""
    cancel_on_loss: bool
    """Cancel the block when the lock is lost, and raise LockLost. Default: True."""


class LockRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed options of a lock. Durations are in seconds."""

    name: str
    limit: int
    per: float | None
    timeout: float | None
    lease: float | None
    """None: the setting `lock_lease`."""
    cancel_on_loss: bool


def parse_options(name: object, options: LockOptions) -> LockRequest:
    """Raises:
    InvalidArguments: an option is unknown or impossible; the message says what is allowed.
    """
    check_option_names("a lock", options, LockOptions.__annotations__, InvalidArguments)
    per, timeout, lease = options.get("per"), options.get("timeout"), options.get("lease")
    return LockRequest(
        name=check_name("lock", name),
        limit=check_limit(options.get("limit", 1)),
        per=None if per is None else check_per(per),
        timeout=None if timeout is None else seconds(timeout, name="timeout", error=InvalidArguments),
        lease=None if lease is None else _check_lease(lease),
        cancel_on_loss=options.get("cancel_on_loss", True),
    )


def check_limit(limit: object) -> int:
    """The maximum number of holders of a lock."""
    # Inlined: the call would add 4 % to a local lock.
    return limit if type(limit) is int and 1 <= limit <= MAX_LIMIT else check_number("limit", limit, 1, MAX_LIMIT)


def check_per(per: Duration) -> float:
    """The length of a rate window, in seconds."""
    length = check_duration(per, "per")
    if length < 0.001:
        raise InvalidArguments(f"per must be at least 1 ms, not {short_repr(per)}", "per")
    return length


def check_duration(value: Duration, name: str) -> float:
    # `seconds` computes with fractions, which takes longer than a whole local lock.
    if type(value) is float and 0 <= value <= 1e9:
        return value
    return seconds(value, name=name, error=InvalidArguments)


def _check_lease(lease: Duration) -> float:
    length = seconds(lease, name="lease", error=InvalidArguments)
    if length < MIN_LEASE_S:
        raise InvalidArguments(f"lease must be at least {MIN_LEASE_S:g} s, not {short_repr(lease)}", "lease")
    return length


class HeldLock:
    """What `async with app.lock(...) as lock` binds: a granted lock, held until it is released or lost."""

    def __init__(self, ticket: Ticket, status: TicketStatus) -> None:
        self._ticket = ticket
        self.name = ticket.lock
        self.token: int = status.token
        """Fencing token: grows with each grant of the lock (with limit > 1: within its lane). Pass it to the resource that
        the lock protects, and let that refuse smaller ones than it has seen."""
        self.lane: int = status.lane
        """Which of the `limit` slots this is, counted from 0."""
        self.granted_at: int = status.granted_at or 0
        """By the store's clock, in microseconds since 1970."""

    @property
    def lost(self) -> LossSignal:
        """Whether the lock was lost meanwhile: `is_set()`, `wait(timeout)` in threads, awaitable, `reason`."""
        return self._ticket.lost

    def check(self) -> None:
        """Raises:
        LockLost: it is no longer held.
        """
        reason = self._ticket.lost.reason
        if reason is not None:
            raise LockLost(self.name, reason)

    def __repr__(self) -> str:
        return f"<HeldLock {self.name} token={self.token}>"


class LockApp(Protocol):
    """What locks need of their app. Asked at each use: tests may override its store and its clock."""

    keeper: LeaseKeeper

    @property
    def clock(self) -> Clock: ...

    @property
    def settings(self) -> Settings: ...

    async def store(self) -> Store:
        """The store of the running loop."""
        ...


@dataclass(eq=False, repr=False)
class LockClient:
    """Acquires and releases one lock, any number of times."""

    request: LockRequest
    app: LockApp

    @property
    def clock(self) -> Clock:
        return self.app.clock

    @property
    def keeper(self) -> LeaseKeeper:
        return self.app.keeper

    def new_ticket(self, owner: object, loop: asyncio.AbstractEventLoop) -> Ticket:
        """Raises:
        LockReentered: this task or thread already holds the lock or waits for it.
        """
        lease = self.app.settings.lock_lease if self.request.lease is None else self.request.lease
        ticket = Ticket(self.request.name, lease, owner, self.clock, loop)
        self.keeper.table.add(ticket)
        return ticket

    async def acquire(self, ticket: Ticket, label: str) -> HeldLock:
        """Wait until the lock is granted. `label` describes the holder to operators."""
        try:
            channel = await self.keeper.ensure_running()
            store = await self.app.store()
            ticket.request = self._build_request(ticket, label, channel)
            asked_at = self.clock.monotonic()
            status = await store.locks.acquire(ticket.request)
            self.keeper.record_acquire(ticket, status, asked_at)
            if ticket.stage is not TicketStage.HELD:
                status = await self._wait_for_grant(ticket)
            return HeldLock(ticket, status)
        except BaseException:  # cancelled, timed out, or no store: do not hold up the next waiter
            self.keeper.abandon(ticket)
            raise

    async def release(self, ticket: Ticket, *, wait: bool = True) -> None:
        if ticket.pid != os.getpid():
            return  # a forked child must not release its parent's lock
        if not wait:
            self.keeper.abandon(ticket)  # a lock is often lost because the store is unavailable
        if not self.keeper.table.remove(ticket):
            return
        try:
            store = await self.app.store()
            await store.locks.release([ticket.id])
        except StoreUnavailable:
            self.keeper.release(ticket)  # retried in the background: the work under the lock is done
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
        request = self.request
        return NewTicket(
            id=ticket.id,
            lock=request.name,
            limit=request.limit,
            per=None if request.per is None else round(request.per * 1_000_000),
            lease=round(ticket.lease * 1_000_000),
            owner=f"{self.app.settings.name} {_hostname()}:{os.getpid()}",
            what=label,
            wake=channel,
        )


@cache
def _hostname() -> str:
    return socket.gethostname()
