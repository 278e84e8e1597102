"""`/api/v1/locks`: who holds which lock, who waits, and taking one away."""

from __future__ import annotations

import msgspec

from drumbeat.model.lock import LockInfo
from drumbeat.names import check_name
from drumbeat.web.api.finding import known
from drumbeat.web.api.records import Done, Page
from drumbeat.web.call import Call, clamped


class LocksQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which locks, by name."""

    all: bool = False
    """Also those that nobody holds or waits for."""
    after: str | None = None
    """Only names after this one: `next` of the page before."""
    limit: int = 50
    """At most so many; 1 to 500."""


class ReleaseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whom to take a lock away from."""

    ticket: str | None = None
    """Null: from all who hold it."""
    why: str = ""
    """Shown at the lock: at most 200 printable characters."""


async def list_(call: Call) -> Page[LockInfo]:
    query: LocksQuery = call.query
    store = await call.host.store()
    limit = clamped(query.limit)
    after = "" if query.after is None else check_name("after", query.after)
    found = await store.locks.page(after=after, limit=limit, all=query.all)
    return Page(items=found, next=found[-1].name if len(found) >= limit else None)


async def show(call: Call) -> LockInfo:
    return await known(call.host.locks.show(call.path["name"]))


async def release(call: Call) -> Done:
    body: ReleaseBody = call.body
    name = call.path["name"]
    await known(call.host.locks.show(name))
    call.touched = await call.host.locks.release(name, body.ticket, why=body.why, by=call.caller.name)
    return Done(touched=call.touched)
