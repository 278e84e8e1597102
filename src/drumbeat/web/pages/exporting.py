"""All jobs that match, as JSON lines: what the API says of each, page after page while the browser takes them.

Long texts are cut here, too, but much later than in a list; `truncated` says which."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from drumbeat.web.api import jobs
from drumbeat.web.api.filters import Listed
from drumbeat.web.api.records import JobRecord, Page, store_now
from drumbeat.web.call import Answer, Call

from .searching import JobsQuery, listed_of

AT_ONCE = 50
PREVIEW = 16 * 1024
"""Characters of each long text: a page of 50 jobs has 2 MB at most."""
MOST = 100_000
"""Beyond that somebody wants a program of their own, with the API."""


async def export(call: Call) -> Answer:
    query: JobsQuery = call.query
    listed = msgspec.structs.replace(listed_of(query, await store_now(call.host)), limit=AT_ONCE)
    # The first page before the answer begins: a refusal can still be told then.
    first = await jobs.read_page(call, listed, PREVIEW)
    headers = {"Content-Disposition": 'attachment; filename="jobs.jsonl"', "Cache-Control": "no-store"}
    return Answer(body=_lines(call, listed, first), media="application/jsonl", headers=headers)


async def _lines(call: Call, listed: Listed, page: Page[JobRecord]) -> AsyncIterator[bytes]:
    told = 0
    while True:
        yield b"".join(msgspec.json.encode(job) + b"\n" for job in page.items)
        told += len(page.items)
        if page.next is None or told >= MOST:
            return
        page = await jobs.read_page(call, msgspec.structs.replace(listed, before=page.next), PREVIEW)
