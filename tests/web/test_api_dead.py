"""/api/v1/dead on every engine: letters, groups, replay of one, of many, and paced in the background."""

import asyncio
import html
import re
from typing import Any

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.admin.audit import new_act
from drumbeat.core.job import OutcomeKind
from drumbeat.ids import InstanceId
from tests.contract import making
from tests.waiting import until

DEAD = "/api/v1/dead"


@pytest.fixture
async def hand(app: Drumbeat) -> InstanceId:
    return await making.worker(
        await app._internals.store(), queues=("mail",), tasks=app._internals.registry.signatures()
    )


async def died(app: Drumbeat, hand: InstanceId, number: int) -> list[str]:
    """So many dead letters, in the order in which they were enqueued."""
    task, store = app._internals.registry["send_mail"], await app._internals.store()
    handles = await app.enqueue_many([task.bind("ada") for _ in range(number)])
    jobs = await making.claim(store, hand, "mail", limit=number)
    await making.report(store, hand, *(making.outcome(job, OutcomeKind.DEAD) for job in jobs))
    return [handle.id for handle in handles]


async def states(app: Drumbeat) -> dict[str, int]:
    counts: dict[str, int] = {}
    for job in await app.jobs.list(limit=1000):
        counts[job.state] = counts.get(job.state, 0) + 1
    return counts


async def test_dead_letters_are_listed_page_by_page(api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId) -> None:
    ids = await died(app, hand, 5)
    first = (await api.get(DEAD, params={"limit": 3})).json()
    second = (await api.get(DEAD, params={"limit": 3, "before": first["next"]})).json()
    assert [job["id"] for job in first["items"] + second["items"]] == ids[::-1]
    assert second["next"] is None
    assert first["items"][0]["error"] == {"type": "ValueError", "message": "boom", "traceback": "Traceback: boom"}
    assert (await api.get(DEAD, params={"error": "bang"})).json()["items"] == []


async def test_dead_letters_are_grouped_by_error(api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId) -> None:
    ids = await died(app, hand, 3)
    [group] = (await api.get(f"{DEAD}/groups")).json()["items"]
    assert (group["task"], group["error"], group["count"], group["message"]) == ("send_mail", "ValueError", 3, "boom")
    assert group["sample"] in ids


