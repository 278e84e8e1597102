"""/api/v1/limits and /api/v1/groups, and their pages: what may run, who waits, and what people change. On every engine."""

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.admin.limit_records import LimitRecord
from drumbeat.core.limits import Bounds
from drumbeat.web.route import AccessRole
from tests.contract.lanes import add_jobs, declare, take
from tests.contract.making import worker
from tests.web.conftest import OpenBrowser, bearer

API = "/api/v1"
MINUTE = 60_000_000
GREET = {"queue": "default", "task": "greet"}


@pytest.fixture
async def furnished(app: Drumbeat) -> None:
    store = await app._internals.store()
    instance = await worker(store)
    await declare(store, each=Bounds(2, 100, MINUTE), whole=Bounds(30))
    await declare(store, "", queue="mail", fair=True)
    await add_jobs(store, "tenant:7", 5)
    await add_jobs(store, "<script>", 1)
    await take(store, instance)


@pytest.mark.usefixtures("furnished")
async def test_lines_and_groups_are_listed(api: httpx.AsyncClient) -> None:
    greet, mail = (await api.get(f"{API}/limits")).json()["items"]
    assert (greet["task"], greet["running"], greet["limits"][0]) == (
        "greet",
        3,
        {"concurrency": 30, "rate": None, "per": None, "per_group": False},
    )
    assert (mail["queue"], mail["task"], mail["fair"]) == ("mail", None, True)
    assert (await api.get(f"{API}/limits", params={"queue": "mail"})).json()["items"] == [mail]
    first = (await api.get(f"{API}/groups", params=GREET | {"limit": 1})).json()
    assert [each["group"] for each in first["items"]] == [first["next"]] == ["<script>"]
    rest = (await api.get(f"{API}/groups", params=GREET | {"limit": 2, "after": first["next"]})).json()
    [seven] = rest["items"]
    assert (seven["group"], seven["waiting"], seven["running"], seven["started"]) == ("tenant:7", 3, 2, 2)
    busiest = (await api.get(f"{API}/groups")).json()
    assert (busiest["items"][0]["group"], busiest["next"]) == ("tenant:7", None)


@pytest.mark.usefixtures("furnished")
async def test_limits_are_changed_and_reset_on_record_and_once_for_a_key(api: httpx.AsyncClient) -> None:
    limits = [{"concurrency": 5}, {"rate": 7, "per": 60, "per_group": True}]
    wanted = GREET | {"limits": limits, "fair": True, "reason": "a calm day"}
    for _ in range(2):
        changed = await api.put(f"{API}/limits", json=wanted, headers={"Idempotency-Key": "once"})
        assert changed.status_code == 200, changed.text
    line = changed.json()
    assert [(each["concurrency"], each["rate"], each["per_group"]) for each in line["limits"]] == [
        (5, None, False),
        (None, 7, True),
    ]
    assert (line["changed_by"], line["reason"], line["fair"], line["set_fair"]) == ("local", "a calm day", True, True)
    acts = (await api.get(f"{API}/audit", params={"verb": "limits."})).json()["items"]
    assert [(each["verb"], each["target"], each["reason"], each["touched"], each["outcome"]) for each in acts] == [
        ("limits.set", "task greet in queue default", "a calm day", 1, "done")
    ]
    assert (await api.post(f"{API}/limits/reset", json=GREET)).json() == {"touched": 1}
    assert (await api.post(f"{API}/limits/reset", json=GREET)).json() == {"touched": 0}


@pytest.mark.usefixtures("furnished")
async def test_a_group_becomes_an_exception_and_is_like_the_others_again(api: httpx.AsyncClient) -> None:
    seven = GREET | {"group": "tenant:7"}
    made = await api.put(f"{API}/groups", json=seven | {"limits": [{"concurrency": 9}], "weight": 3})
    assert (made.json()["own_weight"], made.json()["own_limits"][0]["concurrency"]) == (3, 9)
    act = (await api.get(f"{API}/audit", params={"verb": "limits."})).json()["items"][0]
    assert (act["verb"], act["target"]) == ("limits.set_group", "task greet in queue default group tenant:7")
    assert (await api.post(f"{API}/groups/reset", json=seven)).json() == {"touched": 1}
    assert (await api.post(f"{API}/groups/reset", json=seven)).json() == {"touched": 0}


