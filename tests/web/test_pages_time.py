"""The pages of tasks, time, cluster and record: what they show on each engine, to whom, and that names of others stay text."""

import html
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.admin.audit import new_act
from drumbeat.core.job import OutcomeKind
from drumbeat.core.lock import NewTicket
from drumbeat.core.schedule import FireRequest, SkippedRange
from drumbeat.durations import from_us
from drumbeat.ids import new_job_id
from drumbeat.schedules import planner
from tests.contract import making
from tests.web.conftest import TOKENS, OpenBrowser, bearer

HOSTILE = "<img src=x onerror=alert(1)>"
Read = Callable[[str], Awaitable[str]]
PAGES = ("/tasks", "/schedules", "/timeline", "/timeline?by=task", "/instances", "/locks", "/audit", "/system")


@pytest.fixture
def page(api: httpx.AsyncClient) -> Read:
    """Gives the HTML of a page: `await page("/tasks")`."""

    async def page(path: str) -> str:
        answer = await api.get(path)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/html")
        return answer.text

    return page


async def make_schedule(api: httpx.AsyncClient, name: str = "digest", **words: object) -> None:
    body = {"task": "send_mail", "name": name, "cron": "0 3 * * *", "tz": "Europe/Berlin", "args": {"to": "ada"}}
    answer = await api.post("/api/v1/schedules", json=body | words)
    assert answer.status_code == 200, answer.text


async def fire(app: Drumbeat, name: str, *, skip: int = 0, reason: str = "late") -> str:
    """The schedule's next moment comes to pass, after `skip` that were not fired."""
    store = await app._internals.store()
    known = await store.schedules.get(name)
    assert known is not None and known.next_at is not None
    at = known.next_at
    day = 86_400_000_000
    skipped = (SkippedRange(first=at - skip * day, last=at - day, count=skip, reason=reason),) if skip else ()
    [fired] = await store.schedules.fire(
        [
            FireRequest(
                name=name,
                revision=known.revision,
                expected_cursor=known.cursor,
                fires=(planner.build_fire(known.definition, at, new_job_id()),),
                skipped=skipped,
                cursor=at,
                next_at=at + day,
            )
        ]
    )
    assert fired.applied
    return fired.jobs[0]


@pytest.mark.parametrize("path", PAGES)
async def test_each_page_has_something_to_say_of_an_empty_store(api: httpx.AsyncClient, path: str) -> None:
    answer = await api.get(path)
    assert answer.status_code == 200, answer.text
    assert "<h1>" in answer.text
    assert ">None<" not in answer.text


async def test_a_task_has_a_form_with_a_field_for_each_parameter(page: Read, api: httpx.AsyncClient) -> None:
    text = await page("/tasks/send_mail")
    assert 'data-test="arg-to"' in text and 'data-test="arg-big"' in text
    assert "left empty: 0" in text
    assert 'data-test="act-enqueue"' in text


async def test_a_schedule_is_shown_in_words_with_its_next_moments_and_its_runs(
    page: Read, app: Drumbeat, api: httpx.AsyncClient
) -> None:
    await make_schedule(api, overlap="queue", jitter="30s")
    job = await fire(app, "digest", skip=3)
    listed = await page("/schedules")
    assert "at 03:00 every day (Europe/Berlin)" in listed
    assert f"/jobs/{job}" in listed and "k-missed" in listed and "k-waiting" in listed
    shown = await page("/schedules/digest")
    assert "a run waits for the previous one" in shown and "delayed by up to 30 s" in shown
    assert shown.count("<li>") >= 10 and "3 fires" in shown
    assert 'data-test="edit"' in shown


async def test_the_form_of_a_schedule_holds_what_the_schedule_is(page: Read, api: httpx.AsyncClient) -> None:
    await make_schedule(api, cron="*/5 * * * *", max_late="90m")
    text = await page("/schedules/digest/edit")
    assert 'value="*/5 * * * *"' in text and 'value="90m"' in text and 'value="Europe/Berlin"' in text
    assert 'data-method="PUT"' in text


