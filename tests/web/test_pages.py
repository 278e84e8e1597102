"""Pages of the first half: what they show, to whom, and where their links lead."""

import html
import json
import re
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.core.job import Failure, OutcomeKind
from drumbeat.core.stats import Resolution, Rollup
from drumbeat.glossary import meaning_of
from drumbeat.ids import InstanceId, JobId
from drumbeat.web import Dashboard
from tests.contract import making
from tests.web.conftest import OpenBrowser, bearer

HOSTILE = "<script>alert(1)</script>"
PAGES = ["/", "/?range=24h", "/jobs", "/jobs?state=dead", "/jobs?state=ready", "/dead", "/queues", "/queues/mail"]


@pytest.fixture
async def hand(app: Drumbeat) -> InstanceId:
    return await making.worker(
        await app._internals.store(), queues=("mail",), tasks=app._internals.registry.signatures()
    )


async def run(app: Drumbeat, hand: InstanceId, *kinds: OutcomeKind) -> list[str]:
    """Jobs whose first run ended like this, in the order in which they were enqueued."""
    task, store = app._internals.registry["send_mail"], await app._internals.store()
    handles = await app.enqueue_many([task.bind(HOSTILE) for _ in kinds])
    kind_of = {handle.id: kind for handle, kind in zip(handles, kinds, strict=True)}
    error = Failure("Bounced", HOSTILE, f"Traceback: {HOSTILE}")
    jobs = await making.claim(store, hand, "mail", limit=len(kinds))
    outcomes = [
        making.outcome(job, kind, error=None if kind is OutcomeKind.SUCCEEDED else error)
        for job in jobs
        if (kind := kind_of.get(job.id)) is not None
    ]
    await making.report(store, hand, *outcomes)
    return [handle.id for handle in handles]


def rows(page: httpx.Response) -> list[str]:
    return re.findall(r'data-test="row-([0-9a-f-]{36})"', page.text)


def acts(page: httpx.Response) -> set[str]:
    return set(re.findall(r'data-test="act-([\w-]+)"', page.text))


@pytest.mark.parametrize("path", ["/", "/jobs", "/dead", "/audit", "/locks", "/schedules", "/tasks", "/timeline"])
async def test_a_page_ignores_parameters_that_the_api_refuses(api: httpx.AsyncClient, path: str) -> None:
    assert (await api.get(path, params={"campaign": "7"})).status_code == 200
    refused = await api.get(f"/api/v1{'/status' if path in ('/', '/timeline') else path}", params={"campaign": "7"})
    assert (refused.status_code, refused.json()["argument"]) == (422, "campaign")


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_of_an_empty_store_says_so(api: httpx.AsyncClient, path: str) -> None:
    page = await api.get(path)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<h1" in page.text
    # A queue is there as soon as a task names it.
    assert ('data-test="empty"' in page.text) == (path != "/queues")


async def test_names_and_errors_from_the_store_are_shown_as_text(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    [dead, _] = await run(app, hand, OutcomeKind.DEAD, OutcomeKind.RETRY)
    await app.queues.pause("mail", reason=HOSTILE, by=HOSTILE)
    for path in [*PAGES, f"/jobs/{dead}"]:
        page = await api.get(path)
        assert page.status_code == 200 and HOSTILE not in page.text, path
    assert html.escape(HOSTILE) in (await api.get(f"/jobs/{dead}")).text


async def test_the_story_of_a_job_has_each_of_its_runs(api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId) -> None:
    [id] = await run(app, hand, OutcomeKind.RETRY)
    store = await app._internals.store()
    await app.jobs.run_now(id)
    [job] = await making.claim(store, hand, "mail")
    await making.end(store, hand, job, OutcomeKind.SUCCEEDED, result="9007199254740993")
    page = (await api.get(f"/jobs/{id}")).text
    assert "Run 1 failed, will retry" in page and "Run 2 succeeded" in page
    assert 'data-test="result">9007199254740993<' in page


async def test_a_job_that_waits_says_why(api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId) -> None:
    job = await app._internals.registry["send_mail"].enqueue("ada")
    await app.queues.pause("mail", reason="their server is down", by="grace")
    page = (await api.get(f"/jobs/{job.id}")).text
    assert 'data-test="reason-queue_paused"' in page and "their server is down" in page


async def test_secrets_in_arguments_are_not_shown(api: httpx.AsyncClient, app: Drumbeat) -> None:
    @app.task(name="log_in")
    async def log_in(password: str) -> None: ...

    job = await log_in.enqueue("hunter2")
    assert "hunter2" not in (await api.get(f"/jobs/{job.id}")).text


async def test_an_address_of_no_job_is_not_found(api: httpx.AsyncClient) -> None:
    page = await api.get("/jobs/01a1dfac-ce22-775a-8c32-6bd27b5acd69", headers={"Accept": "text/html"})
    assert page.status_code == 404


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("send_mail", {"task": ["send_mail"]}),
        ("mail", {"queue": ["mail"]}),
        ("dead", {"state": ["dead"]}),
        ("order-7", {"key": ["order-7"]}),
        ("mailbox full", {"error": ["mailbox full"]}),
        (
            'task:send_mail error:"mailbox full" state:dead',
            {"task": ["send_mail"], "error": ["mailbox full"], "state": ["dead"]},
        ),
        ("01a1dfac-ce22", {"id": ["01a1dfac-ce22"]}),
    ],
)
async def test_one_line_of_search_becomes_an_address_that_says_what_it_means(
    api: httpx.AsyncClient, app: Drumbeat, line: str, fields: dict[str, list[str]]
) -> None:
    await app._internals.registry["send_mail"].using(key="order-7").enqueue("ada")
    answer = await api.get("/jobs", params={"q": line})
    assert answer.status_code == 303
    assert parse_qs(urlsplit(answer.headers["location"]).query) == fields


