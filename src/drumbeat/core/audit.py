"""The audit log: who did what to jobs, queues, schedules or locks, for which reason, and with which answer.

Values only. An entry is written before the action begins, so that no action lacks one; without `done_at` it is running or was
interrupted.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

import msgspec

from drumbeat.core.field_doc import doc

REQUEST_KEY_TTL_US = 86_400_000_000
"""How long a repeated request with the same key is recognised."""
REPORT_INTERVAL = 0.5
"""Seconds between two reports of the progress of an action on many jobs."""
MAX_SILENCE = timedelta(seconds=15)
"""An action that has reported its progress before, and not for so long, was interrupted."""
MAX_UNREPORTED = timedelta(seconds=60)
"""The same for one that reports none: those are short."""
MAX_ANSWER_BYTES = 64 * 1024
"""Longer answers are not kept at all, since a truncated one is no JSON."""
MAX_NAME_LENGTH = 200
"""Of who, role, via, verb and a request key, some of which are indexed."""
MAX_TARGET_LENGTH = 500
MAX_REASON_LENGTH = 2_000


class NewAuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An action that is about to begin. Its texts are storable and within the limits above (the caller ensures this)."""

    id: Annotated[str, doc("Like a job's id: ids sort by time.")]
    who: str
    role: str
    via: Annotated[str, doc('"api", "cli" or "python".')]
    verb: Annotated[str, doc('Object and action: "queues.pause".')]
    target: Annotated[str, doc("A name, an id, or a filter in words.")]
    reason: str = ""
    request_key: Annotated[str | None, doc("Idempotency key of the caller: a repeated request acts once.")] = None
    request_hash: Annotated[str | None, doc("Detects the same key with a different request.")] = None


class AuditEntry(NewAuditEntry, frozen=True, kw_only=True):
    """A recorded action."""

    at: datetime
    done_at: Annotated[datetime | None, doc("None: it is running, or was interrupted.")] = None
    touched: Annotated[int | None, doc("How many objects it changed (so far, while it is running).")] = None
    outcome: Annotated[str | None, doc('"done", "refused", "stopped by ..." or "failed: " and why.')] = None
    answer: Annotated[str | None, doc("JSON text of the answer; None: there was none, or it was too long.")] = None
    matched: Annotated[
        int | None, doc("How many objects it is about; None: it reports no progress, or it is not known.")
    ] = None
    reported_at: Annotated[datetime | None, doc("When its process last reported its progress; None: never.")] = None
    stopped_by: Annotated[str | None, doc("Who asked it to stop.")] = None


class ActState(StrEnum):
    ENDED = "ended"
    RUNNING = "running"
    INTERRUPTED = "interrupted"  # its process ended, or lost the store, before it could record the end


def act_state(entry: AuditEntry, now: datetime) -> ActState:
    """Whether an action is running at this time of the store's clock."""
    if entry.done_at is not None or entry.outcome is not None:
        return ActState.ENDED
    last, limit = (entry.at, MAX_UNREPORTED) if entry.reported_at is None else (entry.reported_at, MAX_SILENCE)
    return ActState.RUNNING if now - last <= limit else ActState.INTERRUPTED


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
    unended: bool = False
    """Only those that report their progress and have no recorded end: running, or interrupted."""


ALL_ENTRIES = AuditFilter()
