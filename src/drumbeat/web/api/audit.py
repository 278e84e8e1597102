"""`/api/v1/audit`: who did what, when, to how many jobs, and for what reason."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from drumbeat.core.audit import ActState, AuditEntry, AuditFilter, act_state
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
    unended: Annotated[
        bool, doc("Only acts on many jobs without a recorded end: `state` says whether they run or were interrupted.")
    ] = False
    before: Before = None
    limit: Limit = 50


class ActRecord(AuditEntry, frozen=True, kw_only=True):
    """A recorded act."""

    state: Annotated[ActState, doc("ended, running, or interrupted: its process ended before it could record the end.")]


async def list_acts(request: DashboardRequest, query: AuditQuery) -> Page[ActRecord]:
    limit = clamp_limit(query.limit)
    if query.before is not None and not is_job_id(query.before):
        raise InvalidArguments("before must be the id of an act", "before")
    store = await request.app.store()
    found = await store.audit.list_page(
        AuditFilter(
            before=query.before,
            limit=limit,
            who=query.who,
            verb=query.verb,
            target=query.target,
            unended=query.unended,
        )
    )
    now = await request.store_time()
    # Without the stored responses: 500 of them could be 32 MB.
    items = [to_act_record(act, now) for act in found]
    return Page(items=items, next=found[-1].id if len(found) >= limit else None)


def to_act_record(act: AuditEntry, now: datetime) -> ActRecord:
    facts = msgspec.structs.asdict(act) | {"answer": None, "request_hash": None}
    return ActRecord(**facts, state=act_state(act, now))


async def stop_act(request: DashboardRequest, id: str) -> WriteResult:
    """Wherever it runs, it ends before its next step; what is done stays done."""
    store = await request.app.store()
    act = await store.audit.get(id) if is_job_id(id) else None
    if act is None:
        raise Problem(404, "audit entry not found", argument="id", type="act-not-found")
    try:
        await request.app.audit.stop(id, by=request.caller.name)
    except InvalidArguments as error:
        state = act_state(act, await request.store_time())
        raise Problem(409, str(error), argument="id", type=f"act-{state}") from error
    return WriteResult(touched=1)
