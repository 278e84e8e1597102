"""/api/v1/schedules on every engine: made, changed, paused, previewed, retired, and what became of their moments."""

from typing import Any

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.core.schedule import FireRequest, PlannedFire
from drumbeat.ids import new_job_id

SCHEDULES = "/api/v1/schedules"
NIGHTLY = {"task": "send_mail", "name": "nightly", "cron": "0 3 * * *", "tz": "Europe/Berlin", "args": {"to": "ada"}}


async def made(api: httpx.AsyncClient, **words: Any) -> dict[str, Any]:
    answer = await api.post(SCHEDULES, json=NIGHTLY | words)
    assert answer.status_code == 200, answer.text
    schedule: dict[str, Any] = answer.json()
    return schedule


async def test_a_schedule_is_made_and_shown(api: httpx.AsyncClient) -> None:
    schedule = await made(api, overlap="queue", catch_up="all", jitter="10s", max_late=60)
    assert (schedule["name"], schedule["cron"], schedule["tz"]) == ("nightly", "0 3 * * *", "Europe/Berlin")
    assert (schedule["overlap"], schedule["catch_up"], schedule["jitter"], schedule["max_late"]) == (
        "queue",
        "all",
        10,
        60,
    )
    assert (schedule["args"], schedule["state"], schedule["changed_by"]) == ('{"to":"ada"}', "active", "local")
    assert (await api.get(f"{SCHEDULES}/nightly")).json() == schedule
    twice = await api.post(SCHEDULES, json=NIGHTLY)
    assert (twice.status_code, twice.json()["argument"]) == (422, "name")


@pytest.mark.parametrize(
    ("words", "status", "argument"),
    [
        ({"cron": "61 * * * *"}, 422, "cron"),
        ({"cron": "1--100000000 * * * *"}, 422, "cron"),
        ({"cron": "* " * 5_000}, 422, "cron"),
        ({"every": 5}, 422, "cron"),
        ({"tz": "Mars/Olympus"}, 422, "tz"),
        ({"args": {"to": 5}}, 422, "to"),
        ({"args": {}}, 422, "to"),
        ({"task": "nowhere"}, 404, "task"),
        ({"name": "a b"}, 422, "name"),
        ({"queue": "nowhere"}, 422, "queue"),
        ({"overlap": "sometimes"}, 422, "overlap"),
        ({"start": "2026-01-01T00:00:00"}, 422, "start"),
        ({"colour": "red"}, 422, "colour"),
    ],
)
async def test_a_schedule_that_cannot_be_is_refused_at_its_field(
    api: httpx.AsyncClient, words: dict[str, Any], status: int, argument: str
) -> None:
    answer = await api.post(SCHEDULES, json=NIGHTLY | words)
    assert (answer.status_code, answer.json().get("argument")) == (status, argument), answer.text
    assert (await api.get(SCHEDULES)).json()["items"] == []


async def test_a_schedule_is_changed_in_what_is_given(api: httpx.AsyncClient) -> None:
    await made(api, max_late=60)
    body = {"cron": "30 4 * * *", "args": {"to": "bob", "big": 9007199254740993}, "max_late": None, "reason": "later"}
    changed = await api.put(f"{SCHEDULES}/nightly", json=body)
    assert changed.status_code == 200, changed.text
    facts = changed.json()
    assert (facts["cron"], facts["tz"], facts["max_late"]) == ("30 4 * * *", "Europe/Berlin", None)
    assert facts["args"] == '{"to":"bob","big":9007199254740993}'
    assert (await api.put(f"{SCHEDULES}/weekly", json={"cron": "0 0 * * 0"})).status_code == 404
    assert (await api.put(f"{SCHEDULES}/nightly", json={"cron": "nonsense"})).status_code == 422


