"""Every write is on record, with who, what, to how many and why; a request that is sent twice acts once."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.web import AccessRole, Caller, Dashboard
from tests.faults import FaultyStore
from tests.web.conftest import SAME_ORIGIN, OpenBrowser

JOBS = "/api/v1/jobs"
PAUSE = "/api/v1/queues/mail/pause"
CALL = {"task": "send_mail", "args": {"to": "ada"}}


def _named(scope: Mapping[str, Any]) -> Caller:
    """Somebody says who it is, and is believed."""
    names = [value for name, value in scope["headers"] if name == b"x-user"]
    return Caller(name=names[0].decode(), role=AccessRole.ADMIN)


def key(text: str) -> dict[str, str]:
    return {"Idempotency-Key": text}


async def test_an_act_is_on_record_with_who_what_how_many_and_why(app: Drumbeat, api: httpx.AsyncClient) -> None:
    await api.post(PAUSE, json={"reason": "the provider is down"})
    (act,) = await app.audit.list()
    assert (act.who, act.role, act.via) == ("local", "admin", "api")
    assert (act.verb, act.target, act.reason) == ("queues.pause", "mail", "the provider is down")
    assert (act.touched, act.outcome) == (1, "done")
    assert act.done_at is not None and act.done_at >= act.at


async def test_an_act_on_several_says_how_many(app: Drumbeat, api: httpx.AsyncClient) -> None:
    for _ in range(3):
        await api.post(JOBS, json=CALL)
    body = {"action": "cancel", "filter": {"queue": "mail"}, "reason": "too many"}
    dry = await api.post(f"{JOBS}/bulk", json=body | {"dry_run": True})
    assert dry.status_code == 200
    assert [act.verb for act in await app.audit.list()] == ["jobs.enqueue"] * 3
    assert (await api.post(f"{JOBS}/bulk", json=body)).status_code == 200
    act = (await app.audit.list(verb="jobs.cancel"))[0]
    assert (act.touched, act.reason, act.outcome) == (3, "too many", "done")
    assert act.target != ""


async def test_what_was_refused_is_on_record_too(app: Drumbeat, api: httpx.AsyncClient) -> None:
    answer = await api.post("/api/v1/queues/nobody/pause", json={})
    assert answer.status_code == 404
    (act,) = await app.audit.list()
    assert (act.target, act.touched, act.outcome) == ("nobody", 0, "refused")


async def test_somebody_who_may_not_leaves_no_record(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    assert (await open_browser(guarded.dashboard()).post(PAUSE, json={})).status_code == 401
    assert await guarded.audit.list() == []


async def test_reading_leaves_no_record(app: Drumbeat, api: httpx.AsyncClient) -> None:
    await api.get(JOBS)
    assert await app.audit.list() == []


async def test_a_request_that_is_sent_again_acts_once_and_gets_the_same_answer(
    app: Drumbeat, api: httpx.AsyncClient
) -> None:
    first = await api.post(JOBS, json=CALL, headers=key("k1"))
    again = await api.post(JOBS, json=CALL, headers=key("k1"))
    assert first.status_code < 300
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    assert len(await app.jobs.list()) == 1
    assert (await api.post(JOBS, json=CALL, headers=key("k2"))).json()["id"] != first.json()["id"]


async def test_ten_equal_requests_at_once_act_once(app: Drumbeat, api: httpx.AsyncClient) -> None:
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(api.post(JOBS, json=CALL, headers=key("together"))) for _ in range(10)]
    answers = [task.result() for task in asked]
    assert {answer.status_code for answer in answers} == {answers[0].status_code} and answers[0].is_success
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(await app.jobs.list()) == 1
    assert len(await app.audit.list()) == 1


async def test_a_refusal_is_repeated_as_well(api: httpx.AsyncClient) -> None:
    first = await api.post("/api/v1/queues/nobody/pause", json={}, headers=key("k"))
    again = await api.post("/api/v1/queues/nobody/pause", json={}, headers=key("k"))
    assert (again.status_code, again.json()) == (404, first.json())
    assert again.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("other", [(JOBS, {"task": "send_mail", "args": {"to": "bob"}}), (PAUSE, {})])
async def test_a_key_with_another_request_is_refused(
    app: Drumbeat, api: httpx.AsyncClient, other: tuple[str, dict[str, object]]
) -> None:
    await api.post(JOBS, json=CALL, headers=key("k"))
    path, body = other
    answer = await api.post(path, json=body, headers=key("k"))
    assert (answer.status_code, answer.json()["type"]) == (422, "key-reused")
    assert len(await app.jobs.list()) == 1


async def test_the_key_of_somebody_else_is_another_one(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    board = guarded.dashboard(access=_named)
    for name in ("ada", "grace"):
        browser = open_browser(board, headers=SAME_ORIGIN | {"X-User": name})
        assert (await browser.post("/api/v1/queues/x/pause", json={}, headers=key("k"))).status_code == 404
    assert {act.who for act in await guarded.audit.list()} == {"ada", "grace"}


@pytest.mark.parametrize("bad", ["", "x" * 201, "\x07"])
async def test_a_key_that_cannot_be_is_refused(guarded: Drumbeat, open_browser: OpenBrowser, bad: str) -> None:
    browser = open_browser(guarded.dashboard(access=_named), headers=SAME_ORIGIN | {"X-User": "ada"})
    answer = await browser.post("/api/v1/queues/x/pause", json={}, headers=key(bad))
    assert (answer.status_code, answer.json()["argument"]) == (422, "Idempotency-Key")


async def test_an_act_whose_end_cannot_be_recorded_is_answered_and_has_its_beginning_on_record(
    app: Drumbeat, board: Dashboard, open_browser: OpenBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = FaultyStore(await app._internals.store())
    faulty.fail_before["audit.end"] = 1

    async def store() -> FaultyStore:
        return faulty

    monkeypatch.setattr(app._internals, "store", store)
    assert (await open_browser(board).post(PAUSE, json={"reason": "x"})).status_code == 200
    (act,) = await app.audit.list()
    assert (act.verb, act.outcome) == ("queues.pause", None)


async def test_nothing_is_done_that_cannot_be_put_on_record(
    app: Drumbeat, board: Dashboard, open_browser: OpenBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = FaultyStore(await app._internals.store())
    faulty.fail_before["audit.begin"] = 1

    async def store() -> FaultyStore:
        return faulty

    monkeypatch.setattr(app._internals, "store", store)
    answer = await open_browser(board).post(PAUSE, json={})
    assert (answer.status_code, answer.json()["type"], answer.headers["retry-after"]) == (503, "store-away", "1")
    assert not any(queue.paused for queue in await app.queues.list())


async def test_the_same_key_with_another_query_is_another_request(app: Drumbeat, api: httpx.AsyncClient) -> None:
    await api.delete("/api/v1/schedules/nightly?reason=old", headers=key("k"))
    answer = await api.delete("/api/v1/schedules/nightly?reason=new", headers=key("k"))
    assert (answer.status_code, answer.json()["type"]) == (422, "key-reused")


async def test_the_record_is_read_without_the_answers(app: Drumbeat, api: httpx.AsyncClient) -> None:
    await api.post(PAUSE, json={}, headers=key("k"))
    (act,) = (await api.get("/api/v1/audit")).json()["items"]
    assert (act["request_key"], act["answer"], act["request_hash"]) == ("k", None, None)
    assert (await app.audit.show(act["id"])).answer is not None


PACED = {"action": "cancel", "all": True, "rate": 1_000}


async def test_an_act_that_a_mistake_breaks_off_has_its_end_on_record(
    app: Drumbeat, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = app.jobs.bulk

    async def broken(*args: Any, **options: Any) -> Any:
        if options.get("dry_run"):
            return await really(*args, **options)
        raise ZeroDivisionError

    monkeypatch.setattr(app.jobs, "bulk", broken)
    assert (await api.post(f"{JOBS}/bulk", json=PACED)).status_code == 202
    (act,) = await app.audit.list()
    assert act.outcome is not None and act.outcome.startswith("failed: internal error")


async def test_an_act_goes_on_when_whoever_asked_has_gone(app: Drumbeat, board: Dashboard) -> None:
    """ASGI servers may say so by an OSError when they are given the answer."""
    task = app._internals.registry["send_mail"]
    await task.enqueue("ada")
    body = json.dumps(PACED).encode()
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"{JOBS}/bulk",
        "query_string": b"",
        "headers": [
            (b"host", b"127.0.0.1"),
            (b"sec-fetch-site", b"same-origin"),
            (b"content-type", b"application/json"),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 7777),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        raise BrokenPipeError

    await board(scope, receive, send)
    (act,) = await app.audit.list(verb="jobs.cancel")
    assert (act.touched, act.outcome) == (1, "done")
