"""What an explanation consists of."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from drumbeat.core.field_doc import doc
from drumbeat.ids import JobId

Fact = str | int | float | bool | None


class ReasonKind(StrEnum):
    NOT_DUE = "not_due"
    RETRYING = "retrying"
    ASLEEP = "asleep"  # its handler sleeps
    SIGNAL = "signal"  # its handler waits for a signal
    QUEUE_PAUSED = "queue_paused"
    NO_WORKER = "no_worker"
    NO_WORKER_FOR_QUEUE = "no_worker_for_queue"
    NO_WORKER_FOR_TASK = "no_worker_for_task"
    OTHER_VERSION = "other_version"
    PARENTS = "parents"  # it depends on jobs that have not ended
    DEAD_LETTER = "dead_letter"  # one of those is a dead letter, and waits for its replay
    WORKFLOW_CANCELLED = "workflow_cancelled"
    BEHIND_JOB = "behind_job"  # a fire that waits for the fire before it
    UNDECLARED = "undeclared"  # it stands under limits that no worker has declared
    LIMIT = "limit"  # as many jobs of its group, task or queue run as a limit allows
    WINDOW = "window"  # as many have started as a rate allows
    ORDER = "order"  # jobs of its group run one after the other, and another one is first
    SLOTS_FULL = "slots_full"
    JOBS_BEFORE = "jobs_before"  # slots are free, but other jobs are claimed first
    NEXT = "next"  # nothing blocks it
    LOCK = "lock"  # runs, and waits for a lock
    RATE = "rate"  # runs, and waits for a rate window
    CANCELLING = "cancelling"  # runs, and was asked to stop
    WORKER_SILENT = "worker_silent"  # its worker sends no heartbeats any more
    RUNNING = "running"
    ENDED = "ended"


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    kind: ReasonKind
    text: Annotated[str, doc("One sentence for people.")]
    facts: Annotated[dict[str, Fact], doc("The same for programs; timestamps are RFC 3339 text.")]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job does not run, or that it does."""

    job: JobId
    view: Annotated[str, doc("ready, scheduled, running ...")]
    at: Annotated[datetime, doc("By the store's clock.")]
    reasons: Annotated[list[Reason], doc("At least one; the decisive one first.")]