async def test_an_id_in_the_search_box_leads_to_its_job(api: httpx.AsyncClient, app: Drumbeat) -> None:
    job = await app._internals.registry["send_mail"].enqueue("ada")
    assert (await api.get("/jobs", params={"q": job.id})).headers["location"] == f"/jobs/{job.id}"


async def test_an_id_is_found_by_its_end_as_lists_show_it(api: httpx.AsyncClient, app: Drumbeat) -> None:
    first, second = [await app._internals.registry["send_mail"].enqueue("ada") for _ in range(2)]
    listed = (await api.get("/jobs")).text
    for job in (first, second):
        [shown] = re.findall(rf'href="/jobs/{job.id}" title="[^"]*">([^<]*)<', listed)
        for line in (shown, shown.strip("…"), shown.strip("…")[-8:].upper(), job.id.upper()):
            answer = await api.get("/jobs", params={"q": line})
            assert answer.headers["location"] == f"/jobs/{job.id}", line
    found = await api.get("/api/v1/jobs", params={"id_end": first.id[-6:]})
    assert [each["id"] for each in found.json()["items"]] == [first.id]
    refused = await api.get("/api/v1/jobs", params={"id_end": "xyz"})
    assert (refused.status_code, refused.json()["argument"]) == (422, "id_end")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tsk:send_mail", "unknown field 'tsk'; did you mean task?"),
        ("state:dead quue:mail", "unknown field 'quue'; did you mean queue?"),
        ("colour:red", "unknown field 'colour'. Fields are state, task,"),
    ],
)
async def test_a_field_that_there_is_not_is_told_with_those_that_there_are(
    api: httpx.AsyncClient, line: str, said: str
) -> None:
    page = await api.get("/jobs", params={"q": line})
    assert page.status_code == 422
    assert said in html.unescape(page.text) and "ended_until" in page.text
    assert f'value="{line}"' in page.text, "it can be mended where it was typed"


@pytest.mark.parametrize(
    "line", ["ValueError: boom", "ValueError:boom", "https://example.org/x", "at 10:30", "order:7"]
)
async def test_errors_addresses_and_keys_with_a_colon_are_no_fields(
    api: httpx.AsyncClient, app: Drumbeat, line: str
) -> None:
    await app._internals.registry["send_mail"].using(key="order:7").enqueue("ada")
    answer = await api.get("/jobs", params={"q": line})
    name = "key" if line == "order:7" else "error"
    assert parse_qs(urlsplit(answer.headers["location"]).query) == {name: [line]}


async def test_what_can_be_searched_for_is_told_on_every_page(api: httpx.AsyncClient) -> None:
    for path in ("/", "/jobs"):
        text = (await api.get(path)).text
        help = text[text.index('data-test="find-help"') :]
        assert all(f"<code>{name}:" in help for name in ("state", "task", "key", "error", "ended_since", "id_end"))


async def test_the_api_lists_jobs_by_when_they_ended(api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId) -> None:
    store = await app._internals.store()
    task = app._internals.registry["send_mail"]
    ids = [(await task.enqueue("ada")).id for _ in range(6)]
    jobs = {job.id: job for job in await making.claim(store, hand, "mail", limit=5)}
    now = await store.inspect.now()
    minutes = dict(zip(ids, (50, 40, 30, 20, 10), strict=False))
    await making.report(
        store,
        hand,
        *[
            making.outcome(
                jobs[JobId(id)],
                OutcomeKind.SUCCEEDED,
                started_at=now + minute * 60_000_000 - 5,
                finished_at=now + minute * 60_000_000,
            )
            for id, minute in minutes.items()
        ],
    )
    ends = {id: job.finished_at for id in ids if (job := await app.jobs.show(id)).finished_at is not None}
    ordered = sorted(ends, key=lambda id: ends[id])
    window = {"ended_since": ends[ordered[1]].isoformat(), "ended_until": ends[ordered[4]].isoformat()}
    found: list[str] = []
    before: dict[str, str] = {}
    while True:
        page = (await api.get("/api/v1/jobs", params=window | before | {"limit": "2"})).json()
        found += [job["id"] for job in page["items"]]
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    wanted = {id for id in ends if ends[ordered[1]] <= ends[id] < ends[ordered[4]]}
    assert found == sorted(wanted, reverse=True)
    assert (await api.get("/api/v1/jobs/counts", params=window)).status_code == 422, "counts cannot go by ends"