async def test_one_dead_letter_is_shown_replayed_and_discarded(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    first, second = await died(app, hand, 2)
    assert (await api.get(f"{DEAD}/{first}")).json()["state"] == "dead"
    assert (await api.post(f"{DEAD}/{first}/replay", json={"reason": "mended"})).json()["touched"] == 1
    assert (await api.get(f"/api/v1/jobs/{first}")).json()["view"] == "ready"
    assert (await api.get(f"{DEAD}/{first}")).status_code == 409
    assert (await api.post(f"{DEAD}/{first}/replay")).status_code == 409
    assert (await api.post(f"{DEAD}/{second}/discard")).json()["touched"] == 1
    assert (await api.get(DEAD)).json()["items"] == []
    assert (await api.post(f"{DEAD}/{second}/discard")).status_code == 409


async def test_a_replay_onto_a_live_key_is_a_conflict_that_names_the_live_job(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    task, store = app._internals.registry["send_mail"], await app._internals.store()
    dead = await task.using(key="k", unique=True).enqueue("ada")
    jobs = await making.claim(store, hand, "mail")
    await making.report(store, hand, *(making.outcome(job, OutcomeKind.DEAD) for job in jobs))
    live = await task.using(key="k", unique=True).enqueue("ada")
    answer = await api.post(f"{DEAD}/{dead.id}/replay")
    assert (answer.status_code, live.id in answer.json()["detail"]) == (409, True)
    many = (await api.post(f"{DEAD}/replay", json={"all": True})).json()
    assert (many["matched"], many["touched"]) == (1, 0)
    assert live.id in many["refused"][0]["reason"]


@pytest.mark.parametrize("which", [{"all": True}, {"filter": {"error": "boom"}}, {"filter": {"task": "send_mail"}}])
async def test_many_are_replayed_after_a_dry_run(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId, which: dict[str, Any]
) -> None:
    await died(app, hand, 30)
    dry = (await api.post(f"{DEAD}/replay", json=which | {"dry_run": True})).json()
    assert (dry["matched"], await states(app)) == (30, {"dead": 30})
    done = (await api.post(f"{DEAD}/replay", json=which | {"reason": "mended"})).json()
    assert (done["touched"], await states(app)) == (30, {"pending": 30})


async def test_many_are_discarded(api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId) -> None:
    ids = await died(app, hand, 4)
    dry = (await api.post(f"{DEAD}/discard", json={"ids": ids[:3], "dry_run": True})).json()
    assert dry["matched"] == 3
    done = (await api.post(f"{DEAD}/discard", json={"ids": ids[:3], "reason": "not needed"})).json()
    assert done["touched"] == 3
    assert [job["id"] for job in (await api.get(DEAD)).json()["items"]] == ids[3:]


async def test_a_paced_replay_goes_on_after_its_answer_and_ends_in_the_audit(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    await died(app, hand, 12)
    async with asyncio.TaskGroup() as group:
        # The transport of this client gives an answer only once the application is done with the request.
        asked = group.create_task(api.post(f"{DEAD}/replay", json={"all": True, "rate": 40, "reason": "gently"}))
        await until(lambda: _is_under_way(app), what="the replay has begun and not ended")
    answer = asked.result()
    assert answer.status_code == 202
    assert (answer.json()["in_background"], answer.json()["matched"], answer.json()["touched"]) == (True, 12, 0)
    assert await states(app) == {"pending": 12}
    [act] = (await api.get("/api/v1/audit", params={"verb": "dead.replay"})).json()["items"]
    assert (act["touched"], act["outcome"], act["reason"], act["target"]) == (12, "done", "gently", "all")


async def _is_under_way(app: Drumbeat) -> bool:
    counts = await states(app)
    return 0 < counts.get("pending", 0) < 12


@pytest.mark.parametrize(("by", "ended_by"), [("api", "stopped by local"), ("python", "stopped by grace")])
async def test_a_paced_replay_tells_how_far_it_is_and_can_be_stopped(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId, by: str, ended_by: str
) -> None:
    await died(app, hand, 12)

    async def far() -> dict[str, Any] | None:
        [act] = (await api.get("/api/v1/audit", params={"verb": "dead.replay"})).json()["items"] or [{}]
        return act if act.get("touched") else None

    async with asyncio.TaskGroup() as group:
        asked = group.create_task(api.post(f"{DEAD}/replay", json={"all": True, "rate": 5}))
        act = await until(far, what="the first letters are done")
        assert act["done_at"] is None and 0 < act["touched"] < 12
        page = html.unescape((await api.get("/dead", headers={"Accept": "text/html"})).text)
        assert "replay: all" in page and re.search(r'data-test="background-act-done">\d+</b> of 12 done', page)
        assert (act["state"], act["matched"]) == ("running", 12)
        if by == "api":
            stopped = await api.post(f"/api/v1/audit/{act['id']}/stop", json={"reason": "too many"})
            assert (stopped.status_code, stopped.json()) == (200, {"touched": 1})
        else:  # as another process would: only the store knows both
            assert (await app.audit.stop(act["id"], by="grace")).stopped_by == "grace"
        assert [each.id for each in await app.audit.list(unended=True)] == [act["id"]]
    assert asked.result().json()["act"] == act["id"]
    [ended] = (await api.get("/api/v1/audit", params={"verb": "dead.replay"})).json()["items"]
    counts = await states(app)
    assert ended["touched"] == counts["pending"] < 12 and counts["dead"] == 12 - ended["touched"]
    assert ended["outcome"] == ended_by and ended["done_at"] is not None and ended["state"] == "ended"
    assert 'data-test="background-act"' not in (await api.get("/dead", headers={"Accept": "text/html"})).text
    again = await api.post(f"/api/v1/audit/{act['id']}/stop")
    assert (again.status_code, again.json()["type"]) == (409, "act-ended")


async def test_an_act_of_another_process_is_seen_and_one_that_reports_nothing_is_not_said_to_be_stopped(
    api: httpx.AsyncClient, app: Drumbeat
) -> None:
    elsewhere = await app.audit.begin(new_act(who="grace", verb="dead.replay", target="all"))
    answer = await api.post(f"/api/v1/audit/{elsewhere.id}/stop")
    assert (answer.status_code, answer.json()["type"]) == (409, "act-running")
    assert (await api.post("/api/v1/audit/nobody/stop")).status_code == 404
    progress = await app.audit.progress(elsewhere, matched=1_234)
    for path in ("/", "/jobs", "/dead", "/audit"):
        page = html.unescape((await api.get(path, headers={"Accept": "text/html"})).text)
        assert "<strong>replay: all</strong> by grace, via python" in page and "of 1,234 done" in page
    assert (await api.post(f"/api/v1/audit/{elsewhere.id}/stop")).status_code == 200
    assert not progress.is_stopped
    assert "local has asked it to stop" in (await api.get("/audit", headers={"Accept": "text/html"})).text
    await app.audit.end(elsewhere, None)
    assert "background-act-done" not in (await api.get("/", headers={"Accept": "text/html"})).text


async def test_what_cannot_be_paced_is_refused_before_anything_is_done(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    await died(app, hand, 1)
    for body in ({"all": True, "rate": 0}, {"all": True, "rate": -1}, {}, {"filter": {"task": "a b"}, "rate": 5}):
        answer = await api.post(f"{DEAD}/replay", json=body)
        assert answer.status_code == 422, answer.text
    assert await states(app) == {"dead": 1}
