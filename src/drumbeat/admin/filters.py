"""Filters of jobs: what people may search and select by, checked, and the queries that follow them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any, TypedDict

import msgspec

from drumbeat.client import Client
from drumbeat.core.job import Job, JobState, PendingView
from drumbeat.core.job_query import JobFilter, JobPage
from drumbeat.durations import to_us
from drumbeat.errors import InvalidArguments, UnknownTask
from drumbeat.ids import is_job_id
from drumbeat.names import check_key, check_name, check_number, short_repr
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.protocol import Store

from .ended_between import EndedBetween, find_ended_between

MAX_LISTED = 100_000
PAGE = 500
MAX_PREVIEW = 1_000_000
_INSTANCE = re.compile(r"[0-9a-f]{16}")
_ID_PART = re.compile(r"[0-9a-fA-F-]{4,36}")

Reader = Callable[[str, object], tuple[str, Any]]
"""From a criterion and its value to a field of JobFilter."""


class JobCriteria(TypedDict, total=False):
    """What a filter selects jobs by; None means anything."""

    task: str | None
    queue: str | None
    key: str | None
    error: str | None
    """A part of the error's type or message."""
    schedule: str | None
    """Fires of this schedule."""
    instance: str | None
    """The instance that runs it, or ran it last."""
    parent: str | None
    """Jobs that the job with this id enqueued."""
    workflow: str | None
    """Jobs of the workflow with this id."""
    since: datetime | str | None
    """Enqueued at this time or later: by the clock of the program that enqueued it, to the millisecond. Text is ISO 8601 with a
    time zone."""
    until: datetime | str | None
    """Enqueued before this time."""


class JobQuery(JobCriteria, total=False):
    """Which jobs to list."""

    state: JobState | PendingView | str | None
    """A state, or one of the views of pending jobs: ready, scheduled, retrying, waiting."""
    id: str | None
    """An id, or its beginning: at least 4 characters."""
    id_end: str | None
    """The end of an id: at least 4 characters."""
    ended_since: datetime | str | None
    """Ended at this time or later; not for counts and bulk actions. No store has an index of end times: it scans."""
    ended_until: datetime | str | None
    """Ended before this time."""
    before: str | None
    """Only jobs older than the one with this id: the next page."""
    limit: int
    """Default: 50."""
    preview: int
    """Read only this many characters of arguments, progress and result. Default: all of them."""


def read_filter(query: JobQuery | JobCriteria) -> JobFilter:
    """The filter as the store takes it.

    Raises:
        InvalidArguments: an unknown criterion or an impossible value; it says what is allowed.
    """
    unknown = set(query) - _READERS.keys()
    if unknown:
        allowed = ", ".join(_READERS)
        raise InvalidArguments(f"jobs cannot be chosen by {min(unknown)!r}; use {allowed}", min(unknown))
    given = {name: value for name, value in query.items() if value is not None}
    return msgspec.structs.replace(JobFilter(), **dict(_READERS[name](name, value) for name, value in given.items()))


def read_ended(query: JobQuery) -> EndedBetween | None:
    """The window of end times; None: none is given."""
    since, until = query.get("ended_since"), query.get("ended_until")
    if since is None and until is None:
        return None
    return EndedBetween(
        since=None if since is None else _read_timestamp("ended_since", since)[1],
        until=None if until is None else _read_timestamp("ended_until", until)[1],
    )


def without_ended(query: JobQuery) -> JobQuery:
    """The rest of the query, as `read_filter` takes it."""
    rest = query.copy()
    rest.pop("ended_since", None)
    rest.pop("ended_until", None)
    return rest


def _read_state(name: str, value: object) -> tuple[str, JobState | PendingView]:
    if value in list(PendingView):
        return "view", PendingView(str(value))
    if value in list(JobState):
        return name, JobState(str(value))
    raise InvalidArguments(f"there is no state {short_repr(value)}: use {', '.join([*JobState, *PendingView])}", name)


def _read_timestamp(name: str, value: object) -> tuple[str, int]:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidArguments(
                f"{name} must be a time such as 2026-11-15T09:30Z, not {short_repr(value)}", name
            ) from None
    return name, to_us(value, name=name)  # type: ignore[arg-type]


