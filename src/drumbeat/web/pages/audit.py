"""The audit: who did what, when, to how many jobs, and for what reason."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from drumbeat.core.audit import ActState
from drumbeat.web.api import audit
from drumbeat.web.api.audit import ActRecord, AuditQuery
from drumbeat.web.request import DashboardRequest

from .formatting import quote_segment
from .layout import render_page

ROWS = 50
RESOURCE_PATHS = {
    "jobs": "/jobs",
    "dead": "/jobs",
    "workflows": "/workflows",
    "queues": "/queues",
    "schedules": "/schedules",
    "limits": "/limits",
    "locks": "/locks",
}
"""What acts are about, the first part of their verbs: where its pages are."""


class AuditEntryView(msgspec.Struct, frozen=True, kw_only=True):
    act: ActRecord
    word: str
    """done, refused, stopped, failed, interrupted or running."""
    message: str
    """Why it failed."""
    href: str
    """The page of its target; empty: none, or several."""


def row_of(act: ActRecord) -> AuditEntryView:
    outcome = act.outcome or ""
    word, _, message = outcome.partition(":")
    if act.state is not ActState.ENDED:
        word, message = str(act.state), f"{act.stopped_by} has asked it to stop" if act.stopped_by else ""
    elif outcome.startswith("stopped by "):
        word, message = "stopped", ""
    elif word not in ("done", "refused", "failed"):
        word, message = "failed", outcome
    return AuditEntryView(act=act, word=word, message=message.strip(), href=_href(act))


def _href(act: ActRecord) -> str:
    """The page of a target that is one name or id; a filter contains spaces or other characters."""
    resource, _, verb = act.verb.partition(".")
    path = RESOURCE_PATHS.get(resource)
    is_one = bool(act.target) and all(char.isalnum() or char in "_.:-" for char in act.target)
    if path is None or not is_one or verb == "enqueue":
        return ""
    return f"{path}/{quote_segment(act.target)}"


async def index(request: DashboardRequest, query: AuditQuery) -> Response:
    """GET /audit."""
    found = await audit.list_acts(request, msgspec.structs.replace(query, limit=ROWS))
    return await render_page(
        request,
        "audit.html",
        page="audit",
        title="Audit",
        rows=[row_of(each) for each in found.items],
        next=found.next,
        chosen={"who": query.who, "verb": query.verb, "target": query.target},
        before=query.before,
        resources=tuple(RESOURCE_PATHS),
    )
