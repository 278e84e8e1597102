"""The jobs that ended in one stretch of time: where a bar of a chart leads.

No store has an index of ends, and the API's filter knows when jobs were made, not when they ended. A job ends after it was
made, so ids are walked downwards from the end of the stretch, so many and no more; the page then says where to go on.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from drumbeat.durations import from_us, to_us
from drumbeat.web.api import jobs
from drumbeat.web.api.filters import Listed
from drumbeat.web.api.records import JobRecord, Page
from drumbeat.web.call import MOST_ITEMS, Call, clamped

MOST_PAGES = 8
SKEW_US = 5_000_000
"""Ids go by the clock of whoever made the job, ends by the store's: they may differ by so much."""


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    since: datetime | None
    until: datetime | None

    def has(self, job: JobRecord) -> bool:
        at = job.finished_at
        if at is None or job.state in ("pending", "running"):
            return False
        return (self.since is None or self.since <= at) and (self.until is None or at < self.until)


async def ended_in(call: Call, stretch: Stretch, listed: Listed) -> Page[JobRecord]:
    """Those that ended in it and match otherwise, newest first."""
    limit, found = clamped(listed.limit), list[JobRecord]()
    made_until = listed.until
    if stretch.until is not None:
        latest = from_us(to_us(stretch.until, name="ended_until") + SKEW_US)
        made_until = latest if made_until is None else min(latest, made_until)
    listed = msgspec.structs.replace(listed, until=made_until, limit=MOST_ITEMS)
    for _ in range(MOST_PAGES):
        page: Page[JobRecord] = await call.ask(jobs.list_, query=listed)
        found += [job for job in page.items if stretch.has(job)]
        if len(found) > limit:
            return Page(items=found[:limit], next=found[limit - 1].id)
        if page.next is None:
            return Page(items=found)
        listed = msgspec.structs.replace(listed, before=page.next)
    return Page(items=found, next=listed.before)
