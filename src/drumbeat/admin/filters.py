"""Which jobs somebody means: by id, or by what they have in common; read and checked."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from typing import Any, TypedDict

import msgspec

from drumbeat.client import Client
from drumbeat.core.job import Job, JobFilter, JobPage, JobState, PendingView
from drumbeat.durations import to_us
from drumbeat.errors import InvalidArguments, UnknownTask
from drumbeat.ids import JobId, is_job_id
from drumbeat.names import check_key, check_name, short_repr
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.protocol import Store

MAX_LISTED = 100_000
PAGE = 500
MAX_PREVIEW = 1_000_000
_INSTANCE = re.compile(r"[0-9a-f]{16}")
_ID_PART = re.compile(r"[0-9a-fA-F-]+")


class JobCriteria(TypedDict, total=False):
    """What jobs may have in common; None means anything."""

    task: str | None
    queue: str | None
    key: str | None
    error: str | None
    """A part of the error's type or message."""
    schedule: str | None
    """Fires of this schedule."""
    instance: str | None
    """Where it runs, or ran last before it ended."""
    since: datetime | str | None
    """Made at this moment or later: by the clock of whoever made it, to the millisecond. A text is in ISO 8601, with a zone."""
    until: datetime | str | None
    """Made before this moment."""


class JobQuery(JobCriteria, total=False):
    """Which jobs to list."""

    state: JobState | PendingView | str | None
    """A state, or the word by which people see a pending job: ready, scheduled, retrying, waiting."""
    id: str | None
    """An id, or the beginning of one: at least 4 characters."""
    id_end: str | None
    """How the id ends: at least 4 characters."""
    before: str | None
    """Only jobs older than the one of this id: the next page."""
    limit: int
    """At most so many; 50 if it is not said."""
    preview: int
    """Read only so many characters of arguments, progress and result; all of them if it is not said."""


def read_filter(query: JobQuery | JobCriteria) -> JobFilter:
    """The filter for the store.

    Raises:
        InvalidArguments: an unknown word or an impossible value; it says what is allowed.
    """
    unknown = set(query) - _READERS.keys()
    if unknown:
        allowed = ", ".join(_READERS)
        raise InvalidArguments(f"jobs cannot be chosen by {min(unknown)!r}; use {allowed}", min(unknown))
    given = {name: value for name, value in query.items() if value is not None}
    return msgspec.structs.replace(JobFilter(), **dict(_READERS[name](name, value) for name, value in given.items()))


def _read_state(name: str, value: object) -> tuple[str, JobState | PendingView]:
    if value in list(PendingView):
        return "view", PendingView(str(value))
    if value in list(JobState):
        return name, JobState(str(value))
    raise InvalidArguments(f"there is no state {short_repr(value)}: use {', '.join([*JobState, *PendingView])}", name)


def _read_error(name: str, value: object) -> tuple[str, str]:
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidArguments(f"error must be a part of the error's text, not {short_repr(value)}", name)
    return name, value


def _read_instance(name: str, value: object) -> tuple[str, str]:
    if not isinstance(value, str) or not _INSTANCE.fullmatch(value):
        raise InvalidArguments(f"instance must be the id of an instance, 16 characters, not {short_repr(value)}", name)
    return name, value


def _read_timestamp(name: str, value: object) -> tuple[str, int]:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidArguments(
                f"{name} must be a moment such as 2026-11-15T09:30Z, not {short_repr(value)}", name
            ) from None
    return name, to_us(value, name=name)  # type: ignore[arg-type]


def _read_id_prefix(name: str, value: object) -> tuple[str, str]:
    if not isinstance(value, str) or not 4 <= len(value) <= 36 or not _ID_PART.fullmatch(value):
        raise InvalidArguments(
            f"id must be the id of a job or its beginning, at least 4 characters, not {short_repr(value)}", name
        )
    return name, value.lower()


