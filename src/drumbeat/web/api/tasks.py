"""`/api/v1/tasks`: the functions that jobs are calls of, and their runs."""

from __future__ import annotations

import msgspec

from drumbeat.nouns import Run, TaskInfo
from drumbeat.web.api.finding import known
from drumbeat.web.api.records import Page, short_error
from drumbeat.web.call import Call, clamped


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose runs, newest job first."""

    queue: str | None = None
    """Only of jobs in this queue."""
    key: str | None = None
    """Only of jobs with this key."""
    error: str | None = None
    """A part of the error's type or message."""
    state: str | None = None
    """Of the job."""
    before: str | None = None
    """Only of jobs older than the one of this id: `next` of the page before."""
    limit: int = 50
    """The runs of at most so many jobs; 1 to 500."""


async def list_(call: Call) -> Page[TaskInfo]:
    return Page(items=await call.host.tasks.list())


async def show(call: Call) -> TaskInfo:
    return await known(call.host.tasks.show(call.path["name"]))


async def history(call: Call) -> Page[Run]:
    query: HistoryQuery = call.query
    name = call.path["name"]
    await known(call.host.tasks.show(name))
    page = await call.host.tasks.history(
        name,
        queue=query.queue,
        key=query.key,
        error=query.error,
        state=query.state,
        before=query.before,
        limit=clamped(query.limit),
    )
    items = [msgspec.structs.replace(run, error=short_error(run.error)) for run in page.items]
    return Page(items=items, next=page.next)
