"""Errors of pages: HTML instead of JSON, and a redirect to the login for callers without one."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from drumbeat.web.problem import Problem
from drumbeat.web.request import DashboardRequest
from drumbeat.web.route import API_PREFIX


def accepts_html(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Whether the response is shown to a person."""
    return method in ("GET", "HEAD") and not path.startswith(API_PREFIX) and "text/html" in headers.get("accept", "")


def render_problem(problem: Problem, request: DashboardRequest) -> Response:
    """The page shown instead of the requested one."""
    from drumbeat.web.pages.layout import render_bare_page

    if problem.status == 401 and request.dashboard.access_control.has_login:
        query = request.scope.get("query_string", b"").decode("latin-1")
        wanted = request.route_path + (f"?{query}" if query else "")
        to = request.link_to("/login", next=wanted if wanted != "/" else None)
        return Response(status_code=303, headers={"Location": to})
    response = render_bare_page(request, "problem.html", status=problem.status, problem=problem.record)
    response.headers.update(problem.headers)
    return response
