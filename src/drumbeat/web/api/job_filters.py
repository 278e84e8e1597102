"""Which jobs a request means: the query of lists and counts, and the filter of acts on many."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from drumbeat.admin.filters import JobQuery, read_filter
from drumbeat.core.job_query import JobFilter
from drumbeat.web.fields import Before, ErrorPart, Key, Limit, QueueName, TaskName, doc
from drumbeat.web.route import clamp_limit


class ApiJobFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What jobs have in common; what is left out may be anything."""

    state: Annotated[
        str | None,
        doc(
            "pending, running, succeeded, dead, cancelled; or what a pending job is shown as: ready, "
            "scheduled, retrying, waiting."
        ),
    ] = None
    task: TaskName = None
    queue: QueueName = None
    key: Key = None
    error: ErrorPart = None
    schedule: Annotated[str | None, doc("Jobs that are fires of this schedule.")] = None
    instance: Annotated[str | None, doc("Jobs that run there, or ran there last.")] = None
    since: Annotated[datetime | None, doc("Created at or after this moment, with its offset.")] = None
    until: Annotated[datetime | None, doc("Created before this moment.")] = None
    id: Annotated[str | None, doc("An id, or how it begins: at least 4 characters.")] = None
    id_end: Annotated[
        str | None, doc("How the id ends: at least 4 characters; the dashboard's lists show ids by their ends.")
    ] = None


class JobCountsQuery(ApiJobFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs to count."""


class JobListQuery(ApiJobFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs to list, newest first."""

    ended_since: Annotated[
        datetime | None,
        doc(
            "Ended at or after this moment, with its offset. Ends have no index: a page may be short or "
            "empty and have a next one."
        ),
    ] = None
    ended_until: Annotated[datetime | None, doc("Ended before this moment.")] = None
    before: Before = None
    limit: Limit = 50


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
