"""Locks: holders, waiters in their order, and forced release."""

from __future__ import annotations

from datetime import datetime

import msgspec
from starlette.responses import Response

from drumbeat.core.lock import LockInfo, TicketInfo, parse_job
from drumbeat.web.api import locks
from drumbeat.web.api.locks import LocksQuery
from drumbeat.web.request import DashboardRequest

from .action_button import DANGER, ActionButton, build_button
from .layout import render_page

RELEASE_TEXT = (
    "Its holder is told within milliseconds that the lock is lost. Until then it may still be working: "
    "only the token rejects its late writes."
)


class TicketView(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket as the page shows it."""

    ticket: TicketInfo
    number: int
    """Position, from 1."""
    job: str | None
    held: float | None
    """Seconds since it was granted; of a waiter since it entered."""
    release: ActionButton | None = None


class RateWindowView(msgspec.Struct, frozen=True, kw_only=True):
    """State of a rate window."""

    open: bool
    opens_in: float | None
    """Seconds."""


def ticket_views(tickets: list[TicketInfo], now: datetime) -> tuple[TicketView, ...]:
    """In the order in which they are granted."""
    return tuple(
        TicketView(
            ticket=ticket,
            number=number,
            job=parse_job(ticket.what),
            held=max(0.0, (now - (ticket.granted_at or ticket.entered_at)).total_seconds()),
        )
        for number, ticket in enumerate(tickets, start=1)
    )


def window_of(lock: LockInfo, now: datetime) -> RateWindowView | None:
    """None: the lock has no rate."""
    if lock.per is None:
        return None
    left = None if lock.opens_at is None else (lock.opens_at - now).total_seconds()
    return RateWindowView(open=left is None or left <= 0, opens_in=None if left is None else max(0.0, left))


class LockView(msgspec.Struct, frozen=True, kw_only=True):
    lock: LockInfo
    holders: tuple[TicketView, ...]
    window: RateWindowView | None
    release: ActionButton | None


async def index(request: DashboardRequest, query: LocksQuery) -> Response:
    """GET /locks."""
    found = await locks.list_locks(request, query)
    now = await request.store_time()
    rows = [
        LockView(
            lock=lock,
            holders=ticket_views(lock.holders, now),
            window=window_of(lock, now),
            release=_release_button(request, lock, None) if lock.holding else None,
        )
        for lock in found.items
    ]
    return await render_page(
        request, "locks.html", page="locks", title="Locks", rows=rows, all=query.all, after=query.after, next=found.next
    )


async def show(request: DashboardRequest, name: str) -> Response:
    """GET /locks/{name}."""
    lock = await locks.show(request, name)
    now = await request.store_time()
    holders = [
        msgspec.structs.replace(place, release=_release_button(request, lock, place.ticket))
        for place in ticket_views(lock.holders, now)
    ]
    return await render_page(
        request,
        "lock.html",
        page="locks",
        title=f"Lock {lock.name}",
        lock=lock,
        holders=holders,
        waiters=ticket_views(lock.waiters, now),
        window=window_of(lock, now),
        release=_release_button(request, lock, None) if lock.holding > 1 else None,
    )


def _release_button(request: DashboardRequest, lock: LockInfo, ticket: TicketInfo | None) -> ActionButton | None:
    whose = f"all {lock.holding} holders" if lock.holding > 1 else "its holder"
    if ticket is not None:
        whose = ticket.owner or "its holder"
    return build_button(
        request,
        locks.force_release,
        "Release" if ticket is not None or lock.holding == 1 else "Release all",
        f"Release lock {lock.name} held by {whose}?",
        of=lock.name,
        text=RELEASE_TEXT,
        body={} if ticket is None else {"ticket": ticket.id},
        done="Released from {n} holder{s}",
        **DANGER,
    )
