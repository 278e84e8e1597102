"""What a lock is: a named line of tickets, some of which hold it.

    entered --> waiting --> granted --> left
                   \\----------\\--> lost: its lease ended, or somebody released it by force

A ticket's number only grows, never falls below the store's time in microseconds, and is the token that fences its holder.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from drumbeat.ids import JobId, is_job_id


class TicketState(StrEnum):
    WAITING = "waiting"
    GRANTED = "granted"
    LOST = "lost"  # not there any more, and never again: enter anew


class NewTicket(msgspec.Struct, frozen=True, kw_only=True):
    """A place that somebody wants in the line of a lock. Lengths of time are microseconds."""

    id: str
    """Random, made by the client: a repeated enter is the same ticket, and only who knows it can leave."""
    lock: str
    limit: int = 1
    """At most so many hold the lock; with `per`, also at most so many grants in any span of that length."""
    per: int | None = None
    lease: int
    """Not renewed for so long, the ticket is gone."""
    owner: str = ""
    """Which process this is, for people."""
    what: str = ""
    """What it is for, for people."""
    wake: str | None = None
    """Where a hint reaches its process: what `Wake.listen` gave."""


class TicketStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a ticket stands."""

    ticket: str
    state: TicketState
    token: int = 0
    """The ticket's number. Fencing is promised for limit 1; with more, tokens grow within a lane."""
    lane: int = 0
    """Which of the `limit` places its holder has, from 0 on."""
    position: int = 0
    """1 is next; 0 holds."""
    recheck_after_us: int | None = None
    """In so many microseconds something may happen that nobody tells: a lease ahead ends, or the rate window opens."""
    granted_at: int | None = None
    """By the store's clock."""
    reason: str | None = None
    """Why it was released by force, if it was."""


class TicketInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A place in line, as people see it."""

    id: str
    token: int
    lane: int | None
    owner: str
    what: str
    entered_at: datetime
    granted_at: datetime | None
    lease_left: float
    """Seconds."""


class LockInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A lock, as people see it."""

    name: str
    limit: int
    per: float | None
    """Seconds."""
    holding: int
    waiting: int
    holders: list[TicketInfo]
    waiters: list[TicketInfo]
    """In the order of their turns; a list of locks leaves them out."""
    released_at: datetime | None = None
    """When somebody last released it by force, who, and why."""
    released_by: str | None = None
    released_reason: str | None = None
    opens_at: datetime | None = None
    """When the rate window has room again; None: it has room, or the lock has no window."""


def describe_job(id: JobId) -> str:
    """`what` of a ticket that a running job has entered."""
    return f"job {id}"


def parse_job(what: str) -> JobId | None:
    """The job that a ticket is for, if it is for one."""
    word, _, id = what.partition(" ")
    return JobId(id) if word == "job" and is_job_id(id) else None
