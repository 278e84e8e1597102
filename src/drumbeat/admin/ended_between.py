"""Jobs that ended in a window of time: `ended_since` and `ended_until` of jobs in Python, CLI and API.

No store has an index of end times. A job ends after it was created, so ids are scanned downwards from the end of the
interval, up to a limit; the page then has a `next`, as any page of a search.
"""

from __future__ import annotations

import msgspec

from drumbeat.core.job import LIVE_STATES, Job
from drumbeat.core.job_query import JobFilter, JobPage
from drumbeat.durations import to_us
from drumbeat.store.protocol import Store

MAX_PAGES = 8
PAGE_SIZE = 500
MAX_SKEW_US = 5_000_000
"""Allowed difference between the clock of the process that created a job (in its id) and the store's."""


class EndedBetween(msgspec.Struct, frozen=True, kw_only=True):
    """From `since` to before `until`, in microseconds; None: no bound."""

    since: int | None = None
    until: int | None = None


async def find_ended_between(store: Store, ended: EndedBetween, filter: JobFilter) -> JobPage:
    """Jobs that ended in the window and match the filter, newest first."""
    since, until = ended.since, ended.until
    limit, found = filter.limit, list[Job]()
    if until is not None:
        made_until = until + MAX_SKEW_US if filter.until is None else min(until + MAX_SKEW_US, filter.until)
        filter = msgspec.structs.replace(filter, until=made_until)
    filter = msgspec.structs.replace(filter, limit=PAGE_SIZE)
    for _ in range(MAX_PAGES):
        page = await store.inspect.find_page(filter)
        found += [job for job in page.items if has_ended_between(job, since, until)]
        if len(found) > limit:
            return JobPage(items=found[:limit], next=found[limit - 1].id)
        if page.next is None:
            return JobPage(items=found, next=None)
        filter = msgspec.structs.replace(filter, before=page.next)
    return JobPage(items=found, next=filter.before)


def has_ended_between(job: Job, since: int | None, until: int | None) -> bool:
    """Whether it ended in [since, until), in microseconds; None: no bound."""
    if job.finished_at is None or job.state in LIVE_STATES:
        return False
    at = to_us(job.finished_at)
    return (since is None or since <= at) and (until is None or at < until)
