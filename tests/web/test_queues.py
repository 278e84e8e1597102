"""/api/v1/queues and the way of every request: the example that the other handlers follow."""

import httpx

from drumbeat import Drumbeat


async def test_a_queue_is_listed_with_its_lag(app: Drumbeat, api: httpx.AsyncClient) -> None:
    await app._internals.registry.find("send_mail").enqueue("ada")  # type: ignore[union-attr]
    (queue,) = (await api.get("/api/v1/queues")).json()["items"]
    assert (queue["name"], queue["ready"], queue["paused"]) == ("mail", 1, False)
    assert 0 <= queue["lag"] < 10


async def test_a_pause_says_who_and_why_and_ends_with_resume(api: httpx.AsyncClient) -> None:
    paused = await api.post("/api/v1/queues/mail/pause", json={"reason": "the provider is down"})
    assert (paused.status_code, paused.json()) == (200, {"touched": 1})
    queue = (await api.get("/api/v1/queues/mail")).json()
    assert (queue["paused"], queue["paused_by"], queue["paused_reason"]) == (True, "local", "the provider is down")
    await api.post("/api/v1/queues/mail/resume")
    assert (await api.get("/api/v1/queues/mail")).json()["paused"] is False


async def test_a_queue_that_nobody_has_is_not_found(api: httpx.AsyncClient) -> None:
    for answer in (await api.get("/api/v1/queues/nobody"), await api.post("/api/v1/queues/nobody/pause", json={})):
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert answer.json()["argument"] == "name"
