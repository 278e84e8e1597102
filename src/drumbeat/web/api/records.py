"""Records shared by API responses: pages of items, and jobs.

Records of `core/` are returned as they are; a job gets its view and its attempt. Secrets are hidden, and lists truncate long
texts: a job may have megabytes of them, and a list 500 jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Generic, TypeVar

import msgspec

from drumbeat.core.job import Failure, Job
from drumbeat.core.job_fields import AllJobFields
from drumbeat.core.job_query import JobFilter, JobPage
from drumbeat.redaction import mask_urls, redact_json
from drumbeat.web.fields import doc
from drumbeat.web.request import DashboardRequest

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A page of items."""

    items: list[T]
    next: Annotated[
        str | None,
        doc("The value of `before` (lists by name: `after`) for the next page; null: this is the last one."),
    ] = None


class WriteResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a write."""

    touched: Annotated[int, doc("Number of changed items.")]


class JobRecord(AllJobFields[datetime, float, bool, Failure], frozen=True, kw_only=True):
    """A job as it is. In texts, values named like a secret and passwords in URLs are hidden."""

    view: str
    """The word people see: the state, and for a pending job ready, scheduled, retrying or waiting."""
    attempt: int
    """What people count: the run that is next, under way, or was the last."""
    truncated: tuple[str, ...] = ()
    """Of these fields only the beginning is here, which need not be JSON: lists give previews. `/jobs/{id}` gives all."""


MAX_INLINE_CHARS = 32 * 1024
"""Characters that are redacted on the loop."""
MAX_PREVIEW_CHARS = 256
"""Characters of each long text of a job in a list."""
_JSON_TEXTS = ("args", "progress", "result")
_COMPUTED = frozenset({"view", "result_error", "error", "truncated", *_JSON_TEXTS})
_COPIED = tuple(name for name in JobRecord.__struct_fields__ if name not in _COMPUTED)


def to_job_record(job: Job, now: datetime, preview: int | None = None) -> JobRecord:
    """The record of a job. `preview`: limit of characters of each long text."""
    texts: dict[str, str | None] = {name: getattr(job, name) for name in _JSON_TEXTS}
    texts["result_error"] = None if job.result_error is None else mask_urls(job.result_error)
    error, truncated = mask_error(job.error), list[str]()
    if preview is not None:
        truncated = [name for name, text in texts.items() if text is not None and len(text) > preview]
        texts = {name: None if text is None else text[:preview] for name, text in texts.items()}
        if error is not None:
            short = _truncate(error, preview)
            truncated += ["error"] if short != error else []
            error = short
    for name in _JSON_TEXTS:
        # After truncation: the rest of a truncated secret is hidden, too.
        if (text := texts[name]) is not None:
            texts[name] = redact_json(text)
    return JobRecord(
        view=str(job.view(now)),
        error=error,
        truncated=tuple(truncated),
        **texts,  # type: ignore[arg-type]
        **{name: getattr(job, name) for name in _COPIED},
    )


async def build_full_record(job: Job, now: datetime) -> JobRecord:
    """The record with whole texts. Redacting the largest takes 50 ms, so it runs in a thread."""
    if sum(len(getattr(job, name) or "") for name in _JSON_TEXTS) < MAX_INLINE_CHARS:
        return to_job_record(job, now)
    return await asyncio.to_thread(to_job_record, job, now)


def mask_error(error: Failure | None) -> Failure | None:
    """The error with secrets hidden: drivers put URLs into their messages."""
    return None if error is None else Failure(error.type, mask_urls(error.message), mask_urls(error.traceback))


def truncate_error(error: Failure | None) -> Failure | None:
    """The error as lists show it."""
    shown = mask_error(error)
    return None if shown is None else _truncate(shown, MAX_PREVIEW_CHARS)


def _truncate(error: Failure, preview: int) -> Failure:
    """The beginning of a message and the end of a traceback say most."""
    return Failure(error.type, error.message[:preview], error.traceback[-preview:])


async def load_job_page(
    request: DashboardRequest,
    filter: JobFilter,
    preview: int = MAX_PREVIEW_CHARS,
    *,
    read: Callable[[JobFilter], Awaitable[JobPage]] | None = None,
) -> Page[JobRecord]:
    """A page of jobs with previews; `read` replaces the store's own search."""
    # One character more than shown, to detect truncation.
    store = await request.app.store()
    page = await (read or store.inspect.find_page)(msgspec.structs.replace(filter, preview=preview + 1))
    now = await request.store_time()
    return Page(items=[to_job_record(job, now, preview) for job in page.items], next=page.next)
