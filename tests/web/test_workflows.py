"""Workflows in the API and on the pages; parents and children of a job. On every engine."""

import re

import httpx
import msgspec
import pytest

from drumbeat import Drumbeat
from drumbeat.core.dependencies import IfParentFails, NewEdge
from drumbeat.core.job import OutcomeKind
from drumbeat.ids import InstanceId, new_job_id
from drumbeat.store.protocol import Store
from drumbeat.web.api import workflows
from drumbeat.web.api.workflows import WorkflowRecord
from drumbeat.web.request import DashboardRequest
from tests.contract import making
from tests.contract.flows import DIAMOND, add_flow, end_job
from tests.contract.graphs import add_graph, new_workflow
from tests.web.conftest import OpenBrowser

PAGE = {"Accept": "text/html"}
HOSTILE = '<script>alert(1)</script> "&\u202e' + "x" * 120


@pytest.fixture
async def store(app: Drumbeat) -> Store:
    return await app._internals.store()


@pytest.fixture
async def hand(store: Store) -> InstanceId:
    return await making.worker(store)


async def test_the_api_lists_and_shows_workflows(app: Drumbeat, api: httpx.AsyncClient, store: Store) -> None:
    made = [(await add_flow(store, DIAMOND, name, labels={"n": name}))[0] for name in ("a", "b", "a")]
    first = (await api.get("/api/v1/workflows", params={"limit": 2})).json()
    assert [each["id"] for each in first["items"]] == made[:0:-1]
    assert first["next"] == made[1]
    rest = (await api.get("/api/v1/workflows", params={"limit": 2, "before": first["next"]})).json()
    assert [each["id"] for each in rest["items"]] == made[:1] and rest["next"] is None
    named = (await api.get("/api/v1/workflows", params={"name": "b"})).json()["items"]
    assert [(each["name"], each["labels"], each["state"]) for each in named] == [("b", {"n": "b"}, "pending")]
    one = (await api.get(f"/api/v1/workflows/{made[0]}")).json()
    assert (one["counts"]["pending"], one["counts"]["waiting"], one["capped"]) == (1, 3, False)
    graph = (await api.get(f"/api/v1/workflows/{made[0]}/graph")).json()
    assert (len(graph["nodes"]), len(graph["edges"]), graph["tasks"]) == (4, 4, [])


async def test_a_job_in_the_api_has_its_parents_and_children(api: httpx.AsyncClient, store: Store) -> None:
    id, jobs = await add_flow(store, DIAMOND)
    left = (await api.get(f"/api/v1/jobs/{jobs['left']}")).json()
    assert [(each["id"], each["task"], each["is_open"]) for each in left["parents"]] == [(jobs["first"], "first", True)]
    assert [each["id"] for each in left["children"]] == [jobs["last"]]
    assert (left["workflow"], left["open_parents"], left["view"]) == (id, 1, "waiting")
    listed = (await api.get("/api/v1/jobs", params={"workflow": id, "state": "waiting"})).json()["items"]
    assert sorted(each["id"] for each in listed) == sorted(jobs[word] for word in ("left", "right", "last"))
    counts = (await api.get("/api/v1/jobs/counts", params={"workflow": id})).json()
    assert (counts["ready"], counts["waiting"]) == (1, 3)
    assert (await api.get("/api/v1/jobs", params={"workflow": "x"})).status_code == 422


async def test_a_workflow_is_cancelled_on_record(api: httpx.AsyncClient, store: Store, hand: InstanceId) -> None:
    id, jobs = await add_flow(store, DIAMOND)
    await end_job(store, hand, jobs["first"])
    address = f"/api/v1/workflows/{id}/cancel"
    counted = (await api.post(address, json={"dry_run": True})).json()
    assert (counted["matched"], counted["touched"]) == (3, 0)
    answer = (await api.post(address, json={"reason": "it is wrong"})).json()
    assert (answer["touched"], answer["requested"]) == (3, 0)
    assert (await api.get(f"/api/v1/workflows/{id}")).json()["state"] == "cancelled"
    [act] = (await api.get("/api/v1/audit", params={"target": id})).json()["items"]
    assert (act["verb"], act["touched"], act["reason"]) == ("workflows.cancel", 3, "it is wrong")
    assert f'<a href="/workflows/{id}">{id}</a>' in (await api.get("/audit", headers=PAGE)).text


async def test_what_failed_is_replayed_on_record(api: httpx.AsyncClient, store: Store, hand: InstanceId) -> None:
    id, jobs = await add_flow(store, DIAMOND)
    await end_job(store, hand, jobs["first"])
    await end_job(store, hand, jobs["left"], OutcomeKind.DEAD)
    address = f"/api/v1/workflows/{id}/replay"
    assert (await api.post(address, json={"dry_run": True})).json()["matched"] == 1
    assert (await api.post(address, json={})).json()["touched"] == 1
    [act] = (await api.get("/api/v1/audit", params={"target": id})).json()["items"]
    assert (act["verb"], act["touched"]) == ("workflows.replay", 1)
    assert (await api.get(f"/api/v1/jobs/{jobs['left']}")).json()["state"] == "pending"


