"""`/api/v1/locks`: holders and waiters of locks, and forced release."""

from __future__ import annotations

from typing import Annotated

import msgspec

from drumbeat.core.lock import LockInfo
from drumbeat.names import check_name
from drumbeat.web.api.records import Page, WriteResult
from drumbeat.web.fields import After, Limit, doc
from drumbeat.web.request import DashboardRequest, refuse_with
from drumbeat.web.route import clamp_limit


class LocksQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which locks, by name."""

    all: Annotated[bool, doc("Include locks without holders and waiters.")] = False
    after: After = None
    limit: Limit = 50


class ReleaseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which ticket to release."""

    ticket: Annotated[str | None, doc("Null: all holders.")] = None
    reason: Annotated[str, doc("Shown at the lock: at most 200 printable characters.")] = ""


async def list_locks(request: DashboardRequest, query: LocksQuery) -> Page[LockInfo]:
    store = await request.app.store()
    limit = clamp_limit(query.limit)
    after = "" if query.after is None else check_name("after", query.after)
    found = await store.locks.list_page(after=after, limit=limit, all=query.all)
    return Page(items=found, next=found[-1].name if len(found) >= limit else None)


async def show(request: DashboardRequest, name: str) -> LockInfo:
    return await refuse_with(404, request.app.locks.show(name))


async def force_release(request: DashboardRequest, name: str, body: ReleaseBody) -> WriteResult:
    await show(request, name)
    return WriteResult(
        touched=await request.app.locks.release(name, body.ticket, reason=body.reason, by=request.caller.name)
    )
