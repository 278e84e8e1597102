"""Locks: a named queue of tickets, some of which hold the lock.

    acquired --> waiting --> granted --> released
                   \\----------\\--> lost: its lease ended, or it was released by force

A ticket's number only grows, never falls below the store's time in microseconds, and is the token that fences its holder.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from drumbeat.core.field_doc import doc
from drumbeat.ids import JobId, is_job_id


class TicketState(StrEnum):
    WAITING = "waiting"
    GRANTED = "granted"
    LOST = "lost"  # deleted for good: acquire with a new ticket


class NewTicket(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a place in the queue of a lock. Durations are microseconds."""

    id: str
    """Random, made by the client: a repeated acquire is the same ticket, and only its owner can release it."""
    lock: str
    limit: int = 1
    """Maximum number of holders; with `per`, also the maximum number of grants in any span of that length."""
    per: int | None = None
    lease: int
    """The ticket is deleted when it is not renewed within this time."""
    owner: str = ""
    """The process that asks, for display."""
    what: str = ""
    """What the lock is needed for, for display."""
    wake: str | None = None
    """The address for notifications, from `Wake.listen`."""


class TicketStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a ticket."""

    ticket: str
    state: TicketState
    token: int = 0
    """The ticket's number. Fencing is promised for limit 1; with more, tokens grow within a lane."""
    lane: int = 0
    """Which of the `limit` places the holder has, from 0."""
    position: int = 0
    """1 is next; 0 holds the lock."""
    recheck_after_us: int | None = None
    """When to ask again, since no notification is sent: a lease ahead ends, or the rate window opens."""
    granted_at: int | None = None
    """By the store's clock."""
    reason: str | None = None
    """Why it was released by force, if it was."""


class TicketInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket, for display."""

    id: str
    token: int
    lane: int | None
    owner: str
    what: str
    entered_at: datetime
    granted_at: datetime | None
    lease_left: Annotated[float, doc("Seconds.")]


class LockInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A lock, for display."""

    name: str
    limit: int
    per: Annotated[float | None, doc("Seconds.")]
    holding: int
    waiting: int
    holders: list[TicketInfo]
    waiters: Annotated[list[TicketInfo], doc("In the order in which they will be granted; empty in a list of locks.")]
    released_at: Annotated[datetime | None, doc("The last release by force: when, by whom, and the reason.")] = None
    released_by: str | None = None
    released_reason: str | None = None
    opens_at: Annotated[datetime | None, doc("When the rate window has room again; None: now, or it has none.")] = None


def describe_job(id: JobId) -> str:
    """`what` of a ticket that a running job acquires."""
    return f"job {id}"


def parse_job(what: str) -> JobId | None:
    """The job that a ticket is for, if it is for one."""
    word, _, id = what.partition(" ")
    return JobId(id) if word == "job" and is_job_id(id) else None
