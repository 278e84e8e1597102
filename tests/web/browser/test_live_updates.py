"""A page that lives lets people work: nothing moves under the pointer, nothing chosen is lost, and it can be held still."""

from typing import Any

from playwright.async_api import Locator, Page, expect
from starlette.applications import Starlette
from starlette.routing import Mount

from drumbeat import Drumbeat
from drumbeat.core.job import JobState
from drumbeat.web import Dashboard
from tests.waiting import within
from tests.web.browser.dialog import confirm, is_same, mark
from tests.web.browser.page_opener import Haste, OpenPage
from tests.web.browser.shop import dead_letters, enqueue
from tests.web.live_server import serve_dashboard


class Program(Starlette):
    """Somebody's own, with our dashboard under a path of it."""

    def __init__(self, board: Dashboard) -> None:
        super().__init__(routes=[Mount("/admin/jobs", board)])
        self.state = board.state  # type: ignore[assignment]


async def keys(rows: Locator) -> list[str]:
    found: list[str] = await rows.evaluate_all("(rows) => rows.map((row) => row.dataset.key)")
    return found


async def test_rows_stay_under_the_pointer_and_new_ones_come_when_it_leaves(page: Page, app: Drumbeat) -> None:
    old = await enqueue(app, 3)
    await page.goto("/jobs")
    rows = page.get_by_test_id("jobs").locator("tr")
    await rows.first.hover()
    new = await enqueue(app, 2)
    await expect(page.locator(".news.on")).to_have_text("2 new; shown when you leave the list")
    assert await keys(rows) == old[::-1]
    await page.mouse.move(640, 20)
    await expect(rows).to_have_count(5)
    assert await keys(rows) == new[::-1] + old[::-1]
    await expect(page.locator(".news.on")).to_have_count(0)


async def test_the_keyboard_cursor_stays_on_its_row_through_live_updates(page: Page, app: Drumbeat) -> None:
    first, second, _ = await enqueue(app, 3)
    await page.goto("/jobs")
    row = page.get_by_test_id(f"row-{second}")
    await expect(row).to_be_visible()
    await page.mouse.move(640, 20)
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await expect(row).to_have_class("at")
    # The row itself changes, and others come: both are merged into the page.
    await app.jobs.cancel(second)
    await enqueue(app, 2)
    await expect(row).to_contain_text("cancelled")
    await expect(page.locator(".news.on")).to_have_text("2 new; shown when you leave the list")
    await expect(row).to_have_class("at")
    await page.keyboard.press("j")
    await expect(page.get_by_test_id(f"row-{first}")).to_have_class("at")
    await page.keyboard.press("k")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/jobs/{second}")


async def test_what_is_selected_stays_selected_and_only_that_is_acted_on(page: Page, app: Drumbeat) -> None:
    first, second, third = await enqueue(app, 3)
    await page.goto("/jobs")
    for id in (first, third):
        await page.get_by_test_id(f"pick-{id}").check()
    await page.mouse.move(640, 20)
    await enqueue(app, 2)
    await expect(page.get_by_test_id("count-ready")).to_have_text("5")
    await expect(page.get_by_test_id("pick-bar")).to_contain_text("2 selected")
    await page.get_by_test_id("act-cancel").click()
    await expect(page.get_by_test_id("touches")).to_have_text("This touches 2 jobs.")
    await page.get_by_test_id("reason").fill("sent by hand")
    await page.get_by_test_id("confirm").click()
    await expect(page.get_by_test_id("count-cancelled")).to_have_text("2")
    states = [(await app.jobs.show(id)).state for id in (first, second, third)]
    assert states == [JobState.CANCELLED, JobState.PENDING, JobState.CANCELLED]


async def test_a_page_that_was_empty_fills_and_empties_again(page: Page, app: Drumbeat) -> None:
    await page.goto("/dead")
    await mark(page)
    await expect(page.get_by_test_id("empty")).to_contain_text("No dead letters")
    [first, second] = await dead_letters(app, 2)
    await expect(page.get_by_test_id(f"row-{first}")).to_be_visible()
    await page.get_by_test_id("pick-page").check()
    await expect(page.get_by_test_id("pick-bar")).to_contain_text("2 selected")
    await confirm(page, page.get_by_test_id("pick-bar").get_by_role("button", name="Discard"), "a test")
    await expect(page.get_by_test_id("empty")).to_contain_text("No dead letters")
    await expect(page.get_by_test_id(f"row-{second}")).to_have_count(0)
    assert await is_same(page)


