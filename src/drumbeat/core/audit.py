"""The audit log: who did what to jobs, queues, schedules or locks, for which reason, and with which answer.

Values only. An entry is written before the action begins, so that no action lacks one; without `done_at` it is running or was
interrupted.
"""

from datetime import datetime

import msgspec

REQUEST_KEY_TTL_US = 86_400_000_000
"""How long a repeated request with the same key is recognised."""
MAX_ANSWER_BYTES = 64 * 1024
"""Longer answers are not kept at all, since a truncated one is no JSON."""
MAX_NAME_LENGTH = 200
"""Of who, role, via, verb and a request key, some of which are indexed."""
MAX_TARGET_LENGTH = 500
MAX_REASON_LENGTH = 2_000


class NewAuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An action that is about to begin. Its texts are storable and within the limits above (the caller ensures this)."""

    id: str
    """Like a job's id: ids sort by time."""
    who: str
    role: str
    via: str
    """"api", "cli" or "python"."""
    verb: str
    """Object and action: "queues.pause"."""
    target: str
    """A name, an id, or a filter in words."""
    reason: str = ""
    request_key: str | None = None
    """Idempotency key of the caller: a repeated request acts once."""
    request_hash: str | None = None
    """Detects the same key with a different request."""


class AuditEntry(NewAuditEntry, frozen=True, kw_only=True):
    """A recorded action."""

    at: datetime
    done_at: datetime | None = None
    """None: it is running, or was interrupted."""
    touched: int | None = None
    """How many objects it changed (so far, while it is running)."""
    outcome: str | None = None
    """"done", "refused", or "failed: " and why."""
    answer: str | None = None
    """JSON text of the answer; None: there was none, or it was too long."""


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