async def test_tabs_count_and_lead_to_what_they_count(api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId) -> None:
    ids = await run(app, hand, OutcomeKind.DEAD, OutcomeKind.SUCCEEDED, OutcomeKind.SUCCEEDED)
    page = await api.get("/jobs", params={"state": "succeeded"})
    assert rows(page) == ids[:0:-1]
    assert 'data-test="count-succeeded">2<' in page.text and 'data-test="count-dead">1<' in page.text


async def test_pages_of_jobs_follow_each_other_without_a_gap(api: httpx.AsyncClient, app: Drumbeat) -> None:
    task = app._internals.registry["send_mail"]
    ids = [handle.id for handle in await app.enqueue_many([task.bind("ada") for _ in range(5)])]
    seen: list[str] = []
    path: str | None = "/jobs?limit=2"
    while path is not None:
        page = await api.get(path)
        seen += rows(page)
        older = re.search(r'href="([^"]+)" data-test="older"', page.text)
        path = html.unescape(older[1]) if older else None
    assert seen == ids[::-1]


async def test_a_moment_that_cannot_be_read_is_told_at_its_field(api: httpx.AsyncClient) -> None:
    page = await api.get("/jobs", params={"since": "yesterday, or so"})
    assert page.status_code == 422 and "since must be a time" in html.unescape(page.text)