async def test_a_paced_replay_is_watched_and_stopped_on_the_page_where_it_was_begun(page: Page, app: Drumbeat) -> None:
    await dead_letters(app, 60)
    await page.goto("/dead")
    await page.get_by_test_id("group-send_mail").get_by_role("button", name="Replay").click()
    await page.get_by_test_id("rate").fill("5")
    await page.get_by_test_id("confirm").click()
    await expect(page.get_by_test_id("toast")).to_contain_text("are processed in the background")
    going = page.get_by_test_id("background-act")
    await expect(going).to_contain_text("of 60 done")
    done = going.get_by_test_id("background-act-done")
    await expect(done).not_to_have_text("0")
    await going.get_by_test_id("act-stop").click()
    await expect(page.get_by_test_id("dismiss")).to_have_text("Keep running")
    await page.get_by_test_id("confirm").click()
    await expect(going).to_have_count(0)
    await page.goto("/audit")
    await expect(page.get_by_test_id("audit")).to_contain_text("stopped by local")
    assert 0 < len(await app.jobs.list(state="dead", limit=100)) < 60


async def test_a_traceback_is_copied_or_at_least_selected(page: Page, app: Drumbeat) -> None:
    [id] = await dead_letters(app, 1)
    await page.goto(f"/jobs/{id}")
    await page.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.copied = text } }")
    await page.get_by_test_id("copy-traceback").click()
    await expect(page.get_by_test_id("toast")).to_have_text("Copied")
    assert "Bounced: 550 mailbox full" in await page.evaluate("() => window.copied")
    # As on plain http beyond localhost.
    await page.evaluate("() => { navigator.clipboard.writeText = undefined }")
    await page.get_by_test_id("copy-traceback").click()
    await expect(page.get_by_test_id("toast").last).to_contain_text("press Ctrl-C")
    assert "Bounced: 550 mailbox full" in await page.evaluate("() => String(getSelection())")


async def test_a_page_that_is_held_stands_still_until_it_is_let_go(page_as_delivered: Page, app: Drumbeat) -> None:
    page = page_as_delivered
    await page.goto("/")
    ready = page.get_by_test_id("counter-ready")
    await expect(page.get_by_test_id("rate-started")).not_to_have_text("–")
    await page.keyboard.press("p")
    await expect(page.get_by_test_id("pause-live")).to_have_text("Paused")
    async with page.expect_event("console", predicate=lambda message: message.text == "two ticks"):
        await page.evaluate(TWO_TICKS)
        await enqueue(app, 4)
    await expect(ready).to_have_text("0")
    await page.keyboard.press("p")
    with within(2.0):
        await expect(ready).to_have_text("4")


# Another listener of the same stream says when the page has had its chance to move.
TWO_TICKS = """() => {
  let seen = 0;
  const stream = new EventSource("/api/v1/events");
  stream.addEventListener("tick", (event) => {
    if (JSON.parse(event.data).counts.ready === 4 && ++seen === 4) { stream.close(); console.log("two ticks"); }
  });
}"""


async def test_under_a_path_of_another_program_everything_works_too(
    open_page: OpenPage, app: Drumbeat, haste: Haste
) -> None:
    program: Any = Program(haste(app.dashboard(access="open")))
    async with serve_dashboard(program) as (address, _):
        page = await open_page(address)
        await page.goto("/admin/jobs/")
        await mark(page)
        await enqueue(app, 2)
        await expect(page.get_by_test_id("counter-ready")).to_have_text("2")
        assert await is_same(page)
        await page.get_by_test_id("nav-queues").click()
        row = page.get_by_test_id("row-mail")
        await confirm(page, row.get_by_test_id("act-pause"), "over lunch")
        await expect(row).to_contain_text("over lunch")
        await row.get_by_role("link", name="2", exact=True).first.click()
        await page.wait_for_url("**/admin/jobs/jobs?state=ready&queue=mail")


async def test_a_schedule_that_is_run_by_hand_shows_it_and_its_notice_leads_to_the_job(
    page: Page, app: Drumbeat
) -> None:
    await app.schedules.create(app._internals.registry["send_mail"], cron="0 9 * * 1-5", args=["all"], name="weekly")
    await page.goto("/schedules/weekly")
    await confirm(page, page.get_by_test_id("act-run-now"), "a test")
    [job] = await app.jobs.list(task="send_mail")
    runs = page.get_by_test_id("by-hand").locator("tbody tr")
    await expect(runs).to_have_count(1)
    await expect(runs).to_contain_text("a test")
    await expect(runs.get_by_role("link", name=job.id[-10:])).to_have_attribute("href", f"/jobs/{job.id}")
    await page.get_by_test_id("toast").click()
    await page.wait_for_url(f"**/jobs/{job.id}")
