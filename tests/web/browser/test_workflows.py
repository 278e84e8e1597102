"""The graph of a workflow in a real browser: it lives, leads to its jobs, fits a phone, and asks before it acts."""

from playwright.async_api import Page, expect

from drumbeat import Drumbeat
from drumbeat.core.dependencies import NewEdge
from drumbeat.core.job import OutcomeKind
from tests.contract import making
from tests.contract.flows import DIAMOND, add_flow, end_job
from tests.contract.graphs import add_graph
from tests.web.browser.accessibility import violations
from tests.web.browser.dialog import confirm, is_same, mark
from tests.web.browser.page_opener import PHONE, OpenPage, on_engine

EVIL = "<img src=x onerror=alert(1)>\u202e"
IS_APART = """(boxes) => {
  const places = boxes.map((box) => box.querySelector("svg").getBoundingClientRect());
  const meets = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  return places.every((one, n) => one.width > 0 && places.slice(n + 1).every((other) => !meets(one, other)));
}"""


@on_engine("sqlite")
async def test_a_graph_lives_and_its_acts_ask_first(page: Page, app: Drumbeat) -> None:
    store = await app._internals.store()
    hand = await making.worker(store)
    id, jobs = await add_flow(store, DIAMOND, f"invoice {EVIL}", labels={EVIL: EVIL})
    await page.goto("/workflows")
    await page.get_by_role("link", name=f"invoice {EVIL}").click()
    boxes = {word: page.get_by_test_id(f"box-{job}") for word, job in jobs.items()}
    await expect(boxes["first"]).to_contain_text("ready")
    await expect(boxes["last"]).to_contain_text("waiting")
    assert await page.locator("[data-key].box").evaluate_all(IS_APART)
    await mark(page)

    await end_job(store, hand, jobs["first"])
    await expect(boxes["first"]).to_contain_text("succeeded")
    await expect(boxes["left"]).to_contain_text("ready")
    await end_job(store, hand, jobs["left"], OutcomeKind.DEAD)
    await expect(boxes["left"]).to_contain_text("dead")
    await expect(boxes["last"]).to_contain_text("cancelled")
    assert await is_same(page)

    await page.get_by_test_id("act-replay").click()
    await expect(page.get_by_test_id("touches")).to_have_text("This touches 1 job.")
    await page.get_by_test_id("confirm").click()
    await expect(boxes["left"]).to_contain_text("ready")
    await expect(boxes["last"]).to_contain_text("waiting")

    # By keyboard: to the box of a job, and to its page.
    await boxes["left"].focus()
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/jobs/{jobs['left']}")
    await page.get_by_test_id(f"child-{jobs['last']}").get_by_role("link").last.click()
    await expect(page.get_by_test_id("reason-parents")).to_contain_text("It waits for 2 of its parents")
    await page.go_back()
    await page.go_back()

    await confirm(page, page.get_by_test_id("act-cancel"), "it is wrong")
    await expect(page.get_by_test_id("cancelled-at")).to_be_visible()
    await expect(boxes["right"]).to_contain_text("cancelled")
    await expect(page.get_by_test_id("act-cancel")).to_have_count(0)

    assert not await app.jobs.list(workflow=id, state="pending")
    [act, _] = await app.audit.list(target=id)
    assert (act.verb, act.touched, act.reason) == ("workflows.cancel", 3, "it is wrong")


async def test_two_hundred_jobs_are_readable_on_a_phone_in_the_dark(
    app: Drumbeat, open_page: OpenPage, address: str
) -> None:
    store = await app._internals.store()
    middle = {f"n{number}": ("first",) for number in range(198)}
    id, jobs = await add_flow(store, {"first": (), **middle, "last": tuple(middle)})
    page = await open_page(address, dark=True, phone=True)
    await page.goto(f"/workflows/{id}")
    all_boxes = page.locator("a.box")
    await expect(all_boxes).to_have_count(200)
    assert await all_boxes.evaluate_all(IS_APART)
    assert await page.evaluate("() => document.documentElement.scrollWidth") == PHONE["width"]
    # The box of the graph begins with its first job in sight, and scrolls to any other.
    await expect(page.get_by_test_id(f"box-{jobs['first']}")).to_be_in_viewport(ratio=0.9)
    last = page.get_by_test_id(f"box-{jobs['last']}")
    await last.scroll_into_view_if_needed()
    await expect(last).to_be_in_viewport(ratio=0.9)
    assert await violations(page) == []
    await page.get_by_test_id("by-task").click()
    await expect(page.get_by_test_id("box-n7")).to_contain_text("1 waiting")


async def test_boxes_do_not_move_under_the_pointer_when_a_graph_grows(page: Page, app: Drumbeat) -> None:
    store = await app._internals.store()
    id, jobs = await add_flow(store, DIAMOND)
    await page.goto(f"/workflows/{id}")
    await page.get_by_test_id(f"box-{jobs['left']}").hover()
    more = making.new_job(workflow=id)
    await add_graph(store, [more], [NewEdge(jobs["first"], more.id)])
    await expect(page.get_by_test_id("count-waiting")).to_have_text("4 waiting")
    await expect(page.locator("a.box")).to_have_count(4)
    await page.mouse.move(640, 20)
    await expect(page.locator("a.box")).to_have_count(5)
