"""What answers of the API are made of: pages of items, and a job as it is shown.

Records of `model/` go out as they are; a job gets the word that people see for it and the attempt that they count, and the
values of what is named like a secret are hidden in its JSON texts.
"""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from drumbeat.durations import from_us
from drumbeat.ids import InstanceId, JobId
from drumbeat.model.job import Failure, Job, JobPage, JobState, Unique
from drumbeat.store.protocol import Store
from drumbeat.web.host import Host
from drumbeat.web.redacting import redacted

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Some items, and how to go on."""

    items: list[T]
    next: str | None = None
    """What to give as `before` (lists by name: `after`) for the next page; null: this is the last one."""


class Why(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a write that needs nothing but a reason."""

    why: str = ""
    """For the audit, and for whoever wonders."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a write."""

    touched: int
    """How many were changed by it; 0: there was nothing to do."""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it stands."""

    id: JobId
    task: str
    queue: str
    state: JobState
    view: str
    """The word people see: the state, and for a pending job ready, scheduled, retrying or waiting."""
    priority: int
    """0 first, 9 last."""
    key: str | None
    args: str
    """JSON text, exactly as stored, so that no number is rounded; only values named like a secret are hidden."""
    signature: str
    """Hash of the task's signature at the caller."""
    created_at: datetime
    due_at: datetime
    """The moment it was first meant for."""
    run_at: datetime
    """When it may start; a retry is later than due_at."""
    started_at: datetime | None
    finished_at: datetime | None
    instance: InstanceId | None
    """Where it runs, or ran last."""
    token: int
    """Fences its writes; it only grows."""
    attempt: int
    """What people count: the run that is next, under way, or was the last."""
    failures: int
    crashes: int
    retries: int | None
    """Null: as its task says at the worker; so is timeout."""
    timeout: float | None
    """Seconds."""
    crash_limit: int
    unique: Unique
    waits_for: str | None
    """Why it waits for something other than time."""
    cancel_requested: bool
    progress: str | None
    """JSON text."""
    result: str | None
    """JSON text."""
    result_error: str | None
    """Why its result could not be kept."""
    error: Failure | None
    on_dead: str | None
    """The task that is enqueued if it dies."""
    life: int
    """0, and one more for each replay."""
    tenant: str
    schedule: str | None
    """The schedule whose fire it is; null: somebody enqueued it."""
    trace: str | None
    """The span that enqueued it, as a W3C traceparent; null: nobody traced the call."""


_AS_STORED = tuple(name for name in JobRecord.__struct_fields__ if name not in ("view", "args", "progress", "result"))


def job_record(job: Job, now: datetime) -> JobRecord:
    return JobRecord(
        view=str(job.view(now)),
        args=redacted(job.args),
        progress=None if job.progress is None else redacted(job.progress),
        result=None if job.result is None else redacted(job.result),
        **{name: getattr(job, name) for name in _AS_STORED},
    )


async def store_now(host: Host) -> datetime:
    """The moment by the store's clock."""
    store = await host.store()
    return from_us(await store.inspect.now())


async def job_page(store: Store, page: JobPage) -> Page[JobRecord]:
    """A page of jobs as they are shown."""
    now = from_us(await store.inspect.now())
    return Page(items=[job_record(job, now) for job in page.items], next=page.next)
