"""What people do all day, on all three engines between them, under live updates."""

import re
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import Page, expect

from drumbeat import Drumbeat
from drumbeat.core.job import JobState
from tests.waiting import until, within
from tests.web.browser.dialog import confirm, is_same, mark
from tests.web.browser.page_opener import on_engine
from tests.web.browser.shop import MAIL, dead_letters, enqueue, working


async def state(app: Drumbeat, id: str) -> JobState:
    return (await app.jobs.show(id)).state


async def ended(app: Drumbeat, ids: list[str]) -> None:
    async def all_ended() -> bool:
        jobs = [await app.jobs.show(id) for id in ids]
        return all(job.state not in (JobState.PENDING, JobState.RUNNING) for job in jobs)

    await until(all_ended, deadline=20, what="the end of all jobs")


@on_engine("sqlite")
async def test_counters_move_without_a_reload_within_two_seconds_of_an_enqueue(
    page_as_delivered: Page, app: Drumbeat
) -> None:
    page = page_as_delivered
    await page.goto("/")
    ready = page.get_by_test_id("counter-ready")
    await expect(ready).to_have_text("0")
    # The first tick has come: from now on it is the stream that moves them.
    await expect(page.get_by_test_id("rate-started")).not_to_have_text("–")
    await mark(page)
    await enqueue(app, 7)
    with within(2.0):
        await expect(ready).to_have_text("7")
    assert await is_same(page)


@on_engine("postgres")
async def test_a_bar_of_a_chart_leads_to_just_the_jobs_that_it_counts(page: Page, app: Drumbeat) -> None:
    async with working(app):
        good = await enqueue(app, 5)
        bad = await enqueue(app, 2, to="bounce@example.org")
        await ended(app, good + bad)
    await page.goto("/")
    for kind, ids in ((JobState.SUCCEEDED, good), (JobState.DEAD, bad)):
        bar = page.get_by_test_id("chart-throughput").get_by_test_id(f"bar-{kind}").last
        await expect(bar).to_have_attribute("href", re.compile("ended_since="))
        await bar.locator("rect").click()
        await page.wait_for_url(re.compile(r"/jobs\?"))
        since, until_ = (parse_qs(urlsplit(page.url).query)[name][0] for name in ("ended_since", "ended_until"))
        jobs = [await app.jobs.show(id) for id in ids]
        counted = {job.id for job in jobs if job.finished_at and since <= job.finished_at.isoformat() < until_}
        keys = page.get_by_test_id("jobs").locator("tr[data-key]")
        shown = await keys.evaluate_all("rows => rows.map((row) => row.dataset.key)")
        assert counted and (set(shown), len(shown)) == (counted, len(counted))
        await page.go_back()


@on_engine("valkey")
async def test_the_story_of_a_job_that_failed_twice_and_then_succeeded(page: Page, app: Drumbeat) -> None:
    [id] = await enqueue(app, 1, "sync_stock", to="Graz")
    await page.goto(f"/jobs/{id}")
    await mark(page)
    await expect(page.get_by_test_id("runs")).to_have_text("")
    async with working(app):
        await expect(page.locator("h1").get_by_test_id("state")).to_have_text("succeeded")
    path = page.get_by_test_id("path").locator("li")
    steps = [re.compile(text) for text in ("Enqueued", "Run 1 failed, will retry", "Run 2 failed, will", "Run 3 succ")]
    await expect(path).to_have_text(steps)
    await expect(page.get_by_test_id("runs").locator("details")).to_have_count(3)
    for number in (1, 2):
        run = page.get_by_test_id(f"run-{number}")
        await run.locator("summary").click()
        await expect(run.get_by_test_id("traceback")).to_contain_text(
            f"Unavailable: Graz answered 503, attempt {number}"
        )
    # Not rounded: it has not been through a number of this browser.
    await expect(page.get_by_test_id("result")).to_have_text("9007199254740993")
    assert await is_same(page)


