"""/api/v1/status, stats, system, audit, instances and locks on every engine."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.core.lock import NewTicket
from drumbeat.core.stats import BUCKETS, Resolution, Rollup
from drumbeat.ids import InstanceId
from tests.contract import making
from tests.web.conftest import OpenBrowser

API = "/api/v1"


@pytest.fixture
async def hand(app: Drumbeat) -> InstanceId:
    return await making.worker(
        await app._internals.store(), queues=("mail",), tasks=app._internals.registry.signatures(), concurrency=4
    )


async def counted(app: Drumbeat, hand: InstanceId, *, ago: timedelta, **numbers: int) -> None:
    """What an instance counted in the minute that was so long ago."""
    store = await app._internals.store()
    at = (await store.inspect.now() - ago // timedelta(microseconds=1)) // Resolution.MINUTE * Resolution.MINUTE
    await store.stats.put(
        hand,
        [Rollup(resolution=Resolution.MINUTE, at=at, queue="mail", task="send_mail", **numbers)],  # type: ignore[arg-type]
    )


async def test_the_status_tells_who_is_there_and_what_the_last_day_brought(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    store = await app._internals.store()
    await app._internals.registry["send_mail"].enqueue("ada")
    await making.claim(store, hand, "mail")
    await app._internals.registry["send_mail"].using(delay=60).enqueue("ada")
    await store.instances.heartbeat(hand, 1, lead=10_000_000)
    await counted(app, hand, ago=timedelta(hours=1), started=9, succeeded=5, failed=3, dead=1)
    await counted(app, hand, ago=timedelta(hours=23), started=3, succeeded=2, failed=1)
    await counted(app, hand, ago=timedelta(hours=25), started=100, succeeded=50, failed=50)
    status = (await api.get(f"{API}/status")).json()
    assert (status["day"]["completed"], status["day"]["failed"], status["day"]["dead"]) == (7, 4, 1)
    assert [(each["id"], each["queues"]) for each in status["instances"]] == [(hand, ["mail"])]
    assert (status["running"], status["pending"], status["slots"]) == (1, 1, 4)
    assert (status["leader"]["instance"], status["counts"]["scheduled"]) == (hand, 1)


async def test_what_a_worker_has_done_is_in_the_status_and_in_the_history_of_its_task(
    api: httpx.AsyncClient, app: Drumbeat
) -> None:
    @app.task(queue="mail", retries=0)
    async def fail() -> None:
        raise ValueError("boom")

    async with asyncio.TaskGroup() as group:
        worker = group.create_task(app.serve(role="worker"))
        handles = await app.enqueue_many([app._internals.registry["send_mail"].bind("ada") for _ in range(3)])
        failing = await fail.enqueue()
        for handle in (*handles, failing):
            await app.jobs.wait(handle.id, timeout=30)
        worker.cancel()
    day = (await api.get(f"{API}/status")).json()["day"]
    assert (day["started"], day["completed"], day["failed"], day["dead"]) == (4, 3, 1, 1)
    runs = (await api.get(f"{API}/tasks/send_mail/history")).json()["items"]
    assert [(run["job"], run["outcome"]) for run in runs] == [(each.id, "succeeded") for each in reversed(handles)]


async def test_the_count_of_a_day_is_not_added_up_for_everybody_who_looks(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    await counted(app, hand, ago=timedelta(hours=1), succeeded=5)
    assert (await api.get(f"{API}/status")).json()["day"]["completed"] == 5
    await counted(app, hand, ago=timedelta(hours=2), succeeded=5)
    assert (await api.get(f"{API}/status")).json()["day"]["completed"] == 5


async def test_stats_are_read_stretch_by_stretch(api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId) -> None:
    await counted(app, hand, ago=timedelta(minutes=5), started=2, succeeded=2)
    await counted(app, hand, ago=timedelta(hours=5), started=1, succeeded=1)
    answer = (await api.get(f"{API}/stats")).json()
    [rollup] = answer["items"]
    assert (rollup["queue"], rollup["task"], rollup["succeeded"], len(rollup["run"])) == (
        "mail",
        "send_mail",
        2,
        BUCKETS,
    )
    assert len(answer["bounds_us"]) == BUCKETS - 1
    since = (datetime.fromisoformat(answer["until"]) - timedelta(hours=6)).isoformat()
    assert len((await api.get(f"{API}/stats", params={"since": since})).json()["items"]) == 2
    assert (await api.get(f"{API}/stats", params={"since": since, "task": "other"})).json()["items"] == []
    assert (await api.get(f"{API}/stats", params={"resolution": "10s"})).json()["items"] == []


async def test_a_stretch_of_years_is_cut_and_not_read(api: httpx.AsyncClient) -> None:
    query = {"since": "0001-01-01T00:00:00Z", "until": "2026-01-01T00:00:00Z", "resolution": "10s"}
    answer = (await api.get(f"{API}/stats", params=query)).json()
    assert datetime.fromisoformat(answer["since"]) == datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=20_000)


@pytest.mark.parametrize(
    "query",
    [
        {"resolution": "1d"},
        {"since": "yesterday"},
        {"since": "2026-01-01T00:00:00"},
        {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"},
        {"queue": "a b"},
    ],
)
async def test_stats_that_cannot_be_are_refused(api: httpx.AsyncClient, query: dict[str, str]) -> None:
    assert (await api.get(f"{API}/stats", params=query)).status_code == 422


async def test_an_instance_is_shown_with_its_heart_and_its_term(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    store = await app._internals.store()
    await store.instances.heartbeat(hand, 0, lead=10_000_000)
    other = await making.worker(store, queues=("mail",))
    await store.instances.deregister(other, "drained")
    [living] = (await api.get(f"{API}/instances")).json()["items"]
    assert (living["id"], living["healthy"], living["term"]) == (hand, True, 1)
    assert 0 <= living["seconds_since_heartbeat"] < 60
    both = (await api.get(f"{API}/instances", params={"all": "true"})).json()["items"]
    assert {each["id"]: each["state"] for each in both} == {hand: "alive", other: "left"}
    gone = (await api.get(f"{API}/instances/{other}")).json()
    assert (gone["healthy"], gone["term"], gone["ended_reason"]) == (False, None, "drained")
    assert (await api.get(f"{API}/instances/nobody")).status_code == 404


async def test_locks_are_listed_and_taken_away_with_a_reason(api: httpx.AsyncClient, app: Drumbeat) -> None:
    store = await app._internals.store()
    for number, name in enumerate(["a", "a", "b", "c"]):
        await store.locks.acquire(NewTicket(id=f"ticket{number}", lock=name, lease=60_000_000, owner=f"owner{number}"))
    first = (await api.get(f"{API}/locks", params={"limit": 2})).json()
    rest = (await api.get(f"{API}/locks", params={"limit": 2, "after": first["next"]})).json()
    assert [lock["name"] for lock in first["items"] + rest["items"]] == ["a", "b", "c"]
    shown = (await api.get(f"{API}/locks/a")).json()
    assert ([each["owner"] for each in shown["holders"]], [each["owner"] for each in shown["waiters"]]) == (
        ["owner0"],
        ["owner1"],
    )
    assert (await api.post(f"{API}/locks/a/release", json={"reason": "it hangs"})).json() == {"touched": 1}
    shown = (await api.get(f"{API}/locks/a")).json()
    assert ([each["owner"] for each in shown["holders"]], shown["released_by"], shown["released_reason"]) == (
        ["owner1"],
        "local",
        "it hangs",
    )
    assert (await api.post(f"{API}/locks/a/release", json={"ticket": "ticket0"})).json() == {"touched": 0}
    assert (await api.post(f"{API}/locks/z/release", json={})).status_code == 404
    assert (await api.get(f"{API}/locks/z")).status_code == 404


async def test_every_act_is_in_the_audit_newest_first_page_by_page(api: httpx.AsyncClient, app: Drumbeat) -> None:
    for number in range(4):
        await api.post(f"{API}/jobs", json={"task": "send_mail", "args": {"to": "ada"}, "reason": f"reason {number}"})
    await api.post(f"{API}/queues/mail/pause", json={"reason": "rest"})
    await api.post(f"{API}/jobs/bulk", json={"action": "cancel", "all": True, "dry_run": True})
    await api.post(
        f"{API}/jobs/bulk", json={"action": "cancel", "filter": {"task": "send_mail"}, "reason": "all of it"}
    )
    await api.post(f"{API}/jobs", json={"task": "send_male"})
    seen: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": 3}
    while True:
        page = (await api.get(f"{API}/audit", params=query)).json()
        seen += page["items"]
        if page["next"] is None:
            break
        query["before"] = page["next"]
    assert [(act["verb"], act["target"], act["touched"], act["outcome"], act["reason"]) for act in seen] == [
        ("jobs.enqueue", "send_male", 0, "refused", ""),
        ("jobs.cancel", "task=send_mail", 4, "done", "all of it"),
        ("queues.pause", "mail", 1, "done", "rest"),
        *(("jobs.enqueue", "send_mail", 1, "done", f"reason {number}") for number in (3, 2, 1, 0)),
    ]
    assert {(act["who"], act["role"], act["via"]) for act in seen} == {("local", "admin", "api")}
    paused = (await api.get(f"{API}/audit", params={"verb": "queues."})).json()["items"]
    assert [act["target"] for act in paused] == ["mail"]
    assert (await api.get(f"{API}/audit", params={"before": "yesterday"})).status_code == 422


@pytest.mark.parametrize("time", ["yesterday", "2026-02-30T00:00:00Z", "9:30"])
async def test_what_is_no_time_is_refused_in_our_words(api: httpx.AsyncClient, time: str) -> None:
    for path, name in (("stats", "since"), ("jobs", "since"), ("stats", "until")):
        answer = await api.get(f"{API}/{path}", params={name: time})
        assert (answer.status_code, answer.json()["argument"]) == (422, name)
        assert (
            answer.json()["detail"] == f"{name}: must be a time with its offset from UTC, such as 2026-01-31T09:30:00Z"
        )


async def test_the_system_tells_settings_with_their_origin_and_hides_what_is_secret(
    store_url: str, open_browser: OpenBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUMBEAT_DASHBOARD_TOKENS", "ada:viewer:a-very-secret-token-of-ada")
    async with Drumbeat(store_url, concurrency=7) as app:
        headers = {"Authorization": "Bearer a-very-secret-token-of-ada"}
        answer = await open_browser(app.dashboard(), headers=headers).get(f"{API}/system")
    settings = {each["name"]: each for each in answer.json()["settings"]}
    assert settings["concurrency"] == {"name": "concurrency", "value": "7", "origin": "Drumbeat(concurrency=)"}
    assert settings["dashboard_tokens"]["value"] == "ada: •••"
    assert "environment" in settings["dashboard_tokens"]["origin"]
    assert "a-very-secret" not in answer.text
    levels = {finding["level"] for finding in answer.json()["findings"]}
    assert answer.json()["level"] in levels
    assert levels <= {"ok", "note", "warn", "bad"}
    assert "schedules" in {finding["name"] for finding in answer.json()["findings"]}
