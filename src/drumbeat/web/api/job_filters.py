"""Which jobs a request means: the query of lists and counts, and the filter of acts on many."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from drumbeat.admin.filters import JobQuery, read_filter
from drumbeat.core.job_query import JobFilter
from drumbeat.web.route import clamp_limit


class ApiJobFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What jobs have in common; what is left out may be anything."""

    state: str | None = None
    """pending, running, succeeded, dead, cancelled; or what a pending job is shown as: ready, scheduled, retrying, waiting."""
    task: str | None = None
    """The name of a task."""
    queue: str | None = None
    """The name of a queue."""
    key: str | None = None
    """The whole key."""
    error: str | None = None
    """A part of the error's type or message."""
    schedule: str | None = None
    """Jobs that are fires of this schedule."""
    instance: str | None = None
    """Jobs that run there, or ran there last."""
    since: datetime | None = None
    """Created at or after this moment, with its offset."""
    until: datetime | None = None
    """Created before this moment."""
    id: str | None = None
    """An id, or how it begins: at least 4 characters."""
    id_end: str | None = None
    """How the id ends: at least 4 characters; the dashboard's lists show ids by their ends."""


class JobCountsQuery(ApiJobFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs to count."""


class JobListQuery(ApiJobFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs to list, newest first."""

    ended_since: datetime | None = None
    """Ended at or after this moment, with its offset. Ends have no index: a page may be short or empty and have a next one."""
    ended_until: datetime | None = None
    """Ended before this moment."""
    before: str | None = None
    """Only jobs older than the one of this id: `next` of the page before."""
    limit: int = 50
    """At most so many; 1 to 500."""


def to_job_query(chosen: ApiJobFilter) -> JobQuery:
    """The same words for the admin, without those that only the API has (`ended.py`)."""
    given: Any = {
        name: value
        for name, value in msgspec.structs.asdict(chosen).items()
        if value is not None and not name.startswith("ended_")
    }
    if "limit" in given:
        given["limit"] = clamp_limit(given["limit"])
    wanted: JobQuery = given
    return wanted


def to_job_filter(chosen: ApiJobFilter) -> JobFilter:
    """The same for the store.

    Raises:
        InvalidArguments: which word, and what it may be.
    """
    return read_filter(to_job_query(chosen))