async def test_what_is_not_there_is_404(api: httpx.AsyncClient) -> None:
    for id in (new_job_id(), "x"):
        for path in (f"/api/v1/workflows/{id}", f"/api/v1/workflows/{id}/graph", f"/workflows/{id}"):
            assert (await api.get(path)).status_code == 404
        for verb in ("cancel", "replay"):
            answer = await api.post(f"/api/v1/workflows/{id}/{verb}", json={})
            assert (answer.status_code, answer.json()["type"]) == (404, "workflow-not-found")
    assert (await api.get("/api/v1/workflows", params={"before": "x"})).status_code == 422


async def test_the_list_links_every_number(api: httpx.AsyncClient, store: Store) -> None:
    assert "No workflows yet" in (await api.get("/workflows", headers=PAGE)).text
    id, _ = await add_flow(store, DIAMOND, labels={"customer": "ada"})
    page = (await api.get("/workflows", headers=PAGE)).text
    assert f'href="/workflows/{id}"' in page and "customer=ada" in page
    assert f'href="/jobs?workflow={id}&amp;state=waiting"' in page
    assert "No such workflow" in (await api.get("/workflows", params={"name": "x"}, headers=PAGE)).text


async def test_the_graph_has_a_link_for_each_job_and_follows_their_states(
    api: httpx.AsyncClient, store: Store, hand: InstanceId
) -> None:
    id, jobs = await add_flow(store, DIAMOND)
    for word, state in [("first", "ready"), ("left", "waiting"), ("last", "waiting")]:
        assert box(await page_of(api, id), jobs[word])[0] == state
    await end_job(store, hand, jobs["first"])
    await end_job(store, hand, jobs["left"], OutcomeKind.DEAD)
    page = await page_of(api, id)
    assert [box(page, jobs[word])[0] for word in DIAMOND] == ["succeeded", "dead", "ready", "cancelled"]
    assert box(page, jobs["left"])[1].startswith("left, dead")
    assert page.count("<path class=") >= 4 and 'class="e-failed p-cancel"' in page
    assert 'data-test="act-replay"' in page and 'data-test="act-cancel"' in page


async def page_of(api: httpx.AsyncClient, id: str, **query: str) -> str:
    answer = await api.get(f"/workflows/{id}", params=query, headers=PAGE)
    assert answer.status_code == 200
    return answer.text


def box(page: str, job: str) -> tuple[str, str]:
    """The style and the words of a box, which is a link to its job."""
    [found] = re.findall(rf'<a class="box s-(\w+)" href="/jobs/{job}" data-key="{job}" .*?aria-label="([^"]*)"', page)
    return found[0], found[1]


async def test_parents_outside_of_the_workflow_are_drawn_as_such(api: httpx.AsyncClient, store: Store) -> None:
    [outside] = await making.add(store, making.new_job())
    workflow = new_workflow()
    inside = making.new_job(workflow=workflow.id)
    await add_graph(store, [inside], [NewEdge(outside, inside.id)], workflow=workflow)
    page = await page_of(api, workflow.id)
    assert "1 job in 2 layers" in page
    assert box(page, outside) == ("ready", f"greet, outside · ready, {outside}")


async def test_parents_whose_history_was_pruned_are_drawn_without_a_link(
    api: httpx.AsyncClient, store: Store, hand: InstanceId
) -> None:
    id, jobs = await add_flow(store, DIAMOND)
    await end_job(store, hand, jobs["first"])
    assert await store.jobs.prune(await store.inspect.now() + 1, 100) == 1
    page = await page_of(api, id)
    assert "3 jobs in 3 layers" in page and f"/jobs/{jobs['first']}" not in page
    assert re.search(rf'<a class="box s-left" data-key="{jobs["first"]}" .*aria-label="job .*, no longer here, ', page)
    assert 'class="e-gone p-cancel"' in page


async def test_a_graph_by_task_sums_up(api: httpx.AsyncClient, store: Store) -> None:
    graph = {"split": (), **{f"n{number}": ("split",) for number in range(3)}}
    id, _ = await add_flow(store, graph, task="render")
    page = await page_of(api, id, by="task")
    assert f'href="/jobs?workflow={id}&amp;task=render"' in page
    assert "4 jobs: 1 pending, 3 waiting" in page and "3 dependencies among themselves" in page
    assert (await api.get(f"/workflows/{id}", params={"by": "x"}, headers=PAGE)).status_code == 422


