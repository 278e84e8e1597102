"""Everybody can use every page: with a screen reader, in the dark, on a phone, by keyboard alone, and without waiting."""

import re

import pytest_asyncio
from playwright.async_api import Page, expect

from drumbeat import Drumbeat
from tests.contract import making
from tests.web.browser.accessibility import violations
from tests.web.browser.page_opener import DESK, PHONE, OpenPage
from tests.web.browser.page_urls import furnish, places
from tests.web.browser.shop import dead_letters
from tests.web.live_server import serve_dashboard

IN_THE_DARK = ("/", "/jobs", "/dead", "/queues", "/tasks", "/schedules/new", "/timeline", "/locks/ledger", "/system")
"""Those that have every colour between them."""
LIMIT_MS = 1_000
TRIES = 4


@pytest_asyncio.fixture(loop_scope="session")
async def furnished(app: Drumbeat) -> list[str]:
    """The addresses of all pages; each has something to show."""
    await furnish(app)
    return await places(app)


async def test_nothing_serious_is_in_the_way_of_anybody_on_any_page(page: Page, furnished: list[str]) -> None:
    found = []
    for place in furnished:
        await page.goto(place)
        found += [f"{place}: {wrong}" for wrong in await violations(page)]
        if not place.endswith(IN_THE_DARK):
            continue
        await page.emulate_media(color_scheme="dark")
        found += [f"{place} in the dark: {wrong}" for wrong in await violations(page, runOnly=["color-contrast"])]
        await page.emulate_media(color_scheme="light")
    assert not found, "\n".join(found)


async def test_nothing_serious_is_in_the_way_in_dialogs_and_menus(
    open_page: OpenPage, address: str, app: Drumbeat
) -> None:
    page = await open_page(address, phone=True)
    await dead_letters(app, 1)
    await page.goto("/dead")
    await page.get_by_role("button", name="Menu").tap()
    assert await violations(page) == []
    await page.get_by_test_id("group-send_mail").get_by_role("button", name="Discard").click()
    await expect(page.get_by_test_id("touches")).to_have_text("This touches 1 job.")
    assert await violations(page) == []


async def test_every_page_is_painted_within_a_second_fits_a_phone_and_is_small(
    page_as_delivered: Page, furnished: list[str]
) -> None:
    page = page_as_delivered
    painted, wide, scripts = {}, {}, {}  # type: ignore[var-annotated]
    for place in furnished:
        await page.set_viewport_size(DESK)
        taken: list[float] = []
        # A machine may be busy with something else once, not each time.
        while len(taken) < TRIES and (not taken or min(taken) > LIMIT_MS):
            await page.goto(place)
            taken.append(await page.evaluate(PAINTED))
        painted[place] = min(taken)
        scripts |= dict(await page.evaluate(SCRIPTS))
        await page.set_viewport_size(PHONE)
        wide[place] = await page.evaluate("() => document.documentElement.scrollWidth")
    assert {place: ms for place, ms in painted.items() if ms > LIMIT_MS} == {}
    assert {place: width for place, width in wide.items() if width > PHONE["width"]} == {}
    assert 0 < sum(scripts.values()) < 150_000


PAINTED = """() => new Promise((told) => {
  const look = () => {
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    paint ? told(paint.startTime) : requestAnimationFrame(look);
  };
  look();
})"""
SCRIPTS = """() => performance.getEntriesByType("resource")
  .filter((each) => each.name.includes(".js")).map((each) => [each.name, each.decodedBodySize])"""


async def test_what_can_be_done_to_a_row_is_in_sight_however_narrow_the_screen(
    page: Page, furnished: list[str], app: Drumbeat
) -> None:
    # Long names make wide tables.
    store = await app._internals.store()
    await making.add(store, making.new_job(queue="a_queue_with_quite_a_long_name_for_reports"))
    hidden, silent = [], []
    for place in ("/queues", "/dead", "/schedules", "/locks", "/limits", "/jobs", "/instances", "/tasks"):
        for width in (PHONE["width"], 768, 1024):
            await page.set_viewport_size({"width": width, "height": 800})
            await page.goto(place)
            await expect(page.locator(".table-box table").first).to_be_visible()
            for box in await page.locator("td.act-cell button").all():
                seen = await box.bounding_box()
                if seen is None or seen["x"] < 0 or seen["x"] + seen["width"] > width:
                    hidden.append((place, width, seen))
            silent += [(place, width, more) for more in await page.evaluate(CUT) if "right" not in more]
    assert (hidden, silent) == ([], [])


CUT = """() => [...document.querySelectorAll(".table-box")]
  .filter((box) => box.scrollWidth > box.clientWidth + 1)
  .map((box) => getComputedStyle(box, "::after").content.includes("more columns") ? box.dataset.more : "no sign")"""


