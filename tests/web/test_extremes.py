"""Values at the edges of what can be said: refused or answered, never a mistake of the server, and nothing left behind."""

from urllib.parse import quote

import httpx
import pytest

from drumbeat.web.routes import all_routes

MOMENTS = [
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-12:00",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
]
BODIES = [
    ("POST", "/api/v1/jobs", {"task": "send_mail", "args": {"to": "ada"}}, "at"),
    ("POST", "/api/v1/schedules", {"task": "send_mail", "args": {"to": "ada"}, "cron": "0 3 * * *"}, "start"),
    ("POST", "/api/v1/schedules", {"task": "send_mail", "args": {"to": "ada"}, "every": 60}, "end"),
]
ADDRESSES = [
    (route.path, name)
    for route in all_routes()
    if route.is_safe and "{" not in route.path
    for name in ("since", "until", "ended_since", "ended_until")
    if name in route.query.__struct_fields__
]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_the_ends_of_time_are_no_mistake_of_the_server(api: httpx.AsyncClient, moment: str) -> None:
    wrong = []
    for path, name in ADDRESSES:
        answer = await api.get(f"{path}?{name}={quote(moment)}")
        if answer.status_code not in (200, 422):
            wrong.append((path, name, answer.status_code))
    assert len(ADDRESSES) > 5 and wrong == []


@pytest.mark.parametrize("moment", MOMENTS)
async def test_no_moment_spoils_the_lists_for_others(api: httpx.AsyncClient, moment: str) -> None:
    """Once such a job was accepted, and no list that it stood in could be read from then on."""
    for number, (method, path, body, name) in enumerate(BODIES):
        given = body | {name: moment} | ({"name": f"s{number}"} if "schedules" in path else {})  # type: ignore[operator]
        assert (await api.request(method, path, json=given)).status_code in (200, 409, 422)
    for path in (
        "/api/v1/jobs",
        "/api/v1/queues",
        "/api/v1/schedules",
        "/api/v1/status",
        "/api/v1/schedules",
        "/jobs",
        "/",
    ):
        assert (await api.get(path)).status_code == 200
    for path in ("/schedules", "/timeline", "/metrics", "/api/v1/system"):
        assert (await api.get(path)).status_code == 200
