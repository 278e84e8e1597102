"""The route table: every path of the dashboard, with the role it needs.

Router, OpenAPI document, role matrix and docs are built from it.
"""

from __future__ import annotations

from drumbeat.web import event_stream, login, metrics_endpoint, openapi, static_files
from drumbeat.web.api.route_table import API_ROUTES
from drumbeat.web.route import API_PREFIX, Route, make_route

ROUTES: tuple[Route, ...] = (
    *API_ROUTES,
    make_route(
        f"GET {API_PREFIX}/events", event_stream.stream_events, "Changes, twice a second, as server-sent events"
    ),
    make_route(f"GET {API_PREFIX}/openapi.json", openapi.show_openapi, "This API, as an OpenAPI 3.1 document"),
    make_route("GET /metrics", metrics_endpoint.scrape, "The metrics of the whole cluster, for Prometheus"),
    make_route("GET /login", login.show_login, "Log in with a token", role=None),
    make_route("POST /login", login.log_in, "Log in: a form with token and next", role=None),
    make_route("POST /logout", login.log_out, "Log out", role=None),
    make_route("GET /static/{file}", static_files.serve_static, "Scripts and styles", role=None),
)


def all_routes() -> tuple[Route, ...]:
    """All routes: the API and the pages."""
    from drumbeat.web.pages import PAGES  # a cycle: pages call the handlers of the API

    return (*ROUTES, *PAGES)
