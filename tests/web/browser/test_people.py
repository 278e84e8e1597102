"""Who may do what, and what somebody hostile has written into the store or writes into a form."""

import re

import pytest
from playwright.async_api import Page, expect

from drumbeat import Drumbeat
from drumbeat.core.job import Failure, OutcomeKind
from drumbeat.web.pages import PAGES
from tests.contract import making
from tests.contract.test_locks import enter
from tests.web.browser.accessibility import violations
from tests.web.browser.dialog import is_same, mark
from tests.web.browser.page_opener import OpenPage
from tests.web.browser.page_urls import furnish, places
from tests.web.browser.shop import declare
from tests.web.conftest import TOKENS
from tests.web.live_server import serve_dashboard

EVIL = "<img src=x onerror=alert(1)>"
WORD = f"x{EVIL}\"'><script>alert(2)<\\script>"


async def test_a_viewer_logs_in_sees_no_button_that_acts_and_is_refused_by_the_api(
    open_page: OpenPage, store_url: str
) -> None:
    tokens = [f"{role}-person:{role}:{token}" for role, token in TOKENS.items()]
    async with Drumbeat(store_url, name="shop", dashboard_tokens=tokens, poll=0.1) as app:
        declare(app)
        await furnish(app)
        async with serve_dashboard(app.dashboard()) as (address, _):
            page = await open_page(address)
            # Not an admin by being at this machine: the first page is the login.
            await page.goto("/jobs?state=dead")
            assert await violations(page) == []
            await page.get_by_test_id("token").fill(TOKENS["viewer"])
            await page.get_by_test_id("log-in").click()
            await page.wait_for_url("**/jobs?state=dead")
            for place in await places(app):
                await page.goto(place)
                assert await page.locator("[data-act], [data-test^=act-], [data-pick-row]").count() == 0, place
            own = {"Origin": address, "Sec-Fetch-Site": "same-origin"}
            for path in ("/api/v1/queues/mail/pause", "/api/v1/dead/replay", "/api/v1/jobs/bulk"):
                answer = await page.request.post(path, headers=own, data={"all": True, "action": "cancel"})
                assert (answer.status, (await answer.json())["type"]) == (403, "role"), path
            assert not any(queue.paused for queue in await app.queues.list() if queue.name == "mail")


@pytest.mark.parametrize("role", ["operator", "admin"])
async def test_somebody_who_may_act_sees_the_buttons_for_it(open_page: OpenPage, store_url: str, role: str) -> None:
    tokens = [f"{role}-person:{role}:{TOKENS[role]}"]
    async with Drumbeat(store_url, dashboard_tokens=tokens) as app:
        declare(app)
        async with serve_dashboard(app.dashboard()) as (address, _):
            page = await open_page(address)
            await page.goto("/login?next=/queues")
            await page.get_by_test_id("token").fill(TOKENS[role])
            await page.keyboard.press("Enter")
            await expect(page.get_by_test_id("row-mail").get_by_test_id("act-pause")).to_be_visible()
            await page.goto("/schedules")
            await expect(page.get_by_test_id("new-schedule")).to_have_count(1 if role == "admin" else 0)
            await page.get_by_role("button", name="Log out").click()
            await expect(page.get_by_test_id("login")).to_be_visible()


async def test_what_somebody_hostile_wrote_is_text_on_every_page_and_stays_text(page: Page, app: Drumbeat) -> None:
    store = await app._internals.store()
    hand = await making.worker(store, app=WORD, host=WORD, version=WORD, queues=(WORD,), tasks={WORD: WORD})
    error = Failure(WORD, WORD, WORD)
    for kind in (OutcomeKind.DEAD, OutcomeKind.RETRY):
        job = await making.claimed_one(
            store, hand, task=WORD, queue=WORD, key=f"{kind}{WORD}", args=f'{{"to":"{EVIL}"}}'
        )
        await making.report(store, hand, making.outcome(job, kind, error=error))
    await store.jobs.pause_queue(WORD, by=WORD, reason=WORD)
    for _ in range(2):
        await enter(store, "ledger", owner=WORD, what=WORD)
    await enter(store, WORD)
    async with app.audit.act(who=WORD, verb="queues.pause", target=WORD, reason=WORD):
        pass
    # Names are checked where they are made: a thing of such a name is in lists, and has no page of its own.
    places = [route.path for route in PAGES if "{" not in route.path and route.path != "/jobs/export"]
    shown = set()
    for place in [*places, f"/jobs/{job.id}", f"/instances/{hand}", "/locks/ledger"]:
        await page.goto(place)
        assert await page.locator("img, main script").count() == 0, place
        if EVIL in await page.locator("main").inner_text():
            shown.add(place)
    assert len(shown) >= 9, shown
    # Also after the page has taken in what is new.
    await page.goto("/jobs")
    await mark(page)
    [new] = await making.add(store, making.new_job(task=WORD, queue=WORD, key=f"new{WORD}"))
    await expect(page.get_by_test_id(f"row-{new}")).to_contain_text(f"new{WORD}")
    await page.goto("/queues")
    await page.get_by_test_id("act-resume").click()
    await expect(page.locator("#act-title")).to_have_text(f"Resume {WORD}?")
    assert await page.locator("img").count() == 0


HOSTILE_RULES = {
    EVIL: "img",
    "0 0 30 2 *": "never",
    "* * * * * * *": "fields",
    "61 * * * *": "61",
    "*/0 * * * *": "0",
    "0 9 * * 1-" + "9" * 280: "",
    "%00 ' OR 1=1 --": "",
}


async def test_a_rule_that_cannot_be_is_refused_at_its_field_and_a_good_one_is_shown_in_words(
    page: Page, app: Drumbeat
) -> None:
    await page.goto("/schedules/new")
    await mark(page)
    cron, error, moments = (page.get_by_test_id(name) for name in ("cron", "error-cron", "preview"))
    for rule, told in HOSTILE_RULES.items():
        await cron.fill(rule)
        await expect(error).to_contain_text(told)
        await expect(error).to_be_visible()
        await expect(cron).to_have_attribute("aria-invalid", "true")
        await expect(moments.locator("li")).to_have_count(0)
        await cron.fill("30 9 * * 1-5")
        await expect(error).to_be_hidden()
        await expect(moments.locator("li")).to_have_count(8)
        await expect(moments.locator("li").first).to_contain_text("09:30:00")
    assert await is_same(page)


async def test_a_schedule_is_made_in_the_form_and_fires_as_it_said(page: Page, app: Drumbeat) -> None:
    await page.goto("/schedules/new")
    await page.get_by_test_id("task").select_option("send_mail")
    await page.get_by_test_id("name").fill("weekday-mail")
    await page.get_by_test_id("cron").fill(EVIL)
    await page.get_by_test_id("args").fill('{"to": "ada@example.org"}')
    await page.get_by_test_id("save").click()
    await expect(page.get_by_test_id("error-cron")).to_contain_text("img")
    assert await app.schedules.list() == []
    await page.get_by_test_id("cron").fill("30 9 * * 1-5")
    await page.get_by_test_id("tz").fill("Europe/Berlin")
    first = page.get_by_test_id("preview").locator("li").first
    await expect(first).to_contain_text(re.compile(r"09:30:00 \+0[12]:00"))
    await page.get_by_test_id("save").click()
    await page.wait_for_url("**/schedules/weekday-mail")
    made = await app.schedules.show("weekday-mail")
    assert (made.task, made.cron, made.tz) == ("send_mail", "30 9 * * 1-5", "Europe/Berlin")
