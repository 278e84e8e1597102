"""What somebody did to jobs, queues, schedules or locks: who, what, to how many, why, and what the answer was.

Values only. An act is on record before it is done, so that none is without a record; one without `done_at` is under way, or
was broken off.
"""

from datetime import datetime

import msgspec

REQUEST_KEY_TTL_US = 86_400_000_000
"""For so long a request key stands for one act."""
MAX_ANSWER_BYTES = 64 * 1024
"""The most bytes of an answer that are kept; a longer one is not kept at all, because half of one is no JSON."""
MAX_NAME_LENGTH = 200
"""The most characters of who, role, via, verb and a request key. Stores have an index by some of them."""
MAX_TARGET_LENGTH = 500
MAX_REASON_LENGTH = 2_000


class NewAuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An act that is about to be done. Every text is storable, and no longer than above (`admin.audit.new_act` sees to it)."""

    id: str
    """Made as a job's id is: ids sort in the order of time."""
    who: str
    role: str
    via: str
    """"api", "cli" or "python"."""
    verb: str
    """A noun and what is done to it: "queues.pause"."""
    target: str
    """To which one: a name, an id, or a filter in words."""
    reason: str = ""
    request_key: str | None = None
    """Chosen by the caller, so that a request that is sent again acts once."""
    request_hash: str | None = None
    """Of what was asked for, so that the same key with another request is seen."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An act on record."""

    id: str
    who: str
    role: str
    via: str
    verb: str
    target: str
    reason: str
    at: datetime
    request_key: str | None = None
    request_hash: str | None = None
    done_at: datetime | None = None
    """None: it is under way, or whoever was at it was broken off."""
    touched: int | None = None
    """How many jobs, queues ... it changed; of one that is under way, so far, or None."""
    outcome: str | None = None
    """"done", "refused", or "failed: " and why."""
    answer: str | None = None
    """JSON text that was given to the caller; None: none was, or it was too long."""


def drop_long_answer(answer: str | None) -> str | None:
    return None if answer is None or len(answer.encode()) > MAX_ANSWER_BYTES else answer


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries to list, newest first; None means any."""

    before: str | None = None
    limit: int = 100
    who: str | None = None
    verb: str | None = None
    """The beginning of a verb."""
    target: str | None = None


ALL_ENTRIES = AuditFilter()