async def test_what_code_declares_cannot_be_edited_here(app: Drumbeat, api: httpx.AsyncClient) -> None:
    @app.cron("0 3 * * *")
    async def nightly() -> None: ...

    store = await app._internals.store()
    [declared] = app._internals.declared_schedules()
    assert await store.schedules.put(declared, revision=None, cursor=None, next_at=None, by="code")
    assert 'data-test="edit"' not in (await api.get("/schedules/nightly")).text
    assert (await api.get("/schedules/nightly/edit")).status_code == 409


@pytest.mark.parametrize("rule", ["61 * * * *", "0 0 31 2 *", "' OR 1=1 --", HOSTILE, "*/90 * * * *", "0 3 * *"])
async def test_a_hostile_expression_is_refused_with_its_field(api: httpx.AsyncClient, rule: str) -> None:
    answer = await api.get("/api/v1/schedules/preview", params={"rule": rule})
    assert (answer.status_code, answer.json()["argument"]) == (422, "rule")


async def test_a_form_that_still_types_is_told_gently(api: httpx.AsyncClient) -> None:
    for rule, kind in (("61 * * * *", "cron"), ("0 3 * * *", "every"), ("5m", "cron")):
        answer = await api.get("/api/v1/schedules/preview", params={"rule": rule, "kind": kind, "lenient": "true"})
        assert (answer.status_code, answer.json()["argument"], answer.json()["items"]) == (200, "rule", [])
        assert answer.json()["error"]


async def test_a_preview_tells_the_rule_in_words(api: httpx.AsyncClient) -> None:
    answer = await api.get("/api/v1/schedules/preview", params={"rule": "90m", "grid": "true", "count": 3})
    assert answer.json()["words"] == "every 1 hour 30 minutes" and len(answer.json()["items"]) == 3


async def test_the_timeline_shows_runs_missed_moments_and_those_to_come(
    page: Read, app: Drumbeat, api: httpx.AsyncClient
) -> None:
    store = await app._internals.store()
    soon = from_us(await store.inspect.now()) + timedelta(minutes=5)
    await make_schedule(api, cron=f"{soon:%M} * * * *", tz="UTC")
    assert 'class="bar k-upcoming"' in await page("/timeline")
    job = await fire(app, "digest", skip=2)
    text = await page("/timeline?range=7d")
    assert 'data-test="lane-digest"' in text and 'class="bar k-missed"' in text
    assert f"/jobs/{job}" in await page("/timeline?by=task")
    assert "No matching lanes" in await page("/timeline?q=zzz")


async def test_the_lane_of_a_task_has_every_run_and_not_only_the_last_one(page: Read, app: Drumbeat) -> None:
    store = await app._internals.store()
    hand = await making.worker(store, queues=("mail",), tasks=app._internals.registry.signatures())
    job = await app._internals.registry["send_mail"].enqueue("ada")
    for kind in (OutcomeKind.RETRY, OutcomeKind.RETRY, OutcomeKind.SUCCEEDED):
        await app.jobs.run_now([job.id])
        [held] = await making.claim(store, hand, "mail")
        minute = 60_000_000 * {1: 10, 2: 6, 3: 2}[held.failures + 1]
        now = await store.inspect.now()
        await making.end(store, hand, held, kind, started_at=now - minute, finished_at=now - minute + 1_000_000)
    text = await page("/timeline?by=task")
    lane = text[text.index('data-test="lane-send_mail"') :]
    assert lane.count('class="bar k-failed"') == 2 and lane.count('class="bar k-succeeded"') == 1
    assert ">3 runs</small>" in lane


async def test_what_a_policy_skips_is_drawn_calmly_and_named(page: Read, app: Drumbeat, api: httpx.AsyncClient) -> None:
    await make_schedule(api)
    await fire(app, "digest", skip=2, reason="overlap")
    for path in ("/timeline?range=7d", "/schedules", "/schedules/digest"):
        text = await page(path)
        # The legend has one of each.
        assert text.count("k-skipped") == 2 and text.count("k-missed") == 1, path
        assert "2 fires skipped: the previous run was still live (overlap)" in text


async def test_the_range_of_the_timeline_is_in_its_address(page: Read) -> None:
    text = await page("/timeline?range=6h&until=2026-03-01T12:00:00Z")
    assert "2026-03-01, 06:00 to 12:00 UTC" in text
    assert "until=2026-03-01T09%3A00%3A00.000Z" in text


