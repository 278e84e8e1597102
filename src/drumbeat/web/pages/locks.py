"""Locks: who holds which, since when, who waits in which order; and taking one away by force."""

from __future__ import annotations

from datetime import datetime

import msgspec

from drumbeat.model.lock import LockInfo, TicketInfo, job_of
from drumbeat.web.api import locks
from drumbeat.web.api.locks import LocksQuery
from drumbeat.web.api.records import store_now
from drumbeat.web.call import Answer, Call, Role

from .acting import Act, act
from .rendering import render
from .showing import part

RELEASE_TEXT = (
    "Its holder hears of it in some milliseconds as of a lost lock. Until then it may still be at work under it: "
    "only the token keeps its late writes out."
)


class LocksPage(msgspec.Struct, frozen=True, kw_only=True):
    """What the address may say."""

    all: bool = False
    after: str | None = None


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket as the page shows it."""

    ticket: TicketInfo
    number: int
    """1 is next; of a holder its lane, from 1."""
    job: str | None
    held: float | None
    """Seconds since it was granted; of a waiter since it came."""
    release: Act | None = None


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """How a rate window stands."""

    open: bool
    opens_in: float | None
    """Seconds."""


def places(tickets: list[TicketInfo], now: datetime) -> tuple[Place, ...]:
    """In the order of turns."""
    return tuple(
        Place(
            ticket=ticket,
            number=number,
            job=job_of(ticket.what),
            held=max(0.0, (now - (ticket.granted_at or ticket.entered_at)).total_seconds()),
        )
        for number, ticket in enumerate(tickets, start=1)
    )


def window_of(lock: LockInfo, now: datetime) -> Window | None:
    """None: the lock has no rate."""
    if lock.per is None:
        return None
    left = None if lock.opens_at is None else (lock.opens_at - now).total_seconds()
    return Window(open=left is None or left <= 0, opens_in=None if left is None else max(0.0, left))


class LockRow(msgspec.Struct, frozen=True, kw_only=True):
    lock: LockInfo
    holders: tuple[Place, ...]
    window: Window | None
    release: Act | None


async def index(call: Call) -> Answer:
    """GET /locks."""
    query: LocksPage = call.query
    found = await call.ask(locks.list_, query=LocksQuery(all=query.all, after=query.after))
    now = await store_now(call.host)
    rows = [
        LockRow(
            lock=lock,
            holders=places(lock.holders, now),
            window=window_of(lock, now),
            release=_release(call, lock, None) if lock.holding else None,
        )
        for lock in found.items
    ]
    return await render(
        call, "locks.html", page="locks", title="Locks", rows=rows, all=query.all, after=query.after, next=found.next
    )


async def show(call: Call) -> Answer:
    """GET /locks/{name}."""
    lock: LockInfo = await call.ask(locks.show, path={"name": call.path["name"]})
    now = await store_now(call.host)
    holders = [
        msgspec.structs.replace(place, release=_release(call, lock, place.ticket))
        for place in places(lock.holders, now)
    ]
    return await render(
        call,
        "lock.html",
        page="locks",
        title=f"Lock {lock.name}",
        lock=lock,
        holders=holders,
        waiters=places(lock.waiters, now),
        window=window_of(lock, now),
        release=_release(call, lock, None) if lock.holding > 1 else None,
    )


def _release(call: Call, lock: LockInfo, ticket: TicketInfo | None) -> Act | None:
    whose = f"all {lock.holding} holders" if lock.holding > 1 else "its holder"
    if ticket is not None:
        whose = ticket.owner or "its holder"
    return act(
        call,
        Role.ADMIN,
        name="release",
        label="Release" if ticket is not None or lock.holding == 1 else "Release all",
        url=f"/api/v1/locks/{part(lock.name)}/release",
        title=f"Take lock {lock.name} away from {whose}?",
        text=RELEASE_TEXT,
        body={} if ticket is None else {"ticket": ticket.id},
        danger=True,
        reason="required",
        done="Released from {n} holder{s}",
    )
