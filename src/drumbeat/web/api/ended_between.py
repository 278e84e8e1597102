"""Jobs that ended in a stretch of time: `ended_since` and `ended_until` of `GET /api/v1/jobs`; a bar of a chart leads there.

No store has an index of ends. A job ends after it was made, so ids are walked downwards from the end of the stretch, so
many and no more; the page then says where to go on, as any page of a search does.
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
"""Ids go by the clock of whoever made the job, ends by the store's: they may differ by so much."""


async def find_ended_between(store: Store, query: JobListQuery, filter: JobFilter) -> JobPage:
    """Those that ended in the stretch of the query and match otherwise, newest first."""
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
    """Whether it ended from `since` on and before `until`, in microseconds; None: whenever."""
    if job.finished_at is None or job.state in LIVE_STATES:
        return False
    at = to_us(job.finished_at)
    return (since is None or since <= at) and (until is None or at < until)
