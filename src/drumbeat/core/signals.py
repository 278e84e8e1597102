"""Signals: what others tell a job, which waits for it by name. Times are integer microseconds UTC by the store's clock."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from drumbeat.core.claim import ClaimRef
from drumbeat.core.field_doc import doc
from drumbeat.ids import JobId

MAX_UNREAD_SIGNALS = 1_000
MAX_PAYLOAD_BYTES = 64 * 1024


class NewSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal to be sent. The id is the client's, so that a repeated call is the same signal."""

    id: str
    job: JobId
    name: str
    payload: str
    """JSON text."""


class SignalAnswer(StrEnum):
    SENT = "sent"  # it is stored, by this call or an earlier one
    SUCCEEDED = "succeeded"  # the job has ended, and nothing was stored: its state
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    UNKNOWN = "unknown"  # no such job
    TOO_MANY = "too many"  # it has MAX_UNREAD_SIGNALS that it has not read


class SignalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that was sent to a job."""

    job: JobId
    id: str
    name: str
    sent_at: datetime
    payload: Annotated[str, doc("JSON text.")]
    read_by: Annotated[str | None, doc("The name of the wait that has got it; None: not read yet.")] = None


class SignalWait(msgspec.Struct, frozen=True, kw_only=True):
    """A wait of a running job."""

    claim: ClaimRef
    name: str
    """Of its record."""
    signal: str


class TakenSignal(msgspec.Struct, frozen=True, kw_only=True):
    """What a wait has got."""

    is_current: bool = True
    """False: the claim is over, and nothing was changed."""
    is_over: bool = False
    """The wait has ended, and that is on record; False: nothing has come yet."""
    payload: str | None = None
    """JSON text; None of a wait that has ended: it timed out."""


STALE_WAIT = TakenSignal(is_current=False)
STILL_WAITING = TakenSignal()
