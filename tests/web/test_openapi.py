"""The OpenAPI document says what there is, and how requests are read."""

import json
import re

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.core.job_query import QueueStats
from drumbeat.web.openapi import build_document
from drumbeat.web.routes import ROUTES
from tests.web.conftest import OpenBrowser


def references(part: object) -> set[str]:
    return set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(part)))


def test_every_route_of_the_api_is_in_the_document() -> None:
    described = {(method.upper(), path) for path, methods in build_document()["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in ROUTES if route.is_api}


def test_every_record_that_is_named_is_described_and_the_other_way_round() -> None:
    found = build_document()
    assert references(found) == set(found["components"]["schemas"])


def test_what_a_name_alone_does_not_say_is_described() -> None:
    schemas = build_document()["components"]["schemas"]
    unclear = {
        "StepRecord": ("token", "until", "finished_at", "signal", "result"),
        "SignalRecord": ("payload", "read_by"),
        "GraphNode": ("blocked_on", "suspended"),
        "GraphEdge": ("if_fails", "binding"),
        "TaskNode": ("counts",),
        "TaskEdge": ("count",),
        "WorkflowGraph": ("capped",),
    }
    for record, fields in unclear.items():
        assert "description" in schemas[record]
        assert [name for name in fields if "description" not in schemas[record]["properties"][name]] == []


def test_every_operation_has_a_name_of_its_own_and_its_parameters() -> None:
    operations = [(path, each) for path, methods in build_document()["paths"].items() for each in methods.values()]
    names = [each["operationId"] for _, each in operations]
    assert len(names) == len(set(names))
    for path, each in operations:
        given = {parameter["name"] for parameter in each["parameters"] if parameter["in"] == "path"}
        assert given == set(re.findall(r"\{(\w+)\}", path))


def test_writes_say_that_they_take_a_key() -> None:
    for methods in build_document()["paths"].values():
        for method, each in methods.items():
            names = {parameter["name"] for parameter in each["parameters"]}
            assert ("Idempotency-Key" in names) == (method != "get")


@pytest.fixture
def browser(guarded: Drumbeat, open_browser: OpenBrowser) -> httpx.AsyncClient:
    from tests.web.conftest import bearer

    return open_browser(guarded.dashboard(), headers=bearer("admin"))


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 422),
        (b"[]", 422),
        (b'{"reason": 7}', 422),
        (b'{"unknown": 1}', 422),
        (b'{"reason": "' + b"x" * 501 + b'"}', 422),
        (b'{"reason": "a\\u0000b"}', 422),
        (b'{"reason": "' + b"x" * 1_000_000 + b'"}', 413),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_a_body_that_cannot_be_read_is_refused(browser: httpx.AsyncClient, content: bytes, status: int) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await browser.post("/api/v1/queues/x/pause", content=content, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


async def test_a_body_of_another_kind_is_refused(browser: httpx.AsyncClient) -> None:
    assert (await browser.post("/api/v1/queues/x/pause", data={"reason": "x"})).status_code == 415


@pytest.mark.parametrize(
    ("query", "status", "argument"),
    [
        ("limit=x", 422, "limit"),
        ("limit=1.5", 422, "limit"),
        ("unknown=1", 422, "unknown"),
        ("queue=a%00b", 422, "queue"),
        ("queue=%ff", 400, None),
        ("&".join(f"a{n}=1" for n in range(200)), 400, None),
        ("queue=" + "x" * 9_000, 400, None),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_a_query_that_cannot_be_read_is_refused(
    browser: httpx.AsyncClient, query: str, status: int, argument: str | None
) -> None:
    answer = await browser.get(f"/api/v1/jobs?{query}")
    assert (answer.status_code, answer.json().get("argument")) == (status, argument)


async def test_an_empty_parameter_is_none(browser: httpx.AsyncClient) -> None:
    assert (await browser.get("/api/v1/jobs?queue=&limit=")).status_code == 200


async def test_another_method_is_refused_with_those_that_are_taken(browser: httpx.AsyncClient) -> None:
    answer = await browser.request("PATCH", "/api/v1/schedules/x")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET, HEAD, PUT")


async def test_a_mistake_of_ours_is_logged_and_tells_nobody_else(
    guarded: Drumbeat,
    open_browser: OpenBrowser,
    browser: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken() -> None:
        raise ZeroDivisionError("the password is hunter2")

    monkeypatch.setattr(guarded.queues, "list_stats", broken)
    answer = await browser.get("/api/v1/queues")
    assert (answer.status_code, "hunter2" in answer.text) == (500, False)
    assert "hunter2" in caplog.text


async def test_an_answer_that_cannot_be_written_has_all_headers_too(
    guarded: Drumbeat, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unwritable() -> list[QueueStats]:
        return [QueueStats(name="\ud800", ready=0, scheduled=0, running=0, waiting=0, oldest_due=None)]

    monkeypatch.setattr(guarded.queues, "list_stats", unwritable)
    answer = await browser.get("/api/v1/queues")
    assert answer.status_code == 500
    assert "content-security-policy" in answer.headers


async def test_a_path_with_a_newline_at_its_end_is_not_found(api: httpx.AsyncClient) -> None:
    assert (await api.get("/jobs")).status_code == 200
    assert (await api.get("/jobs%0A")).status_code == 404
