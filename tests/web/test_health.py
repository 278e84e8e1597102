"""Health as it is told: the page, the API, the stream and `needs you` say the same, on every engine."""

import html
import re

import httpx

from drumbeat import Drumbeat
from drumbeat.core.stats import Resolution, Rollup
from tests.contract import making


async def count_runs(app: Drumbeat, **numbers: int) -> None:
    """What a worker, which then goes on, has counted in this minute."""
    store = await app._internals.store()
    hand = await making.worker(store, queues=("mail",), tasks=app._internals.registry.signatures())
    at = await store.inspect.now() // 60_000_000 * 60_000_000
    await store.stats.put(
        hand,
        [Rollup(resolution=Resolution.MINUTE, at=at, queue="mail", task="send_mail", **numbers)],  # type: ignore[arg-type]
    )


def verdict(page: httpx.Response) -> tuple[str, str, str]:
    """Its level, where it leads, and what it says."""
    found = re.search(
        r'<a class="verdict (\w+)" href="([^"]*)"[^>]*data-test="verdict">.*?<span>(.*?)</span>', page.text
    )
    assert found, page.text
    return found[1], found[2], html.unescape(found[3])


async def test_a_task_whose_runs_all_fail_is_no_health_wherever_one_looks(
    app: Drumbeat, api: httpx.AsyncClient
) -> None:
    await count_runs(app, started=770, failed=770)
    for path in ("/", "/jobs"):
        assert verdict(await api.get(path)) == (
            "bad",
            "/jobs?task=send_mail&amp;state=retrying",
            "Task send_mail fails",
        )
    assert "all 770 runs failed in the last 10 min" in (await api.get("/")).text, "what needs you"
    health = (await api.get("/api/v1/status")).json()["health"]
    assert (health["level"], health["text"]) == ("bad", "Task send_mail fails")
    assert health["reasons"][0]["detail"] == "all 770 runs failed in the last 10 min"
    doctor = {each["name"]: each for each in (await api.get("/api/v1/system")).json()["findings"]}
    assert doctor["task send_mail"]["level"] == "bad"


async def test_a_worker_that_died_lately_is_told_with_its_place(app: Drumbeat, api: httpx.AsyncClient) -> None:
    store = await app._internals.store()
    gone, _ = [await making.worker(store, host="rack7", pid=99, queues=("mail",)) for _ in range(2)]
    await store.instances.declare_dead(gone, beat=None, started=None, reason="no heartbeat")
    page = await api.get("/")
    health = (await api.get("/api/v1/status")).json()["health"]
    assert {each["name"]: each["text"] for each in health["reasons"]}[gone] == "1 instance died"
    assert "process 99 on rack7" in page.text
    assert verdict(page)[0] == "warn"
