"""All jobs that match, as JSON lines: what the API says of each, page after page while the browser takes them.

Long texts are cut here, too, but much later than in a list; `truncated` says which."""

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
"""Beyond that somebody wants a program of their own, with the API."""


async def export(request: DashboardRequest) -> Response:
    query: JobsPageQuery = request.query
    listed = msgspec.structs.replace(to_list_query(query, await request.store_time()), limit=PAGE_SIZE)
    # The first page before the answer begins: a refusal can still be told then.
    first = await jobs.read_page(request, listed, MAX_TEXT_CHARS)
    headers = {"Content-Disposition": 'attachment; filename="jobs.jsonl"'}
    return StreamingResponse(_lines(request, listed, first), media_type="application/jsonl", headers=headers)


async def _lines(request: DashboardRequest, listed: JobListQuery, page: Page[JobRecord]) -> AsyncIterator[bytes]:
    told = 0
    while True:
        yield b"".join(msgspec.json.encode(job) + b"\n" for job in page.items)
        told += len(page.items)
        if page.next is None or told >= MAX_JOBS:
            return
        page = await jobs.read_page(request, msgspec.structs.replace(listed, before=page.next), MAX_TEXT_CHARS)