async def test_a_lock_shows_its_holder_and_the_line_in_order(page: Read, app: Drumbeat) -> None:
    store = await app._internals.store()
    for number, owner in enumerate(("first", "second", HOSTILE)):
        await store.locks.acquire(
            NewTicket(id=f"t{number}", lock="ledger", lease=60_000_000, owner=owner, what="books")
        )
    text = await page("/locks/ledger")
    holders, waiters = text[text.index('data-test="holders"') :].split('data-test="waiters"')
    assert "first" in holders
    assert waiters.index("second") < waiters.index("&lt;img src=x")
    assert 'data-test="act-release"' in holders
    assert 'data-test="row-ledger"' in await page("/locks")


async def test_an_act_is_in_the_audit_with_who_and_why_and_leads_to_what_it_touched(
    page: Read, api: httpx.AsyncClient
) -> None:
    await make_schedule(api)
    await api.post("/api/v1/schedules/digest/pause", json={"reason": f"because {HOSTILE}"})
    text = await page("/audit?target=digest")
    assert "schedules.pause" in text and 'href="/schedules/digest"' in text
    assert "because &lt;img src=x onerror=alert(1)&gt;" in text and HOSTILE not in text
    assert "No matching audit entries" in await page("/audit?who=nobody")


async def test_secrets_are_masked_among_the_settings(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    answer = await open_browser(guarded.dashboard(), headers=bearer("viewer")).get("/system")
    assert answer.status_code == 200 and "admin-person: •••" in answer.text
    assert not any(token in answer.text for token in TOKENS.values())


async def test_a_viewer_is_shown_no_key_that_it_may_not_press(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    board = guarded.dashboard()

    @guarded.task
    async def greet(name: str) -> None: ...

    await guarded.schedules.create("greet", cron="0 3 * * *", args=("Ada",))
    store = await guarded._internals.store()
    await store.locks.acquire(NewTicket(id="t", lock="ledger", lease=60_000_000))
    for path in ("/tasks/greet", "/schedules", "/schedules/greet", "/locks", "/locks/ledger"):
        viewer = await open_browser(board, headers=bearer("viewer")).get(path)
        admin = await open_browser(board, headers=bearer("admin")).get(path)
        assert (
            "data-act=" not in viewer.text and "enqueue-form" not in viewer.text and "new-schedule" not in viewer.text
        )
        assert "data-act=" in admin.text or "enqueue-form" in admin.text


async def test_pages_work_under_a_prefix(app: Drumbeat, open_browser: OpenBrowser) -> None:
    browser = open_browser(app.dashboard(access="open"), root="/ops")
    text = (await browser.get("/ops/schedules")).text
    assert 'href="/ops/schedules/new"' in text and 'href="/schedules' not in text
    assert 'data-preview="/ops/api/v1/schedules/preview"' in (await browser.get("/ops/schedules/new")).text


async def test_a_run_by_hand_is_on_the_page_of_its_schedule_with_who_and_why(
    api: httpx.AsyncClient, app: Drumbeat, page: Read
) -> None:
    await make_schedule(api)
    assert "No manual runs in the audit" in await page("/schedules/digest")
    made = (await api.post("/api/v1/schedules/digest/run-now", json={"reason": HOSTILE})).json()["id"]
    # As the command line records it; and one that was broken off before its end was on record.
    async with app.audit.act(who="grace", verb="schedules.run_now", target="digest", via="cli") as act:
        by_shell = await app.schedules.run_now("digest")
        act.answer = json.dumps({"id": by_shell.id})
    await app.audit.begin(new_act(who="bob", verb="schedules.run_now", target="digest"))
    text = await page("/schedules/digest")
    table = text[text.index('data-test="by-hand"') :]
    table = table[: table.index("</table>")]
    assert [made in table, by_shell.id in table] == [True, True]
    assert "grace" in table and "via cli" in table and "ready" in table
    assert html.escape(HOSTILE) in table and HOSTILE not in text
    assert "bob" in table and "not on record" in table
    assert 'data-leads="/jobs/{id}"' in text
