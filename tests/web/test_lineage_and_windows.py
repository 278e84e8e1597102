"""On every engine: the tree of a job, any window of time as a link, and this week beside the last."""

import html
import re

import httpx

from drumbeat import Drumbeat
from drumbeat.core.job import OutcomeKind
from drumbeat.core.stats import BUCKETS, Resolution, Rollup, interval_of
from drumbeat.ids import JobId, new_job_id
from tests.contract.making import HOUR, add, claim, end, new_job, worker

PAGE = {"Accept": "text/html"}


async def family(app: Drumbeat) -> list[JobId]:
    """A grandparent, a parent, and three children that have ended."""
    store = await app._internals.store()
    top, middle = new_job_id(), new_job_id()
    more = {"queue": "mail", "task": "send_mail"}
    await add(store, new_job(id=top, **more), new_job(id=middle, parent=top, **more))
    made = await add(store, *(new_job(parent=middle, **more) for _ in range(3)))
    instance = await worker(store, queues=("mail",), tasks=app._internals.registry.signatures())
    for job in await claim(store, instance, "mail"):
        await end(store, instance, job, OutcomeKind.SUCCEEDED)
    return [top, middle, *made]


async def test_the_page_of_a_job_has_its_tree_and_so_has_the_api(app: Drumbeat, api: httpx.AsyncClient) -> None:
    top, middle, *children = await family(app)
    answer = (await api.get(f"/api/v1/jobs/{middle}/lineage", params={"limit": 2})).json()
    assert [job["id"] for job in answer["ancestors"]] == [top]
    assert [(each["job"]["id"], each["depth"]) for each in answer["descendants"]] == [
        (children[2], 1),
        (children[1], 1),
    ]
    rest = (await api.get(f"/api/v1/jobs/{middle}/lineage", params={"before": answer["next"]})).json()
    assert [each["job"]["id"] for each in rest["descendants"]] == [children[0]]
    page = (await api.get(f"/jobs/{middle}", headers=PAGE)).text
    tree = page[page.index('data-test="lineage"') : page.index('aria-labelledby="runs-title"')]
    assert re.findall(r'href="/jobs/([0-9a-f-]{36})"', tree) == [top, *reversed(children)]
    assert f'href="/jobs/{middle}"' in (await api.get(f"/jobs/{children[0]}", headers=PAGE)).text
    listed = (await api.get("/api/v1/jobs", params={"parent": middle, "state": "succeeded"})).json()["items"]
    assert {job["id"] for job in listed} == set(children)
    assert (await api.get(f"/api/v1/jobs/{new_job_id()}/lineage")).status_code == 404


async def test_the_form_of_a_window_leads_to_a_link_that_can_be_shared(app: Drumbeat, api: httpx.AsyncClient) -> None:
    await family(app)
    [last] = (await api.get("/api/v1/jobs", params={"limit": 1})).json()["items"]
    second = last["finished_at"][:19]
    form = {"task": "send_mail", "window": "ended", "window_since": second, "window_until": "2100-01-01T00:00:00"}
    shared = (await api.get("/jobs", params=form, headers=PAGE)).headers["location"]
    assert "ended_since=" in shared and "window" not in shared
    page = (await api.get(shared, headers=PAGE)).text
    assert last["id"] in page and f'value="{second}"' in page
    ended = await app.jobs.list(ended_since=f"{second}Z", ended_until="2100-01-01T00:00Z", limit=3)
    assert last["id"] in {job.id for job in ended}
    assert await app.jobs.list(ended_until="2020-01-01T00:00Z") == []
    early = {"window": "ended", "window_since": "2020-01-01T00:00:00", "window_until": "2020-01-02T00:00:00"}
    page = (await api.get((await api.get("/jobs", params=early, headers=PAGE)).headers["location"], headers=PAGE)).text
    assert last["id"] not in page
    for path in ("/timeline?by=task", "/tasks?", "/tasks/send_mail?"):
        window = f"{path}&since={second}Z&until=2000-01-01T00:00:00Z"
        refused = await api.get(window, headers=PAGE)
        assert refused.status_code == 422 and "since must be before until" in html.unescape(refused.text)
    for path in ("/timeline?by=task", "/timeline?by=schedule", "/tasks?", "/tasks/send_mail?"):
        page = (await api.get(f"{path}&since=2026-11-14T09:30:05Z&until=2026-11-14T09:45:00Z", headers=PAGE)).text
        assert "2026-11-14 09:30:05 to 09:45:00 UTC" in page, path


async def test_this_week_stands_beside_the_last(app: Drumbeat, api: httpx.AsyncClient) -> None:
    store = await app._internals.store()
    instance = await worker(store, queues=("mail",), tasks=app._internals.registry.signatures())
    now = await store.inspect.now()
    this, last = interval_of(Resolution.HOUR, now), interval_of(Resolution.HOUR, now - 8 * 24 * HOUR)

    def hour(at: int, bucket: int, **counts: int) -> Rollup:
        times = tuple(counts["started"] if place == bucket else 0 for place in range(BUCKETS))
        facts = {"resolution": Resolution.HOUR, "at": at, "queue": "mail", "task": "send_mail", "run": times}
        return Rollup(**facts, wait=times, **counts)  # type: ignore[arg-type]

    await store.stats.put(instance, [hour(this, 10, started=10, failed=5), hour(last, 8, started=20, failed=1)])
    [weeks] = (await api.get("/api/v1/stats/weeks")).json()["items"]
    assert (weeks["task"], weeks["this_week"]["runs"], weeks["last_week"]["failure_rate"]) == ("send_mail", 10, 0.05)
    assert weeks["this_week"]["run_p95"] > weeks["last_week"]["run_p95"]
    assert (await app.stats.weeks(task="send_mail"))[0].this_week.failed == 5
    assert "This week and the last" in (await api.get("/tasks/send_mail", headers=PAGE)).text
    row = html.unescape((await api.get("/tasks", headers=PAGE)).text)
    assert "failed ×10" in row and "failed: 50.0 % this week, 5.0 % last week" in row