async def test_a_schedule_is_paused_resumed_run_and_retired(api: httpx.AsyncClient, app: Drumbeat) -> None:
    await made(api)
    path = f"{SCHEDULES}/nightly"
    assert (await api.post(f"{path}/pause", json={"reason": "holidays"})).json() == {"touched": 1}
    assert (await api.post(f"{path}/pause")).json() == {"touched": 0}
    paused = (await api.get(path)).json()
    assert (paused["state"], paused["reason"], paused["changed_by"], paused["next_at"]) == (
        "paused",
        "holidays",
        "local",
        None,
    )
    assert (await api.post(f"{path}/resume")).json() == {"touched": 1}
    job = await app.jobs.show((await api.post(f"{path}/run-now")).json()["id"])
    assert (job.task, job.args) == ("send_mail", '{"to":"ada"}')
    assert (await api.delete(path, params={"reason": "never again"})).json() == {"touched": 1}
    assert (await api.get(path)).json()["state"] == "retired"
    assert (await api.get(SCHEDULES)).json()["items"] == []
    assert len((await api.get(SCHEDULES, params={"all": "true"})).json()["items"]) == 1
    for verb in ("pause", "resume", "run-now"):
        assert (await api.post(f"{path}/{verb}")).status_code == 409, verb
    [act] = (await api.get("/api/v1/audit", params={"verb": "schedules.delete"})).json()["items"]
    assert (act["reason"], act["target"], act["touched"], act["outcome"]) == ("never again", "nightly", 1, "done")


async def test_an_unknown_schedule_is_not_found_by_any_address(api: httpx.AsyncClient) -> None:
    for name in ("weekly", "a b"):
        assert (await api.get(f"{SCHEDULES}/{name}")).status_code == 404
        assert (await api.get(f"{SCHEDULES}/{name}/fires")).status_code == 404
        assert (await api.delete(f"{SCHEDULES}/{name}")).status_code == 404
        for verb in ("pause", "resume", "run-now"):
            assert (await api.post(f"{SCHEDULES}/{name}/{verb}")).status_code == 404


async def test_schedules_are_listed_by_name_page_by_page(api: httpx.AsyncClient) -> None:
    names = [f"s{number}" for number in range(7)]
    for name in names:
        await made(api, name=name)
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 3}
    while True:
        page = (await api.get(SCHEDULES, params=query)).json()
        seen += [each["name"] for each in page["items"]]
        if page["next"] is None:
            break
        query["after"] = page["next"]
    assert seen == names


async def test_what_became_of_its_moments_is_told_page_by_page(api: httpx.AsyncClient, app: Drumbeat) -> None:
    await made(api, overlap="allow")
    store = await app._internals.store()
    known = await store.schedules.get("nightly")
    assert known is not None
    hour, first = 3_600_000_000, 1_767_225_600_000_000
    moments = [PlannedFire(at=first + n * hour, run_at=first + n * hour, job=new_job_id()) for n in range(5)]
    firing = FireRequest(
        name="nightly", revision=known.revision, expected_cursor=None, fires=tuple(moments), advances=False
    )
    await store.schedules.fire([firing])
    page = (await api.get(f"{SCHEDULES}/nightly/fires", params={"limit": 3})).json()
    rest = (await api.get(f"{SCHEDULES}/nightly/fires", params={"limit": 3, "before": page["next"]})).json()
    assert [fire["job"] for fire in page["items"] + rest["items"]] == [moment.job for moment in moments][::-1]
    assert (page["items"][0]["outcome"], page["items"][0]["state"]) == ("fired", "pending")
    assert rest["next"] is None


async def test_a_rule_is_previewed_in_its_own_time_zone(api: httpx.AsyncClient) -> None:
    query = {"rule": "0 3 * * *", "tz": "Europe/Berlin", "count": 3}
    found = (await api.get(f"{SCHEDULES}/preview", params=query)).json()["items"]  # type: ignore[arg-type]
    assert [moment["at"][11:16] for moment in found] == ["03:00"] * 3
    found = (await api.get(f"{SCHEDULES}/preview", params={"rule": "5m", "count": 100_000})).json()["items"]
    assert len(found) == 500


@pytest.mark.parametrize(
    ("query", "argument"),
    [
        ({"rule": "61 * * * *"}, "rule"),
        ({"rule": "1--100000000 * * * *"}, "rule"),
        ({"rule": "<img src=x onerror=alert(1)>"}, "rule"),
        ({"rule": "* " * 1_000}, "rule"),
        ({"rule": "0 3 * * *", "tz": "../../etc/passwd"}, "tz"),
        ({"rule": "0 3 * * *", "count": "many"}, "count"),
        ({}, "rule"),
    ],
)
async def test_a_hostile_rule_is_refused_at_its_field(
    api: httpx.AsyncClient, query: dict[str, str], argument: str
) -> None:
    answer = await api.get(f"{SCHEDULES}/preview", params=query)
    assert (answer.status_code, answer.json().get("argument")) == (422, argument), answer.text
