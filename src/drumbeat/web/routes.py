"""The route table: every path of the dashboard, with the role it needs.

Router, OpenAPI document, role matrix and docs are built from it.
"""

from __future__ import annotations

from drumbeat.web import event_stream, login, metrics_endpoint, openapi, static_files
from drumbeat.web.api.route_table import API_ROUTES
from drumbeat.web.route import API_PREFIX, AccessRole, Route

_EVENTS = (
    Route(
        method="GET",
        path=f"{API_PREFIX}/events",
        handler=event_stream.stream_events,
        role=AccessRole.VIEWER,
        summary="Changes, twice a second, as server-sent events",
    ),
    Route(
        method="GET",
        path=f"{API_PREFIX}/openapi.json",
        handler=openapi.show_openapi,
        role=AccessRole.VIEWER,
        summary="This API, as an OpenAPI 3.1 document",
    ),
)

_OUTSIDE = (
    Route(
        method="GET",
        path="/metrics",
        handler=metrics_endpoint.scrape,
        role=AccessRole.VIEWER,
        summary="The metrics of the whole cluster, for Prometheus",
    ),
    Route(
        method="GET",
        path="/login",
        handler=login.show_login,
        role=None,
        summary="Log in with a token",
        query=login.LoginQuery,
    ),
    Route(method="POST", path="/login", handler=login.log_in, role=None, summary="Log in: a form with token and next"),
    Route(method="POST", path="/logout", handler=login.log_out, role=None, summary="Log out"),
    Route(
        method="GET",
        path="/static/{file}",
        handler=static_files.serve_static,
        role=None,
        summary="Scripts and styles",
        query=static_files.StaticQuery,
    ),
)

ROUTES: tuple[Route, ...] = (*API_ROUTES, *_EVENTS, *_OUTSIDE)


def all_routes() -> tuple[Route, ...]:
    """All routes: the API and the pages."""
    from drumbeat.web.pages import PAGES  # a cycle: pages call the handlers of the API

    return (*ROUTES, *PAGES)