@pytest.mark.usefixtures("furnished")
async def test_what_cannot_be_is_refused_with_its_argument(api: httpx.AsyncClient) -> None:
    for body, argument, text in (
        (GREET | {"limits": [{"concurrency": 0}]}, "concurrency", "must be at least 1, not 0"),
        (GREET | {"limits": [{"rate": 5}]}, "per", "rate needs per"),
        (GREET, "limits", "give limits, or fair"),
        ({"queue": "male", "limits": []}, "queue", "there are task greet in queue default, queue mail"),
        (GREET | {"limits": [{"color": 1}]}, "limits[0]", "unknown field `color`"),
        (GREET | {"limits": 5}, "limits", "array"),
        (GREET | {"group": "a"}, "group", "unknown field `group`"),
    ):
        answer = await api.put(f"{API}/limits", json=body)
        assert answer.status_code == 422, answer.text
        assert text in answer.json()["detail"], answer.text
        assert answer.json()["argument"] in (argument, None), answer.text
    answer = await api.put(f"{API}/groups", json=GREET | {"group": "a", "weight": 0})
    assert (answer.status_code, answer.json()["argument"]) == (422, "weight")
    assert (await api.get(f"{API}/groups", params={"task": "greet"})).status_code == 422
    assert (await api.get(f"{API}/groups", params={"queue": "male"})).status_code == 422


@pytest.mark.parametrize("role", AccessRole)
async def test_viewers_see_limits_and_operators_change_them(
    guarded: Drumbeat, open_browser: OpenBrowser, role: AccessRole
) -> None:
    store = await guarded._internals.store()
    await declare(store, "", queue="mail", fair=True)
    browser = open_browser(guarded.dashboard(), headers=bearer(role.value))
    assert len((await browser.get(f"{API}/limits")).json()["items"]) == 1
    answer = await browser.put(f"{API}/limits", json={"queue": "mail", "limits": []})
    assert answer.status_code == (403 if role is AccessRole.VIEWER else 200)


@pytest.mark.usefixtures("furnished")
async def test_the_page_of_limits_has_lines_and_the_busiest_groups(api: httpx.AsyncClient) -> None:
    text = (await api.get("/limits")).text
    assert 'data-test="line-default-greet"' in text and 'data-test="line-mail"' in text
    assert "30 at once, 2 at once per group, 100 per 1m per group" in text
    assert 'data-test="group-tenant:7"' in text and "full, 2 of 2" in text and "2 of 100 in 1 min" in text
    assert "&lt;script&gt;" in text and 'data-test="group-<' not in text
    assert 'data-test="act-set"' in text and 'data-test="act-set-group"' in text
    assert 'data-test="act-reset"' not in text


@pytest.mark.usefixtures("furnished")
async def test_the_page_of_a_line_has_its_groups_in_pages_and_says_what_was_set(
    app: Drumbeat, api: httpx.AsyncClient
) -> None:
    await app.limits.set("default", "greet", fair=True, reason="a <calm> day", by="ada")
    await app.limits.set_group("default", "greet", "tenant:7", limits=[LimitRecord(concurrency=9)])
    text = (await api.get("/limits/default", params={"task": "greet"})).text
    assert "Set by <strong>ada</strong>" in text and "a &lt;calm&gt; day" in text
    assert 'data-test="act-reset"' in text and 'data-test="act-reset-group"' in text and "2 of 9" in text
    text = (await api.get("/limits/default", params={"task": "greet", "group": "tenant:7"})).text
    assert 'data-test="group-tenant:7"' in text and "&lt;script&gt;" not in text
    text = (await api.get("/limits/default", params={"task": "greet", "group": "nobody"})).text
    assert "No such group" in text
    assert "groups take turns" in (await api.get("/limits/mail")).text
    assert (await api.get("/limits/nobody")).status_code == 404
    assert (await api.get("/limits/default")).status_code == 404


@pytest.mark.usefixtures("furnished")
async def test_a_queue_and_a_job_lead_to_their_limits(app: Drumbeat, api: httpx.AsyncClient) -> None:
    text = (await api.get("/queues/default")).text
    assert 'href="/limits/default?task=greet"' in text
    waiting = next(job for job in await app.jobs.list(state="pending") if job.group == "tenant:7")
    text = (await api.get(f"/jobs/{waiting.id}")).text
    assert "/limits/default?task=greet&amp;group=tenant%3A7" in text
    assert "2 of 2 running, 3 waiting" in text
    assert 'data-test="reason-limit"' in text


async def test_without_limits_the_page_says_so(api: httpx.AsyncClient) -> None:
    assert "No limits" in (await api.get("/limits")).text


async def test_viewers_see_no_buttons(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    await declare(await guarded._internals.store(), "", queue="mail", fair=True)
    browser = open_browser(guarded.dashboard(), headers=bearer("viewer"))
    for place in ("/limits", "/limits/mail"):
        assert 'data-test="act-set"' not in (await browser.get(place)).text