@on_engine("sqlite")
async def test_replay_cancel_and_discard_work_while_everything_moves(page: Page, app: Drumbeat) -> None:
    [replayed, discarded] = await dead_letters(app, 2)
    [cancelled] = await enqueue(app, 1)

    await page.goto(f"/jobs/{replayed}")
    await mark(page)
    head = page.locator("h1").get_by_test_id("state")
    await confirm(page, page.get_by_test_id("act-replay"))
    await expect(page.get_by_test_id("toast")).to_have_text("It is ready again")
    await expect(head).to_have_text("ready")
    assert await is_same(page) and await state(app, replayed) is JobState.PENDING

    await page.goto(f"/jobs/{discarded}")
    await page.get_by_test_id("act-discard").click()
    await page.get_by_test_id("reason").fill("nobody lives there")
    # What comes meanwhile moves the figures, not the dialog.
    nav = page.get_by_test_id("counter-dead-nav")
    await expect(nav).to_have_text("1")
    await dead_letters(app, 3, queue="default")
    await expect(nav).to_have_text("4")
    await expect(page.get_by_test_id("reason")).to_have_value("nobody lives there")
    await page.get_by_test_id("confirm").click()
    await expect(page.get_by_test_id("toast")).to_have_text("It is discarded")
    await expect(nav).to_have_text("3")
    await expect(page.get_by_test_id("act-replay")).to_have_count(0)
    await expect(page.get_by_test_id("path")).to_contain_text("Discarded")

    await page.goto(f"/jobs/{cancelled}")
    await page.get_by_test_id("act-cancel").click()
    await expect(page.get_by_test_id("dismiss")).to_have_text("Back")
    await page.get_by_test_id("dismiss").click()
    await confirm(page, page.get_by_test_id("act-cancel"), "not any more")
    await expect(head).to_have_text("cancelled")
    assert await state(app, cancelled) is JobState.CANCELLED

    await page.goto("/audit")
    for words in ("jobs.cancel", "not any more", "dead.discard", "nobody lives there", "dead.replay"):
        await expect(page.locator("main")).to_contain_text(words)


@on_engine("valkey")
async def test_a_thousand_dead_letters_are_replayed_at_once(page: Page, app: Drumbeat) -> None:
    await dead_letters(app, 1_000)
    await page.goto("/dead")
    await expect(page.get_by_test_id("group-count")).to_have_text("1,000")
    await page.get_by_test_id("group-send_mail").get_by_role("button", name="Replay").click()
    await expect(page.get_by_test_id("touches")).to_have_text("This touches 1,000 jobs.")
    await page.get_by_test_id("confirm").click()
    await expect(page.get_by_test_id("toast")).to_have_text("1,000 dead letters replayed")
    await expect(page.get_by_test_id("counter-dead-nav")).to_have_text("")
    await expect(page.get_by_test_id("empty").first).to_contain_text("No dead letters")
    [queue] = [each for each in await app.queues.list() if each.name == MAIL]
    assert queue.ready == 1_000


@on_engine("postgres")
async def test_a_queue_is_paused_with_who_and_why_and_resumed(page: Page, app: Drumbeat) -> None:
    await enqueue(app, 3)
    await page.goto("/queues")
    await mark(page)
    row = page.get_by_test_id(f"row-{MAIL}")
    await confirm(page, row.get_by_test_id("act-pause"), "their server is down")
    await expect(row).to_contain_text("paused")
    await expect(row).to_contain_text(re.compile(r"by local .*: their server is down"))
    async with working(app):
        # A worker is there, and takes none of them.
        await expect(page.get_by_test_id("health")).to_contain_text("1 instance")
        await expect(row.get_by_role("link", name="3", exact=True)).to_be_visible()
        await confirm(page, row.get_by_test_id("act-resume"))
        await expect(row.get_by_test_id("state")).to_have_text("active")
        await expect(row.get_by_role("link", name="3", exact=True)).to_have_count(0)
    assert await is_same(page)