async def test_a_bar_leads_to_just_the_jobs_that_ended_in_its_stretch(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    ids = await run(app, hand, OutcomeKind.SUCCEEDED, OutcomeKind.DEAD, OutcomeKind.SUCCEEDED)
    store = await app._internals.store()
    ended = (await app.jobs.show(ids[0])).finished_at
    assert ended is not None
    at = int(ended.timestamp()) // 10 * 10_000_000
    counted = Rollup(
        resolution=Resolution.TEN_SECONDS, at=at, queue="mail", task="send_mail", succeeded=2, failed=1, dead=1
    )
    await store.stats.put(hand, [counted])
    overview = (await api.get("/")).text
    hrefs = dict(re.findall(r'href="([^"]+)" class="seg"[^>]*data-test="bar-(\w+)"', overview))
    by_kind = {kind: html.unescape(href) for href, kind in hrefs.items()}
    assert rows(await api.get(by_kind["succeeded"])) == [ids[2], ids[0]]
    assert rows(await api.get(by_kind["dead"])) == [ids[1]]
    before = by_kind["succeeded"].replace("ended_until", "since").replace("ended_since", "ended_until")
    assert rows(await api.get(before)) == []


async def test_an_export_has_a_line_for_each_job_that_matches(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    ids = await run(app, hand, *[OutcomeKind.SUCCEEDED] * 3, OutcomeKind.DEAD)
    answer = await api.get("/jobs/export", params={"state": "succeeded"})
    assert [json.loads(line)["id"] for line in answer.text.splitlines()] == ids[2::-1]
    assert answer.headers["content-disposition"] == 'attachment; filename="jobs.jsonl"'


async def test_dead_letters_are_grouped_and_a_group_leads_to_its_letters(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    ids = await run(app, hand, OutcomeKind.DEAD, OutcomeKind.DEAD)
    page = await api.get("/dead")
    [href] = re.findall(r'<a href="([^"]+)" data-test="group-count">2</a>', page.text)
    assert rows(await api.get(html.unescape(href))) == ids[::-1]
    assert rows(await api.get("/dead", params={"error": "another"})) == []


async def test_the_overview_says_what_needs_somebody(api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId) -> None:
    await run(app, hand, OutcomeKind.DEAD)
    await app._internals.registry["send_mail"].enqueue("ada")
    await app.queues.pause("mail", reason="their server is down", by="grace")
    page = (await api.get("/")).text
    needs = page[page.index('data-test="needs"') :]
    assert "1 dead letter" in needs and "Queue mail is paused" in needs
    assert 'data-test="counter-dead">1<' in page


async def test_the_number_of_dead_letters_is_the_same_wherever_it_stands(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    store, many = await app._internals.store(), 9
    for number in range(many):  # more groups than the overview has room for
        job = await making.claimed_one(store, hand, queue="mail", task=f"task{number}", priority=1)
        await making.end(store, hand, job, OutcomeKind.DEAD)
    [gone] = await run(app, hand, OutcomeKind.DEAD)
    await app.dead.discard(gone)
    overview, dead = (await api.get("/")).text, (await api.get("/dead")).text
    for page in (overview, dead):
        assert f'data-test="counter-dead-nav">{many}<' in page
    assert f"{many} dead letters</a>" in overview and f"{many}+" not in overview
    assert f"{many} of {many}<" in dead, "what was discarded is in neither"


async def test_a_job_that_runs_for_the_first_time_is_not_said_not_to_have_run(
    api: httpx.AsyncClient, app: Drumbeat, hand: InstanceId
) -> None:
    store = await app._internals.store()
    waits = (await app._internals.registry["send_mail"].using(delay=60).enqueue("ada")).id
    runs = (await making.claimed_one(store, hand, queue="mail", task="send_mail")).id
    never = (await app._internals.registry["send_mail"].enqueue("ada")).id
    await app.jobs.cancel(never)
    texts = [(await api.get(f"/jobs/{id}")).text for id in (waits, runs, never)]
    words = ["Not run yet", "First run in progress", "No runs on record"]
    assert [[word in text for word in words] for text in texts] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]


async def test_the_dialog_of_a_cancellation_names_both_buttons_by_what_they_do(
    api: httpx.AsyncClient, app: Drumbeat
) -> None:
    job = await app._internals.registry["send_mail"].enqueue("ada")
    one, many = (await api.get(f"/jobs/{job.id}")).text, (await api.get("/jobs?state=ready")).text
    assert 'data-confirm="Cancel the job" data-dismiss="Back"' in one
    assert 'data-confirm="Cancel these jobs" data-dismiss="Back"' in many


@pytest.mark.parametrize("path", PAGES)
async def test_a_viewer_is_shown_no_button_that_acts(guarded: Drumbeat, open_browser: OpenBrowser, path: str) -> None:
    @guarded.task(queue="mail", name="send_mail")
    async def send_mail(to: str) -> None: ...

    hand = await making.worker(
        await guarded._internals.store(), queues=("mail",), tasks=guarded._internals.registry.signatures()
    )
    [dead, _] = await run(guarded, hand, OutcomeKind.DEAD, OutcomeKind.RETRY)
    viewer = open_browser(guarded.dashboard(), headers=bearer("viewer"))
    assert acts(await viewer.get(path)) == set()
    assert acts(await viewer.get(f"/jobs/{dead}")) == set()


async def test_each_role_is_offered_what_it_may_do(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    @guarded.task(queue="mail", name="send_mail")
    async def send_mail(to: str) -> None: ...

    hand = await making.worker(
        await guarded._internals.store(), queues=("mail",), tasks=guarded._internals.registry.signatures()
    )
    [dead] = await run(guarded, hand, OutcomeKind.DEAD)
    operator, admin = (open_browser(guarded.dashboard(), headers=bearer(role)) for role in ("operator", "admin"))
    assert acts(await operator.get(f"/jobs/{dead}")) == {"replay"}
    assert acts(await admin.get(f"/jobs/{dead}")) == {"replay", "discard"}
    assert acts(await operator.get("/queues")) == {"pause"}
    assert acts(await operator.get("/dead")) == set()


async def test_under_a_prefix_every_address_has_it(
    app: Drumbeat, board: Dashboard, hand: InstanceId, open_browser: OpenBrowser
) -> None:
    [dead] = await run(app, hand, OutcomeKind.DEAD)
    browser = open_browser(board, root="/admin/jobs")
    for path in [*PAGES, f"/jobs/{dead}"]:
        page = await browser.get(f"/admin/jobs{path}")
        assert page.status_code == 200, path
        addresses = re.findall(r'(?:href|src|action|data-url)="(/[^"]*|)"', page.text)
        assert addresses
        assert [each for each in addresses if not each.startswith("/admin/jobs/")] == [], path


async def test_only_what_is_asked_for_again_is_drawn_again(api: httpx.AsyncClient) -> None:
    whole, part = await api.get("/"), await api.get("/", headers={"X-Refresh": "needs,health"})
    assert 'data-test="chart-run"' in whole.text and 'data-test="chart-run"' not in part.text
    assert 'data-region="needs"' in part.text


async def test_headings_are_explained_by_the_glossary(api: httpx.AsyncClient) -> None:
    for path, name in [("/queues", "ready"), ("/tasks", "pending"), ("/dead", "dead letter"), ("/audit", "audit")]:
        page = (await api.get(path)).text
        assert f'title="{html.escape(meaning_of(name))}"' in page, path
