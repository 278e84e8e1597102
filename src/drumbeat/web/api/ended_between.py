"""Jobs that ended in an interval: `ended_since` and `ended_until` of `GET /api/v1/jobs`; bars of charts link there.

No store has an index of end times. A job ends after it was created, so ids are scanned downwards from the end of the
interval, up to a limit; the page then has a `next`, as any page of a search.
"""

from __future__ import annotations

import msgspec

from drumbeat.core.job import LIVE_STATES, Job
from drumbeat.core.job_query import JobFilter, JobPage
from drumbeat.durations import to_us
from drumbeat.store.protocol import Store
from drumbeat.web.api.job_filters import JobListQuery
from drumbeat.web.route import MAX_PAGE_SIZE

MAX_PAGES = 8
MAX_SKEW_US = 5_000_000
"""Allowed difference between the clock of the process that created a job (in its id) and the store's."""


async def find_ended_between(store: Store, query: JobListQuery, filter: JobFilter) -> JobPage:
    """Jobs that ended in the interval and match the filter, newest first."""
    since = None if query.ended_since is None else to_us(query.ended_since, name="ended_since")
    until = None if query.ended_until is None else to_us(query.ended_until, name="ended_until")
    limit, found = filter.limit, list[Job]()
    if until is not None:
        made_until = until + MAX_SKEW_US if filter.until is None else min(until + MAX_SKEW_US, filter.until)
        filter = msgspec.structs.replace(filter, until=made_until)
    filter = msgspec.structs.replace(filter, limit=MAX_PAGE_SIZE)
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
