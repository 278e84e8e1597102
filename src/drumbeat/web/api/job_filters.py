"""Job filters of the API: for lists, counts and bulk acts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from drumbeat.admin.filters import JobQuery, read_filter
from drumbeat.core.job_query import JobFilter
from drumbeat.web.fields import Before, ErrorPart, Key, Limit, QueueName, TaskName, doc
from drumbeat.web.route import clamp_limit


class ApiJobFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields that jobs have in common; fields left out match anything."""

    state: Annotated[
        str | None,
        doc(
            "pending, running, succeeded, dead, cancelled; or the view of a pending job: ready, "
            "scheduled, retrying, waiting."
        ),
    ] = None
    task: TaskName = None
    queue: QueueName = None
    key: Key = None
    error: ErrorPart = None
    schedule: Annotated[str | None, doc("Jobs created by this schedule.")] = None
    instance: Annotated[str | None, doc("Jobs whose current or last run is there.")] = None
    parent: Annotated[str | None, doc("Jobs that the job with this id enqueued.")] = None
    workflow: Annotated[str | None, doc("Jobs of the workflow with this id.")] = None
    since: Annotated[datetime | None, doc("Created at or after this time, with offset.")] = None
    until: Annotated[datetime | None, doc("Created before this time.")] = None
    id: Annotated[str | None, doc("An id, or a prefix of at least 4 characters.")] = None
    id_end: Annotated[
        str | None, doc("A suffix of the id, at least 4 characters; the dashboard's lists show suffixes.")
    ] = None


class JobCountsQuery(ApiJobFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs to count."""


class JobListQuery(ApiJobFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs to list, newest first."""

    ended_since: Annotated[
        datetime | None,
        doc(
            "Ended at or after this time, with offset. End times have no index: a page may be short or "
            "empty and have a next one."
        ),
    ] = None
    ended_until: Annotated[datetime | None, doc("Ended before this time.")] = None
    before: Before = None
    limit: Limit = 50


def to_job_query(chosen: ApiJobFilter) -> JobQuery:
    """The filter for the admin, without end times (`admin/ended_between.py`)."""
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
    """The filter for the store.

    Raises:
        InvalidArguments: an invalid field.
    """
    return read_filter(to_job_query(chosen))