async def test_a_large_graph_is_drawn_by_task(api: httpx.AsyncClient, store: Store) -> None:
    graph = {"split": (), **{f"n{number}": ("split",) for number in range(250)}}
    id, jobs = await add_flow(store, graph, task="render")
    page = await page_of(api, id)
    assert jobs["n7"] not in page and "251 jobs: 1 pending, 250 waiting" in page and "by-task" in page


async def test_the_page_of_a_job_tells_what_it_waits_for(
    api: httpx.AsyncClient, store: Store, hand: InstanceId
) -> None:
    id, jobs = await add_flow(store, DIAMOND, HOSTILE, if_fails=IfParentFails.WAIT)
    await end_job(store, hand, jobs["first"])
    await end_job(store, hand, jobs["left"], OutcomeKind.DEAD)
    page = (await api.get(f"/jobs/{jobs['last']}", headers=PAGE)).text
    assert f'href="/workflows/{id}"' in page and "<script>alert" not in page
    assert 'data-test="reason-dead_letter"' in page and 'data-test="reason-parents"' in page
    assert "Waits for 2 parents" in page
    linked = page[page.index('data-test="dependencies"') :]
    assert f'data-test="parent-{jobs["left"]}"' in linked and "waits for its replay" in linked
    assert f'href="/jobs/{jobs["right"]}"' in linked and "child-links" not in linked
    assert 'data-test="act-run-now"' not in page and 'data-test="act-cancel"' in page
    listed = (await api.get("/jobs", params={"workflow": id, "state": "waiting"}, headers=PAGE)).text
    assert "waits for 2 parents" in listed


async def test_the_page_of_a_job_that_a_parent_cancelled_says_so(
    api: httpx.AsyncClient, store: Store, hand: InstanceId
) -> None:
    _, jobs = await add_flow(store, DIAMOND)
    await end_job(store, hand, jobs["first"], OutcomeKind.DEAD)
    page = (await api.get(f"/jobs/{jobs['left']}", headers=PAGE)).text
    assert "Why was it cancelled?" in page and f"because its parent {jobs['first']} (task first) died" in page


async def test_the_page_of_a_job_that_a_person_cancelled_asks_nothing(
    app: Drumbeat, api: httpx.AsyncClient, store: Store
) -> None:
    [id] = await making.add(store, making.new_job())
    await app.jobs.cancel(id)
    assert "Why was it cancelled?" not in (await api.get(f"/jobs/{id}", headers=PAGE)).text


async def test_the_search_box_knows_workflows(api: httpx.AsyncClient, store: Store) -> None:
    id, _ = await add_flow(store, DIAMOND)
    answer = await api.get("/jobs", params={"q": f"workflow:{id} state:waiting"}, headers=PAGE)
    assert answer.status_code == 303
    assert set(answer.headers["location"].partition("?")[2].split("&")) == {f"workflow={id}", "state=waiting"}


async def test_names_are_text_under_a_prefix_too(app: Drumbeat, store: Store, open_browser: OpenBrowser) -> None:
    id, jobs = await add_flow(store, {"a": ()}, HOSTILE, labels={HOSTILE: HOSTILE})
    browser = open_browser(app.dashboard(access="open"), root="/admin/jobs")
    for path in ("/workflows", f"/workflows/{id}"):
        page = (await browser.get(f"/admin/jobs{path}", headers=PAGE)).text
        assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page
        assert re.findall(r'(?:href|src|action)="/(?!admin/jobs)', page) == []
    assert f'href="/admin/jobs/jobs/{jobs["a"]}"' in page


async def test_a_workflow_with_more_jobs_than_were_counted_can_be_cancelled(
    api: httpx.AsyncClient, store: Store, hand: InstanceId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were counted may all have ended."""
    id, jobs = await add_flow(store, {"a": ()})
    await end_job(store, hand, jobs["a"])
    assert "act-cancel" not in await page_of(api, id)
    show = workflows.show

    async def show_capped(request: DashboardRequest, id: str) -> WorkflowRecord:
        return msgspec.structs.replace(await show(request, id), capped=True)

    monkeypatch.setattr(workflows, "show", show_capped)
    page = await page_of(api, id)
    assert 'data-test="act-cancel"' in page and 'data-test="act-replay"' in page


async def test_a_graph_of_very_many_edges_is_drawn_by_task(api: httpx.AsyncClient, store: Store) -> None:
    above = [f"a{number}" for number in range(56)]
    id, _ = await add_flow(store, dict.fromkeys(above, ()) | {f"b{number}": above for number in range(56)}, task="t")
    page = await page_of(api, id)
    assert "by-task" in page and 'data-test="by-task"' not in page and "3,136 dependencies among themselves" in page
