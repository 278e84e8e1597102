"""Which jobs somebody means: by id, or by what they have in common; read and checked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TypedDict

import msgspec

from drumbeat.client import Client
from drumbeat.errors import InvalidArguments, UnknownTask
from drumbeat.ids import JobId, is_job_id
from drumbeat.model.job import Job, JobFilter, JobState, View
from drumbeat.names import check_key, check_name, shown
from drumbeat.store.protocol import Store

MOST_LISTED = 100_000
PAGE = 500


class Common(TypedDict, total=False):
    """What jobs may have in common; None means anything."""

    task: str | None
    queue: str | None
    key: str | None
    error: str | None
    """A part of the error's type or message."""


class Wanted(Common, total=False):
    """Which jobs to list."""

    state: JobState | str | None
    before: str | None
    """Only jobs older than the one of this id: the next page."""
    limit: int
    """At most so many; 50 if it is not said."""


def read_filter(wanted: Wanted | Common) -> JobFilter:
    """The filter for the store.

    Raises:
        InvalidArguments: an unknown word or an impossible value; it says what is allowed.
    """
    unknown = set(wanted) - set(Wanted.__annotations__)
    if unknown:
        allowed = ", ".join(Wanted.__annotations__)
        raise InvalidArguments(f"jobs cannot be chosen by {min(unknown)!r}; use {allowed}", min(unknown))
    given = {name: value for name, value in wanted.items() if value is not None}
    readers = {
        "state": _state,
        "task": lambda text: check_name("task", text),
        "queue": lambda text: check_name("queue", text),
        "key": check_key,
        "error": _part,
        "before": _before,
        "limit": _limit,
    }
    return msgspec.structs.replace(JobFilter(), **{name: readers[name](value) for name, value in given.items()})


def _state(value: object) -> JobState:
    try:
        return JobState(value)  # type: ignore[arg-type]
    except ValueError:
        hint = f"; {value!r} is how a pending job is shown" if value in list(View) else ""
        raise InvalidArguments(f"there is no state {shown(value)}: use {', '.join(JobState)}{hint}", "state") from None


def _part(value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidArguments(f"error must be a part of the error's text, not {shown(value)}", "error")
    return value


def _before(value: object) -> JobId:
    if not isinstance(value, str) or not is_job_id(value):
        raise InvalidArguments(f"before must be the id of a job, not {shown(value)}", "before")
    return JobId(value)


def _limit(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_LISTED:
        raise InvalidArguments(f"limit must be a whole number from 1 to {MOST_LISTED}, not {shown(value)}", "limit")
    return value


def read_ids(which: str | Iterable[str]) -> list[JobId]:
    """One id or several, each once, in order. Whether there are such jobs is for the store to say."""
    return list(dict.fromkeys(JobId(id) for id in ([which] if isinstance(which, str) else which)))


def check_either(which: object, common: Common) -> None:
    """Ids or a filter, one of them: nobody should replay or cancel everything by leaving something out."""
    if (which is None) == (not any(value is not None for value in common.values())):
        raise InvalidArguments("say which jobs: their ids, or one or more of task=, queue=, key=, error=")


async def listed(client: Client, filter: JobFilter) -> list[Job]:
    """The jobs; where there are none, a queue or task that nobody has heard of is refused, because it is a slip."""
    store = await client.store()
    found = await store.inspect.jobs(filter)
    if not found:
        await _check_heard_of(client, store, filter)
    return found


async def _check_heard_of(client: Client, store: Store, filter: JobFilter) -> None:
    if filter.queue is not None:
        await check_queue(client, filter.queue)
    if filter.task is not None and client.registry.find(filter.task) is None:
        known = {task.name for task in await store.inspect.tasks()}
        if filter.task not in known:
            raise UnknownTask(filter.task, known | {task.name for task in client.registry})


async def check_queue(client: Client, queue: str) -> None:
    """Refuse a queue that no task, setting, job or worker has."""
    known = set(client.declared_queues())
    if queue not in known:
        store = await client.store()
        known |= {stats.name for stats in await store.inspect.queues()}
    if queue not in known:
        names = ", ".join(sorted(known)) or "none"
        raise InvalidArguments(f"there is no queue {queue!r}; known are {names}", "queue")


async def all_ids(client: Client, filter: JobFilter) -> AsyncIterator[list[JobId]]:
    """The ids of all jobs that the filter means, newest first, page by page; those that come meanwhile are not among them."""
    page = await listed(client, msgspec.structs.replace(filter, limit=PAGE))
    store = await client.store()
    while page:
        yield [job.id for job in page]
        if len(page) < PAGE:
            return
        page = await store.inspect.jobs(msgspec.structs.replace(filter, limit=PAGE, before=page[-1].id))
