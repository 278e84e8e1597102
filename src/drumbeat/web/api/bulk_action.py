"""An act on many jobs: at once, or, with a rate or very many jobs, in the background after the response."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.background import BackgroundTask
from starlette.responses import Response

from drumbeat.admin.audit import ActInProgress
from drumbeat.admin.bulk import Action, BulkResult
from drumbeat.web.api.job_filters import ApiJobFilter, to_job_query
from drumbeat.web.audit_middleware import ActStopped
from drumbeat.web.fields import Reason, doc
from drumbeat.web.request import DashboardRequest

Rate = Annotated[
    float | None, doc("At most this many per second. The act then continues in the background, and the status is 202.")
]


class BulkRecord(BulkResult, frozen=True, kw_only=True):
    """The result of an act on many jobs."""

    in_background: Annotated[
        bool,
        doc(
            "It goes on in the background: the audit tells how many it has touched, and whether it was interrupted; "
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


class BulkSelection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs: ids, a filter, or all."""

    ids: Annotated[list[str] | None, doc("At most 10,000.")] = None
    filter: Annotated[ApiJobFilter | None, doc("Fields that they have in common; at least one.")] = None
    all: Annotated[bool, doc("All jobs to which the act applies.")] = False
    dry_run: Annotated[bool, doc("Only count them: nothing is changed, and nothing is recorded in the audit.")] = False
    reason: Reason = ""

    def target(self) -> str:
        """The target in the audit."""
        ids = self.ids
        if ids is not None:
            return ids[0] if len(ids) == 1 else f"{len(ids)} jobs: {', '.join(ids[:5])}{' ...' if len(ids) > 5 else ''}"
        if self.filter is not None:
            return " ".join(f"{name}={value}" for name, value in to_job_query(self.filter).items())
        return "all" if self.all else ""


async def run_bulk_action(
    request: DashboardRequest, action: Action, selection: BulkSelection, rate: float | None = None
) -> BulkRecord | Response:
    """Do it, or count only, or begin it in the background."""
    ids, filter, all = selection.ids, selection.filter, selection.all
    jobs = request.app.jobs
    wanted: Any = {} if filter is None else to_job_query(filter)
    # Counted in any case: an invalid selection is refused here, and a large one continues in the background.
    counted = await jobs.bulk(action, ids, all=all, rate=rate, dry_run=True, **wanted)
    if selection.dry_run:
        return _record(counted)
    if rate is None and not counted.capped:
        return _record(await jobs.bulk(action, ids, all=all, **wanted))

    progress = await request.app.audit.progress(
        ActInProgress(request.act_id), matched=None if counted.capped else counted.matched
    )

    async def finish() -> None:
        try:
            await jobs.bulk(action, ids, all=all, rate=rate, progress=progress, **wanted)
        finally:
            # Also after an error: what was touched until then is done.
            request.touched = progress.touched
        if progress.is_stopped:
            raise ActStopped(f"stopped by {progress.stopped_by}")

    begun = msgspec.structs.replace(_record(counted), dry_run=False, in_background=True, act=request.act_id)
    return Response(msgspec.json.encode(begun), 202, media_type="application/json", background=BackgroundTask(finish))


def _record(answer: BulkResult) -> BulkRecord:
    return BulkRecord(**msgspec.structs.asdict(answer))