async def test_a_table_that_goes_on_to_the_right_says_so_until_its_end(open_page: OpenPage, app: Drumbeat) -> None:
    store = await app._internals.store()
    await making.add(store, making.new_job(queue="a_queue_with_quite_a_long_name_for_reports"))
    async with serve_dashboard(app.dashboard(access="open")) as (address, _):
        page = await open_page(address, phone=True)
        await page.goto("/queues")
        box = page.locator(".table-box")
        await expect(box).to_have_attribute("data-more", "right")
        await box.evaluate("(box) => box.scrollTo(box.scrollWidth, 0)")
        await expect(box).to_have_attribute("data-more", "left")
        # A live update knows nothing of it, and does not take it away.
        await app._internals.registry["send_mail"].enqueue("bob")
        await expect(page.get_by_test_id("row-mail").get_by_role("link", name="1", exact=True)).to_be_visible()
        await expect(box).to_have_attribute("data-more", "left")


COVERED = """() => [...document.querySelectorAll("tr:has(> .act-cell)")].flatMap((row) => {
  const act = row.querySelector(".act-cell"), edge = act.getBoundingClientRect().left;
  const name = row.querySelector("th .name");
  const fades = getComputedStyle(act, "::before").backgroundImage.includes("gradient");
  return [...(name && name.getBoundingClientRect().right > edge ? [name.textContent] : []), ...(fades ? [] : ["no fade"])];
})"""


async def test_buttons_that_stay_in_sight_on_a_phone_hide_no_name_and_cut_no_number(
    open_page: OpenPage, app: Drumbeat
) -> None:
    """A 19 of which only the 1 is seen is a wrong number: what lies under the edge of the buttons fades."""
    await app.schedules.create("send_mail", name="nightly_report_of_all_customers", every="1h", args={"to": "ada"})
    await dead_letters(app, 1)
    async with serve_dashboard(app.dashboard(access="open")) as (address, _):
        page = await open_page(address, dark=True, phone=True)
        for place in ("/schedules", "/dead"):
            await page.goto(place)
            await expect(page.locator(".table-box[data-more~=right]").first).to_be_visible()
            assert await page.evaluate(COVERED) == []


async def test_a_phone_has_a_menu_that_leads_to_every_page(open_page: OpenPage, address: str) -> None:
    page = await open_page(address, phone=True)
    await page.goto("/")
    link = page.get_by_test_id("nav-instances")
    await expect(link).to_be_hidden()
    await page.get_by_role("button", name="Menu").tap()
    await link.tap()
    await expect(page.locator("h1")).to_have_text("Instances")


async def test_the_dark_is_the_systems_choice_until_somebody_makes_another(open_page: OpenPage, address: str) -> None:
    page = await open_page(address, dark=True)
    ground = "() => getComputedStyle(document.body).backgroundColor"
    await page.goto("/")
    dark = await page.evaluate(ground)
    await page.keyboard.press("t")
    light = await page.evaluate(ground)
    assert sum(map(int, re.findall(r"\d+", dark))) < 150 < 600 < sum(map(int, re.findall(r"\d+", light)))
    await page.goto("/queues")
    assert await page.evaluate(ground) == light


async def test_a_job_is_found_opened_and_replayed_by_keyboard_alone(page: Page, app: Drumbeat) -> None:
    ids = await dead_letters(app, 3)
    press = page.keyboard.press
    await page.goto("/")
    await press("?")
    await expect(page.get_by_test_id("help")).to_be_visible()
    await press("Escape")
    await expect(page.get_by_test_id("help")).to_be_hidden()
    await press("g")
    await press("j")
    await page.wait_for_url("**/jobs")
    await press("/")
    await expect(page.get_by_test_id("find")).to_be_focused()
    await page.keyboard.type("state:dead task:send_mail")
    await press("Enter")
    await page.wait_for_url(re.compile("state=dead"))
    for _ in range(2):
        await press("j")
    await press("Enter")
    # The second from the newest.
    await page.wait_for_url(f"**/jobs/{ids[1]}")
    replay = page.get_by_test_id("act-replay")
    for _ in range(60):
        await press("Tab")
        if await replay.evaluate("(button) => document.activeElement === button"):
            break
    await press("Enter")
    await expect(page.get_by_test_id("reason")).to_be_focused()
    await page.keyboard.type("the box is empty again")
    await press("Tab")
    await press("Tab")
    await expect(page.get_by_test_id("confirm")).to_be_focused()
    await press("Enter")
    await expect(page.locator("h1").get_by_test_id("state")).to_have_text("ready")
