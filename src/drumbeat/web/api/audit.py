"""`/api/v1/audit`: who did what, when, to how many, and why."""

from __future__ import annotations

import msgspec

from drumbeat.errors import InvalidArguments
from drumbeat.ids import is_job_id
from drumbeat.model.audit import Act
from drumbeat.web.api.records import Page
from drumbeat.web.call import Call, clamped


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which acts, newest first."""

    who: str | None = None
    """The whole name of who did it."""
    verb: str | None = None
    """How it begins: `queues.` for all that was done to queues."""
    target: str | None = None
    """The whole of what it was done to."""
    before: str | None = None
    """Only acts before the one of this id: `next` of the page before."""
    limit: int = 50
    """At most so many; 1 to 500."""


async def list_(call: Call) -> Page[Act]:
    query: AuditQuery = call.query
    limit = clamped(query.limit)
    if query.before is not None and not is_job_id(query.before):
        raise InvalidArguments("before must be the id of an act", "before")
    store = await call.host.store()
    found = await store.audit.page(
        before=query.before, limit=limit, who=query.who, verb=query.verb, target=query.target
    )
    # Without the answers: 500 of them could be 32 MB, and they are kept for those who ask again with the same key.
    items = [msgspec.structs.replace(act, answer=None, request_hash=None) for act in found]
    return Page(items=items, next=found[-1].id if len(found) >= limit else None)