def _read_id_suffix(name: str, value: object) -> tuple[str, str]:
    if not isinstance(value, str) or not 4 <= len(value) <= 36 or not _ID_PART.fullmatch(value):
        raise InvalidArguments(
            f"id_end must be the end of a job's id, at least 4 characters, not {short_repr(value)}", name
        )
    return name, value.lower()


def _read_before(name: str, value: object) -> tuple[str, JobId]:
    if not isinstance(value, str) or not is_job_id(value):
        raise InvalidArguments(f"before must be the id of a job, not {short_repr(value)}", name)
    return name, JobId(value)


def _read_limit(name: str, value: object) -> tuple[str, int]:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_LISTED:
        raise InvalidArguments(f"limit must be a whole number from 1 to {MAX_LISTED}, not {short_repr(value)}", name)
    return name, value


def _read_preview(name: str, value: object) -> tuple[str, int]:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_PREVIEW:
        raise InvalidArguments(f"preview must be a whole number from 0 to {MAX_PREVIEW}, not {short_repr(value)}", name)
    return name, value


_READERS: dict[str, Callable[[str, object], tuple[str, Any]]] = {
    "state": _read_state,
    "task": lambda name, text: (name, check_name(name, text)),
    "queue": lambda name, text: (name, check_name(name, text)),
    "key": lambda name, text: (name, check_key(text)),
    "error": _read_error,
    "schedule": lambda name, text: (name, check_name(name, text)),
    "instance": _read_instance,
    "since": _read_timestamp,
    "until": _read_timestamp,
    "id": _read_id_prefix,
    "id_end": _read_id_suffix,
    "before": _read_before,
    "limit": _read_limit,
    "preview": _read_preview,
}


def read_ids(which: str | Iterable[str]) -> list[JobId]:
    """One id or several, each once, in order. Whether there are such jobs is for the store to say."""
    return list(dict.fromkeys(JobId(id) for id in ([which] if isinstance(which, str) else which)))


def check_selection(which: object, criteria: JobCriteria) -> None:
    """Ids or a filter, one of them: nobody should replay or cancel everything by leaving something out."""
    if (which is None) == (not any(value is not None for value in criteria.values())):
        raise InvalidArguments("say which jobs: their ids, or one or more of task=, queue=, key=, error=, since= ...")


async def list_jobs(client: Client, filter: JobFilter) -> list[Job]:
    """The jobs; where there are none, a queue or task that nobody has heard of is refused, because it is a slip."""
    store = await client.store()
    found = await find_jobs(store, filter)
    if not found:
        await _check_names_known(client, store, filter)
    return found


async def page_jobs(client: Client, filter: JobFilter) -> JobPage:
    """One page, found by a bounded look; slips are refused as by `listed`."""
    store = await client.store()
    page = await store.inspect.find_page(filter)
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
    """Refuse a queue that no task, setting, job or worker has."""
    known = set(client.declared_queues())
    if queue not in known:
        store = await client.store()
        known |= {stats.name for stats in await store.inspect.list_queues()}
    if queue not in known:
        names = ", ".join(sorted(known)) or "none"
        raise InvalidArguments(f"there is no queue {queue!r}; known are {names}", "queue")


async def all_ids(client: Client, filter: JobFilter, *, check_names: bool = True) -> AsyncIterator[list[JobId]]:
    """The ids of all jobs that the filter means, newest first, page by page; those that come meanwhile are not among them.

    heard_of: as `listed`, refuse a queue or task that nobody knows. Not for a second look: the first may have led to the end of
    all that was known of it.
    """
    store = await client.store()
    filter = msgspec.structs.replace(filter, limit=PAGE, preview=0)
    page = await list_jobs(client, filter) if check_names else await find_jobs(store, filter)
    while page:
        yield [job.id for job in page]
        if len(page) < PAGE:
            return
        page = await find_jobs(store, msgspec.structs.replace(filter, before=page[-1].id))
