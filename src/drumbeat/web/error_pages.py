"""A refusal for somebody who looks at a page: HTML instead of JSON, and the login for somebody who has not logged in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drumbeat.protocols import DashboardApp
from drumbeat.web.problem import Problem
from drumbeat.web.request import API_PREFIX, AccessRole, Caller, DashboardRequest, DashboardResponse
from drumbeat.web.state import DashboardState

ANONYMOUS = Caller(name="", role=AccessRole.VIEWER, via="nobody")


def accepts_html(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Whether a person looks at the answer."""
    return method in ("GET", "HEAD") and not path.startswith(API_PREFIX) and "text/html" in headers.get("accept", "")


def render_problem(
    problem: Problem, app: DashboardApp, dashboard: DashboardState, *, scope: Mapping[str, Any], root: str, path: str
) -> DashboardResponse:
    """What is shown instead of the page."""
    from drumbeat.web.pages.layout import render_bare_page

    request = DashboardRequest(app=app, dashboard=dashboard, caller=ANONYMOUS, root_path=root, route_path=path)
    if problem.status == 401 and dashboard.access_control.has_login:
        query = scope.get("query_string", b"").decode("latin-1")
        wanted = path + (f"?{query}" if query else "")
        to = request.link_to("/login", next=wanted if wanted != "/" else None)
        return DashboardResponse(status_code=303, content=b"", media_type="text/plain", headers={"Location": to})
    shown = render_bare_page(request, "problem.html", status=problem.status, problem=problem.record)
    return DashboardResponse(
        status_code=shown.status_code,
        content=shown.content,
        media_type=shown.media_type,
        headers=shown.headers | problem.headers,
    )
