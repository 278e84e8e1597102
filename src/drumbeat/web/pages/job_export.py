"""Export of all matching jobs as JSON lines, streamed page by page.

Long texts are truncated, but much later than in lists; `truncated` names them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.responses import Response, StreamingResponse

from drumbeat.web.api import jobs
from drumbeat.web.api.job_filters import JobListQuery
from drumbeat.web.api.records import JobRecord, Page
from drumbeat.web.request import DashboardRequest

from .search_query import JobsPageQuery, to_list_query

PAGE_SIZE = 50
MAX_TEXT_CHARS = 16 * 1024
"""Characters of each long text: a page of 50 jobs has 2 MB at most."""
MAX_JOBS = 100_000
"""For more, use the API."""


async def export(request: DashboardRequest, query: JobsPageQuery) -> Response:
    listed = msgspec.structs.replace(to_list_query(query, await request.store_time()), limit=PAGE_SIZE)
    # The first page is read before the response starts, so that an error can be reported.
    first = await jobs.list_jobs(request, listed, MAX_TEXT_CHARS)
    headers = {"Content-Disposition": 'attachment; filename="jobs.jsonl"'}
    return StreamingResponse(_lines(request, listed, first), media_type="application/jsonl", headers=headers)


async def _lines(request: DashboardRequest, listed: JobListQuery, page: Page[JobRecord]) -> AsyncIterator[bytes]:
    told = 0
    while True:
        yield b"".join(msgspec.json.encode(job) + b"\n" for job in page.items)
        told += len(page.items)
        if page.next is None or told >= MAX_JOBS:
            return
        page = await jobs.list_jobs(request, msgspec.structs.replace(listed, before=page.next), MAX_TEXT_CHARS)
