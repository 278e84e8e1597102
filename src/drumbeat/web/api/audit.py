"""`/api/v1/audit`: who did what, when, to how many jobs, and for what reason."""

from __future__ import annotations

from typing import Annotated

import msgspec

from drumbeat.core.audit import AuditEntry, AuditFilter
from drumbeat.errors import InvalidArguments
from drumbeat.ids import is_job_id
from drumbeat.web.api.records import Page, WriteResult
from drumbeat.web.fields import Before, Limit, doc
from drumbeat.web.problem import Problem
from drumbeat.web.request import DashboardRequest
from drumbeat.web.route import clamp_limit


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which acts, newest first."""

    who: Annotated[str | None, doc("The exact name.")] = None
    verb: Annotated[str | None, doc("A prefix: `queues.` for all acts on queues.")] = None
    target: Annotated[str | None, doc("The exact target.")] = None
    before: Before = None
    limit: Limit = 50


async def list_acts(request: DashboardRequest, query: AuditQuery) -> Page[AuditEntry]:
    limit = clamp_limit(query.limit)
    if query.before is not None and not is_job_id(query.before):
        raise InvalidArguments("before must be the id of an act", "before")
    store = await request.app.store()
    found = await store.audit.list_page(
        AuditFilter(before=query.before, limit=limit, who=query.who, verb=query.verb, target=query.target)
    )
    # Without the stored responses: 500 of them could be 32 MB.
    items = [
        msgspec.structs.replace(act, answer=None, request_hash=None, touched=_touched(request, act)) for act in found
    ]
    return Page(items=items, next=found[-1].id if len(found) >= limit else None)


async def stop_act(request: DashboardRequest, id: str) -> WriteResult:
    """It ends before its next step; what is done stays done."""
    under_way = request.dashboard.background_acts.get(id)
    if under_way is not None:
        under_way.progress.stop(request.caller.name)
        return WriteResult(touched=1)
    store = await request.app.store()
    act = await store.audit.get(id) if is_job_id(id) else None
    if act is None:
        raise Problem(404, "audit entry not found", argument="id", type="act-not-found")
    if act.done_at is not None:
        raise Problem(409, f"already finished: {act.outcome}", argument="id", type="act-ended")
    raise Problem(
        409,
        "not running in this process; stop it on the dashboard that started it",
        argument="id",
        type="act-elsewhere",
    )


def _touched(request: DashboardRequest, act: AuditEntry) -> int | None:
    """Of an act in progress here: the number so far."""
    under_way = request.dashboard.background_acts.get(act.id)
    return act.touched if under_way is None else under_way.progress.touched