def _text_reader(meaning: str, accepts: Callable[[str], object], convert: Callable[[str], str] = str) -> Reader:
    def read(name: str, value: object) -> tuple[str, str]:
        if not isinstance(value, str) or not accepts(value):
            raise InvalidArguments(f"{name} must be {meaning}, not {short_repr(value)}", name)
        return name, convert(value)

    return read


def _read_name(name: str, value: object) -> tuple[str, str]:
    return name, check_name(name, value)


def read_limit(name: str, value: object) -> int:
    return check_number(name, value, 1, MAX_LISTED)


_READERS: dict[str, Reader] = {
    "state": _read_state,
    "task": _read_name,
    "queue": _read_name,
    "key": lambda name, text: (name, check_key(text)),
    "error": _text_reader("a part of the error's text", lambda text: text and "\0" not in text),
    "schedule": _read_name,
    "instance": _text_reader("the id of an instance, 16 characters", _INSTANCE.fullmatch),
    "parent": _text_reader("the id of a job", is_job_id),
    "workflow": _text_reader("the id of a workflow", is_job_id),
    "since": _read_timestamp,
    "until": _read_timestamp,
    "id": _text_reader("the id of a job or its beginning, at least 4 characters", _ID_PART.fullmatch, str.lower),
    "id_end": _text_reader("the end of a job's id, at least 4 characters", _ID_PART.fullmatch, str.lower),
    "before": _text_reader("the id of a job", is_job_id),
    "limit": lambda name, value: (name, read_limit(name, value)),
    "preview": lambda name, value: (name, check_number(name, value, 0, MAX_PREVIEW)),
}


async def list_jobs(client: Client, filter: JobFilter) -> list[Job]:
    """The jobs; if there are none, an unknown queue or task is refused: it is most likely misspelt."""
    store = await client.store()
    found = await find_jobs(store, filter)
    if not found:
        await _check_names_known(client, store, filter)
    return found


async def list_ended_jobs(client: Client, ended: EndedBetween, filter: JobFilter) -> list[Job]:
    """As `list_jobs`, of those that ended in a window."""
    found: list[Job] = []
    page = await page_jobs(client, filter, ended)
    found += page.items
    store = await client.store()
    while len(found) < filter.limit and page.next is not None:
        rest = msgspec.structs.replace(filter, before=page.next, limit=filter.limit - len(found))
        page = await find_ended_between(store, ended, rest)
        found += page.items
    return found


async def page_jobs(client: Client, filter: JobFilter, ended: EndedBetween | None = None) -> JobPage:
    """One page, by a bounded scan; unknown names are refused as by `list_jobs`."""
    store = await client.store()
    page = await (store.inspect.find_page(filter) if ended is None else find_ended_between(store, ended, filter))
    if not page.items and page.next is None:
        await _check_names_known(client, store, filter)
    return page


async def _check_names_known(client: Client, store: Store, filter: JobFilter) -> None:
    if filter.queue is not None:
        await check_queue(client, filter.queue)
    if filter.task is not None and client.registry.find(filter.task) is None:
        known = {task.name for task in await store.inspect.list_tasks()}
        if filter.task not in known:
            raise UnknownTask(filter.task, known | {task.name for task in client.registry})


async def check_queue(client: Client, queue: str) -> None:
    """Refuse a queue that no task, setting, job or worker names."""
    known = set(client.declared_queues())
    if queue not in known:
        store = await client.store()
        known |= {stats.name for stats in await store.inspect.list_queues()}
    if queue not in known:
        names = ", ".join(sorted(known)) or "none"
        raise InvalidArguments(f"there is no queue {queue!r}; known are {names}", "queue")


async def page_through(client: Client, filter: JobFilter, *, check_names: bool = True) -> AsyncIterator[list[Job]]:
    """All jobs that match, newest first, page by page and without their arguments; jobs made meanwhile are left out.

    check_names: refuse an unknown queue or task, as `list_jobs` does. Not for a second query of the same action: the first one
    may have ended the last job that made the name known.
    """
    store = await client.store()
    filter = msgspec.structs.replace(filter, limit=PAGE, preview=0)
    page = await list_jobs(client, filter) if check_names else await find_jobs(store, filter)
    while page:
        yield page
        if len(page) < PAGE:
            return
        page = await find_jobs(store, msgspec.structs.replace(filter, before=page[-1].id))
