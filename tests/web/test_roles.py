"""Which role may call which route: every route has its row here, or this fails."""

import re

import pytest

from drumbeat import Drumbeat
from drumbeat.web.access import ROLE_RANKS
from drumbeat.web.route import AccessRole, Route
from drumbeat.web.routes import all_routes
from tests.web.conftest import TOKENS, OpenBrowser, bearer

EVERYBODY = {"GET /login", "POST /login", "POST /logout", "GET /static/{file}"}
OPERATORS = {
    "POST /api/v1/jobs",
    "POST /api/v1/jobs/{id}/cancel",
    "POST /api/v1/jobs/{id}/run-now",
    "POST /api/v1/jobs/{id}/signal",
    "POST /api/v1/dead/{id}/replay",
    "POST /api/v1/queues/{name}/pause",
    "POST /api/v1/queues/{name}/resume",
    "PUT /api/v1/limits",
    "POST /api/v1/limits/reset",
    "PUT /api/v1/groups",
    "POST /api/v1/groups/reset",
    "POST /api/v1/schedules/{name}/pause",
    "POST /api/v1/schedules/{name}/resume",
    "POST /api/v1/schedules/{name}/run-now",
}
ADMINS = {
    "POST /api/v1/dead/replay",
    "POST /api/v1/jobs/bulk",
    "POST /api/v1/dead/discard",
    "POST /api/v1/dead/{id}/discard",
    "POST /api/v1/schedules",
    "PUT /api/v1/schedules/{name}",
    "DELETE /api/v1/schedules/{name}",
    "POST /api/v1/locks/{name}/release",
    "POST /api/v1/audit/{id}/stop",
    "POST /api/v1/workflows/{id}/cancel",
    "POST /api/v1/workflows/{id}/replay",
}
VIEWERS = {
    "GET /api/v1/status",
    "GET /api/v1/stats",
    "GET /api/v1/stats/weeks",
    "GET /api/v1/jobs",
    "GET /api/v1/jobs/counts",
    "GET /api/v1/jobs/{id}",
    "GET /api/v1/jobs/{id}/attempts",
    "GET /api/v1/jobs/{id}/lineage",
    "GET /api/v1/jobs/{id}/steps",
    "GET /api/v1/jobs/{id}/explain",
    "GET /api/v1/dead",
    "GET /api/v1/dead/groups",
    "GET /api/v1/dead/{id}",
    "GET /api/v1/workflows",
    "GET /api/v1/workflows/{id}",
    "GET /api/v1/workflows/{id}/graph",
    "GET /api/v1/queues",
    "GET /api/v1/queues/{name}",
    "GET /api/v1/tasks",
    "GET /api/v1/tasks/{name}",
    "GET /api/v1/tasks/{name}/history",
    "GET /api/v1/schedules",
    "GET /api/v1/schedules/preview",
    "GET /api/v1/schedules/{name}",
    "GET /api/v1/schedules/{name}/fires",
    "GET /api/v1/instances",
    "GET /api/v1/instances/{id}",
    "GET /api/v1/limits",
    "GET /api/v1/groups",
    "GET /api/v1/locks",
    "GET /api/v1/locks/{name}",
    "GET /api/v1/audit",
    "GET /api/v1/events",
    "GET /api/v1/system",
    "GET /api/v1/openapi.json",
    "GET /metrics",
}
ROUTES = all_routes()


def row(route: Route) -> str:
    return f"{route.method} {route.path}"


def test_every_route_of_the_api_has_a_row_here_and_every_row_a_route() -> None:
    expected = {name: role for names, role in ((EVERYBODY, None), (VIEWERS, AccessRole.VIEWER)) for name in names}
    expected |= {
        name: role for names, role in ((OPERATORS, AccessRole.OPERATOR), (ADMINS, AccessRole.ADMIN)) for name in names
    }
    known = {row(route): route.role for route in ROUTES if route.is_api or row(route) in expected or not route.is_safe}
    assert known == expected


def test_whatever_else_there_is_are_pages_for_viewers() -> None:
    pages = [route for route in ROUTES if row(route) not in EVERYBODY | VIEWERS | OPERATORS | ADMINS]
    assert {(route.method, route.role) for route in pages} <= {("GET", AccessRole.VIEWER)}


def test_every_write_but_the_login_has_a_word_in_the_audit_and_no_reading_has_one() -> None:
    assert [row(route) for route in ROUTES if bool(route.verb) == route.is_safe and row(route) not in EVERYBODY] == []
    assert all(re.fullmatch(r"[a-z]+\.[a-z_]+", route.verb) for route in ROUTES if route.verb)


@pytest.mark.parametrize("route", ROUTES, ids=row)
async def test_a_route_lets_in_those_who_may_and_nobody_else(
    guarded: Drumbeat, open_browser: OpenBrowser, route: Route
) -> None:
    board = guarded.dashboard()
    # HEAD is answered as GET is; the stream of events would not end.
    method = "HEAD" if route.is_safe else route.method
    path = re.sub(r"\{\w+\}", "x", route.path)
    nobody = await open_browser(board).request(method, path)
    assert (nobody.status_code == 401) == (route.role is not None) or route.path == "/login"
    for role in TOKENS:
        answer = await open_browser(board, headers=bearer(role)).request(method, path)
        may = route.role is None or ROLE_RANKS[AccessRole(role)] >= ROLE_RANKS[route.role]
        assert (answer.status_code in (401, 403)) != may or route.role is None, (role, answer.status_code)
        assert answer.status_code < 500
