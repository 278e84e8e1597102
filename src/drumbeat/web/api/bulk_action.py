"""One act on many jobs, as a request: at once, or, paced or with very many, in the background after the answer."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.background import BackgroundTask
from starlette.responses import Response

from drumbeat.admin.bulk import Action, BulkProgress, BulkResult
from drumbeat.web.api.job_filters import ApiJobFilter, to_job_query
from drumbeat.web.background_acts import BackgroundAct
from drumbeat.web.fields import doc
from drumbeat.web.problem import Problem
from drumbeat.web.request import DashboardRequest


class BulkRecord(BulkResult, frozen=True, kw_only=True):
    """What came of an act on many jobs."""

    in_background: Annotated[
        bool,
        doc(
            "It goes on in the background of this process, and the audit will tell how many it touched; "
            "`matched` is how many there were to begin with."
        ),
    ] = False
    act: Annotated[
        str | None,
        doc(
            "Of one that goes on: its id in the audit, where it can be watched, and stopped by `POST "
            "/api/v1/audit/{id}/stop`."
        ),
    ] = None


def describe_target(ids: list[str] | None, filter: ApiJobFilter | None, all: bool) -> str:
    """What the audit says that the act was about."""
    if ids is not None:
        return ids[0] if len(ids) == 1 else f"{len(ids)} jobs: {', '.join(ids[:5])}{' ...' if len(ids) > 5 else ''}"
    if filter is not None:
        return " ".join(f"{name}={value}" for name, value in to_job_query(filter).items())
    return "all" if all else ""


async def run_bulk_action(
    request: DashboardRequest,
    action: Action,
    *,
    ids: list[str] | None,
    filter: ApiJobFilter | None,
    all: bool,
    rate: float | None = None,
    dry_run: bool = False,
) -> BulkRecord | Response:
    """Do it, or count, or begin it."""
    jobs = request.app.jobs
    wanted: Any = {} if filter is None else to_job_query(filter)
    # Counted in any case: what cannot be meant is refused here, and nobody waits for an answer while a million are done.
    counted = await jobs.bulk(action, ids, all=all, rate=rate, dry_run=True, **wanted)
    if dry_run:
        request.touched = 0
        return _record(counted)
    if rate is None and not counted.capped:
        answer = await jobs.bulk(action, ids, all=all, **wanted)
        request.touched = answer.touched
        return _record(answer)

    under_way = BackgroundAct(
        id=request.act_id,
        who=request.caller.name,
        what=f"{action}: {describe_target(ids, filter, all)}",
        began_at=await request.store_time(),
        matched=counted.matched,
        is_capped=counted.capped,
        rate=rate,
        progress=BulkProgress(),
    )
    request.dashboard.background_acts.begin(under_way)

    async def finish() -> None:
        progress = under_way.progress
        try:
            await jobs.bulk(action, ids, all=all, rate=rate, progress=progress, **wanted)
        finally:
            # Also of one that was broken off: what it touched until then is done.
            request.touched = progress.touched
            request.dashboard.background_acts.end(request.act_id)
        if progress.is_stopped:
            raise Problem(409, f"stopped by {progress.stopped_by}")

    begun = msgspec.structs.replace(_record(counted), dry_run=False, in_background=True, act=request.act_id)
    return Response(msgspec.json.encode(begun), 202, media_type="application/json", background=BackgroundTask(finish))


def _record(answer: BulkResult) -> BulkRecord:
    return BulkRecord(**msgspec.structs.asdict(answer))
