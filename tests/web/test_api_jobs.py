"""/api/v1/jobs on every engine: lists and their pages, one job, enqueue, acts on one and on many."""

from typing import Any

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.core.job import Job, OutcomeKind
from drumbeat.ids import InstanceId, new_job_id
from drumbeat.web.api.records import JobRecord
from tests.contract import making
from tests.web.conftest import OpenBrowser

JOBS = "/api/v1/jobs"


@pytest.fixture
async def hand(app: Drumbeat) -> InstanceId:
    """An instance that could run the app's jobs; tests end them as a worker would."""
    return await making.worker(
        await app._internals.store(), queues=("mail",), tasks=app._internals.registry.signatures()
    )


async def ended(app: Drumbeat, hand: InstanceId, kind: OutcomeKind) -> list[str]:
    """Claim all that is due, and end it so."""
    store = await app._internals.store()
    jobs = await making.claim(store, hand, "mail")
    await making.report(store, hand, *(making.outcome(job, kind) for job in jobs))
    return [job.id for job in jobs]


async def enqueued(api: httpx.AsyncClient, **body: Any) -> str:
    answer = await api.post(JOBS, json={"task": "send_mail", "args": {"to": "ada"}} | body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def test_a_job_is_shown_with_every_field_of_its_record() -> None:
    assert set(Job.__struct_fields__) <= set(JobRecord.__struct_fields__)
    assert set(JobRecord.__struct_fields__) - set(Job.__struct_fields__) == {"view", "attempt", "truncated"}


async def test_a_job_is_enqueued_and_shown(api: httpx.AsyncClient) -> None:
    id = await enqueued(api, key="order:1", priority=2, delay="5m", retries=7)
    job = (await api.get(f"{JOBS}/{id}")).json()
    facts = {name: job[name] for name in ("task", "queue", "state", "view", "key", "priority", "retries", "attempt")}
    assert facts == {
        "task": "send_mail",
        "queue": "mail",
        "state": "pending",
        "view": "scheduled",
        "key": "order:1",
        "priority": 2,
        "retries": 7,
        "attempt": 1,
    }
    assert job["args"] == '{"to":"ada"}'
    assert job["created_at"].endswith("Z")


@pytest.mark.parametrize("as_text", [False, True])
async def test_a_number_that_a_browser_would_round_arrives_and_leaves_exactly(
    api: httpx.AsyncClient, app: Drumbeat, as_text: bool
) -> None:
    text = '{"to": "ada", "big": 9007199254740993}'
    args = '"' + text.replace('"', '\\"') + '"' if as_text else text
    body = f'{{"task": "send_mail", "args": {args}}}'
    answer = await api.post(JOBS, content=body, headers={"Content-Type": "application/json"})
    id = answer.json()["id"]
    assert (await api.get(f"{JOBS}/{id}")).json()["args"] == '{"to":"ada","big":9007199254740993}'
    assert app._internals.registry["send_mail"].signature.decode((await app.jobs.show(id)).args) == (
        (),
        {"to": "ada", "big": 9007199254740993},
    )


async def test_a_unique_key_gives_the_live_job_and_says_that_it_is_not_new(api: httpx.AsyncClient) -> None:
    id = await enqueued(api, key="a", unique=True)
    answer = await api.post(JOBS, json={"task": "send_mail", "args": {"to": "bob"}, "key": "a", "unique": True})
    assert answer.json() == {"id": id, "created": False}


@pytest.mark.parametrize(
    ("body", "status", "argument"),
    [
        ({"task": "send_mail", "args": {"to": 5}}, 422, "to"),
        ({"task": "send_mail", "args": {}}, 422, "to"),
        ({"task": "send_mail", "args": {"to": "ada", "cc": 1}}, 422, "cc"),
        ({"task": "send_mail", "args": [1]}, 422, "args"),
        ({"task": "send_mail", "args": "nonsense"}, 422, "args"),
        ({"task": "send_mail", "args": {"to": "a\0b"}}, 422, "args"),
        ({"task": "send_mail", "args": {"to": "ada"}, "queue": "nowhere"}, 422, "queue"),
        ({"task": "send_mail", "args": {"to": "ada"}, "priority": 10}, 422, "priority"),
        ({"task": "send_mail", "args": {"to": "ada"}, "delay": -1}, 422, "delay"),
        ({"task": "send_mail", "args": {"to": "ada"}, "at": "2026-11-15T09:30:00"}, 422, "at"),
        ({"task": "send_mail", "args": {"to": "ada"}, "unique": True}, 422, "unique"),
        ({"task": "send_mail", "args": {"to": "ada"}, "colour": "red"}, 422, "colour"),
        ({"task": "send_male", "args": {}}, 404, "task"),
        ({"task": "a b"}, 422, "task"),
        ({}, 422, "task"),
    ],
)
async def test_a_call_that_cannot_be_queued_is_refused_with_what_is_wrong(
    api: httpx.AsyncClient, body: dict[str, Any], status: int, argument: str
) -> None:
    answer = await api.post(JOBS, json=body)
    assert (answer.status_code, answer.json()["argument"]) == (status, argument), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert (await api.get(JOBS)).json()["items"] == []


async def test_a_task_that_only_workers_know_is_enqueued_with_their_signature(
    store_url: str, open_browser: OpenBrowser
) -> None:
    async with Drumbeat(store_url) as stranger:
        store = await stranger._internals.store()
        await making.worker(store, queues=("far",), tasks={"elsewhere": "abc123", "elsewhere.on_dead": "on_dead"})
        api = open_browser(stranger.dashboard(access="open"))
        answer = await api.post(JOBS, json={"task": "elsewhere", "args": {"any": 1}})
        job = await stranger.jobs.show(answer.json()["id"])
        assert (job.signature, job.queue, job.on_dead, job.args) == (
            "abc123",
            "far",
            "elsewhere.on_dead",
            '{"any":1}',
        )
        refused = await api.post(JOBS, json={"task": "elsewhere", "queue": "near"})
        assert (refused.status_code, refused.json()["argument"]) == (422, "queue")
        assert (await api.post(JOBS, json={"task": "nowhere"})).status_code == 404


async def test_jobs_are_listed_by_what_they_have_in_common(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    dead = await enqueued(api)
    await ended(app, hand, OutcomeKind.DEAD)
    keyed = await enqueued(api, key="k")
    later = await enqueued(api, delay=60)

    async def ids(**query: Any) -> list[str]:
        answer = await api.get(JOBS, params=query)
        assert answer.status_code == 200, answer.text
        return [job["id"] for job in answer.json()["items"]]

    assert await ids() == [later, keyed, dead]
    assert await ids(state="dead") == [dead]
    assert await ids(state="pending") == [later, keyed]
    assert await ids(state="ready") == [keyed]
    assert await ids(state="scheduled") == [later]
    assert await ids(key="k", task="send_mail") == [keyed]
    assert await ids(error="boom") == [dead]
    assert await ids(instance=hand) == [dead]
    # Ids of the same millisecond have nearly all of it in common.
    assert await ids(id=later[:30]) == [id for id in (later, keyed, dead) if id.startswith(later[:30])]
    assert await ids(queue="nowhere") == []
    assert await ids(since="2020-01-01T00:00:00Z", until="2020-01-02T00:00:00Z") == []


async def test_pages_have_no_gap_and_no_repeat_while_jobs_come_and_go(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    task = app._internals.registry["send_mail"]
    first = [handle.id for handle in await app.enqueue_many([task.bind("ada") for _ in range(25)])]
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 4}
    while True:
        page = (await api.get(JOBS, params=query)).json()
        seen += [job["id"] for job in page["items"]]
        if page["next"] is None:
            break
        query["before"] = page["next"]
        await app.enqueue_many([task.bind("new") for _ in range(3)])
        store = await app._internals.store()
        jobs = await making.claim(store, hand, "mail", limit=3)
        await making.report(store, hand, *(making.outcome(job, OutcomeKind.SUCCEEDED) for job in jobs))
    assert seen == first[::-1]


@pytest.mark.parametrize("limit", ["0", "-5", "1000000", "99999999999999999999999999"])
async def test_a_limit_is_clamped(api: httpx.AsyncClient, app: Drumbeat, limit: str) -> None:
    task = app._internals.registry["send_mail"]
    await app.enqueue_many([task.bind("ada") for _ in range(501)])
    answer = await api.get(JOBS, params={"limit": limit})
    assert len(answer.json()["items"]) == (1 if int(limit) < 1 else 500)


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "many"},
        {"state": "gone"},
        {"before": "yesterday"},
        {"task": "a b"},
        {"key": "a\nb"},
        {"since": "yesterday"},
        {"since": "2026-11-15T09:30:00"},
        {"id": "abc"},
        {"colour": "red"},
    ],
)
async def test_a_filter_that_means_nothing_is_refused(api: httpx.AsyncClient, query: dict[str, str]) -> None:
    for path in (JOBS, f"{JOBS}/counts"):
        answer = await api.get(path, params=query)
        assert answer.status_code == 422, (path, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"


async def test_jobs_are_counted_by_the_word_that_people_see(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    await enqueued(api)
    await ended(app, hand, OutcomeKind.SUCCEEDED)
    await enqueued(api)
    await enqueued(api, delay=60, key="k")
    counts = (await api.get(f"{JOBS}/counts")).json()
    assert (counts["succeeded"], counts["ready"], counts["scheduled"], counts["dead"]) == (1, 1, 1, 0)
    counts = (await api.get(f"{JOBS}/counts", params={"key": "k"})).json()
    assert (counts["succeeded"], counts["ready"], counts["scheduled"]) == (0, 0, 1)


async def test_secrets_are_dots_in_what_is_shown_and_nothing_else_is_changed(
    api: httpx.AsyncClient, app: Drumbeat
) -> None:
    @app.task(queue="mail")
    async def login(user: str, password: str, options: dict[str, Any]) -> None: ...

    args = {"user": "ada", "password": "hunter2", "options": {"api_key": [1, 2], "note": "the password is hunter3"}}
    id = await enqueued(api, task="login", args=args)
    shown = (await api.get(f"{JOBS}/{id}")).json()["args"]
    assert shown == ('{"user":"ada","password":"•••","options":{"api_key":"•••","note":"the password is hunter3"}}')
    assert "hunter2" in (await app.jobs.show(id)).args


async def test_the_runs_of_a_job_are_listed_oldest_first(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    id = await enqueued(api)
    await ended(app, hand, OutcomeKind.RETRY)
    await ended(app, hand, OutcomeKind.SUCCEEDED)
    runs = (await api.get(f"{JOBS}/{id}/attempts")).json()
    assert [(run["outcome"], run["instance"]) for run in runs["items"]] == [("retry", hand), ("succeeded", hand)]
    assert runs["items"][0]["error"]["message"] == "boom"


async def test_why_a_job_is_not_running_is_told(api: httpx.AsyncClient) -> None:
    id = await enqueued(api, delay=3600)
    explained = (await api.get(f"{JOBS}/{id}/explain")).json()
    assert (explained["job"], explained["view"]) == (id, "scheduled")
    assert explained["reasons"][0]["kind"] == "not_due"


@pytest.mark.parametrize("id", ["nonsense", "01a1df41-b512-7f91-b79d-2750073b197a"])
async def test_an_unknown_job_is_not_found_by_any_address(api: httpx.AsyncClient, id: str) -> None:
    for path in ("", "/attempts", "/explain"):
        assert (await api.get(f"{JOBS}/{id}{path}")).status_code == 404
    for path in ("/cancel", "/run-now"):
        answer = await api.post(f"{JOBS}/{id}{path}", json={})
        assert (answer.status_code, answer.json()["argument"]) == (404, "id"), path


async def test_a_pending_job_is_cancelled_and_a_running_one_is_asked_to_stop(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    waiting, running = await enqueued(api, delay=60), await enqueued(api)
    await making.claim(await app._internals.store(), hand, "mail")
    first = (await api.post(f"{JOBS}/{waiting}/cancel", json={"reason": "no longer needed"})).json()
    assert (first["answer"], first["job"]["state"]) == ("cancelled", "cancelled")
    second = (await api.post(f"{JOBS}/{running}/cancel")).json()
    assert (second["answer"], second["job"]["cancel_requested"]) == ("requested", True)
    third = (await api.post(f"{JOBS}/{waiting}/cancel")).json()
    assert third["answer"] == "cancelled"


async def test_a_job_is_run_now_and_a_dead_letter_is_replayed(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    id = await enqueued(api, delay=3600)
    assert (await api.post(f"{JOBS}/{id}/run-now")).json()["view"] == "ready"
    [died] = await ended(app, hand, OutcomeKind.DEAD)
    assert (await api.post(f"{JOBS}/{died}/run-now")).status_code == 409
    replayed = (await api.post(f"/api/v1/dead/{died}/replay", json={"reason": "mended"})).json()
    assert (replayed["matched"], replayed["touched"], replayed["refused"]) == (1, 1, [])
    job = (await api.get(f"{JOBS}/{died}")).json()
    assert (job["view"], job["replays"], job["failures"]) == ("ready", 1, 0)
    await ended(app, hand, OutcomeKind.SUCCEEDED)
    assert (await api.post(f"/api/v1/dead/{died}/replay")).status_code == 409
    later = await enqueued(api, delay=3600)
    assert (await api.post(f"/api/v1/dead/{later}/replay")).status_code == 409
    assert (await api.post(f"{JOBS}/{died}/retry")).status_code == 404


async def test_a_bulk_act_says_first_how_many_it_would_touch(api: httpx.AsyncClient, app: Drumbeat) -> None:
    for delay in (60, 60, 0):
        await enqueued(api, delay=delay)
    body = {"action": "cancel", "filter": {"state": "scheduled"}, "dry_run": True}
    dry = (await api.post(f"{JOBS}/bulk", json=body)).json()
    assert (dry["matched"], dry["touched"], dry["dry_run"]) == (2, 0, True)
    assert len(await app.jobs.list(state="pending")) == 3
    done = (await api.post(f"{JOBS}/bulk", json=body | {"dry_run": False, "reason": "a slip"})).json()
    assert (done["matched"], done["touched"], done["dry_run"], done["in_background"]) == (2, 2, False, False)
    [left] = await app.jobs.list(state="pending")
    assert left.run_at <= left.created_at


async def test_a_bulk_act_by_ids_tells_those_that_it_could_not_touch(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    done, unknown = await enqueued(api), str(new_job_id())
    await ended(app, hand, OutcomeKind.SUCCEEDED)
    waiting = await enqueued(api)
    answer = await api.post(f"{JOBS}/bulk", json={"action": "cancel", "ids": [done, waiting, unknown]})
    assert (answer.json()["matched"], answer.json()["touched"]) == (3, 1)
    assert {each["id"] for each in answer.json()["refused"]} == {done, unknown}


async def test_every_kind_of_job_can_be_acted_on_in_bulk(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    ids = [await enqueued(api) for _ in range(3)]
    await ended(app, hand, OutcomeKind.DEAD)
    replayed = await api.post(f"{JOBS}/bulk", json={"action": "replay", "ids": ids[:2]})
    assert replayed.json()["touched"] == 2
    discarded = await api.post(f"{JOBS}/bulk", json={"action": "discard", "filter": {"error": "boom"}})
    assert discarded.json()["touched"] == 1
    await enqueued(api, delay=3600)
    due = await api.post(f"{JOBS}/bulk", json={"action": "run_now", "filter": {"state": "scheduled"}})
    assert due.json()["touched"] == 1
    cancelled = await api.post(f"{JOBS}/bulk", json={"action": "cancel", "all": True})
    assert cancelled.json()["touched"] == 3


@pytest.mark.parametrize(
    "body",
    [
        {"action": "cancel"},
        {"action": "cancel", "filter": {}},
        {"action": "cancel", "all": True, "ids": []},
        {"action": "explode", "all": True},
        {"action": "cancel", "ids": ["nonsense"]},
        {"action": "cancel", "filter": {"task": "a b"}},
        {"action": "replay", "all": True, "rate": 0},
        {"action": "replay", "all": True, "rate": "fast"},
        {"action": "cancel", "ids": [f"{number}" for number in range(10_001)]},
    ],
)
async def test_a_bulk_act_that_does_not_say_which_jobs_is_refused(
    api: httpx.AsyncClient, app: Drumbeat, body: dict[str, Any]
) -> None:
    await enqueued(api)
    answer = await api.post(f"{JOBS}/bulk", json=body)
    assert answer.status_code == 422, answer.text
    assert len(await app.jobs.list(state="pending")) == 1
