"""All jobs that match, as JSON lines: what the API's list says of each, page after page while the browser takes them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from drumbeat.web.api import jobs
from drumbeat.web.api.filters import Listed
from drumbeat.web.api.records import JobRecord, Page, store_now
from drumbeat.web.call import MOST_ITEMS, Answer, Call

from .searching import JobsQuery, listed_of

MOST = 100_000
"""Beyond that somebody wants a program of their own, with the API."""


async def export(call: Call) -> Answer:
    query: JobsQuery = call.query
    listed = msgspec.structs.replace(listed_of(query, await store_now(call.host)), limit=MOST_ITEMS)
    # The first page before the answer begins: a refusal can still be told then.
    first: Page[JobRecord] = await call.ask(jobs.list_, query=listed)
    headers = {"Content-Disposition": 'attachment; filename="jobs.jsonl"', "Cache-Control": "no-store"}
    return Answer(body=_lines(call, listed, first), media="application/jsonl", headers=headers)


async def _lines(call: Call, listed: Listed, page: Page[JobRecord]) -> AsyncIterator[bytes]:
    told = 0
    while True:
        yield b"".join(msgspec.json.encode(job) + b"\n" for job in page.items)
        told += len(page.items)
        if page.next is None or told >= MOST:
            return
        page = await call.ask(jobs.list_, query=msgspec.structs.replace(listed, before=page.next))
