"""Limits: what runs and waits is seen live, and what a person sets in a dialog holds."""

from playwright.async_api import Page, expect

from drumbeat import Drumbeat
from drumbeat.core.limits import Bounds
from tests.contract.lanes import add_jobs, declare, take
from tests.contract.making import worker
from tests.web.browser.dialog import confirm, is_same, mark


async def test_limits_are_changed_in_a_dialog_and_reset(page: Page, app: Drumbeat) -> None:
    store = await app._internals.store()
    instance = await worker(store)
    await declare(store, whole=Bounds(20), each=Bounds(1))
    await add_jobs(store, "tenant:7", 5)
    await take(store, instance)
    await page.goto("/limits")
    await mark(page)
    group = page.get_by_test_id("group-tenant:7")
    await expect(group).to_contain_text("full, 1 of 1")
    await page.get_by_test_id("line-default-greet").get_by_test_id("act-set").click()
    await expect(page.get_by_label("At once, all together")).to_have_value("20")
    await page.get_by_label("At once, all together").fill("")
    await page.get_by_label("At once, each group").fill("0")
    await page.get_by_test_id("confirm").click()
    await expect(page.get_by_test_id("dialog-error")).to_contain_text("must be at least 1, not 0")
    await page.get_by_label("At once, each group").fill("3")
    await page.get_by_label("Starts, each group").fill("100")
    await page.get_by_label("in any (seconds)").last.fill("60")
    await page.get_by_label("Groups take turns").check()
    await page.get_by_test_id("reason").fill("a calm day")
    await page.get_by_test_id("confirm").click()
    await expect(page.get_by_test_id("dialog")).to_be_hidden()
    line = page.get_by_test_id("line-default-greet")
    await expect(line).to_contain_text("3 at once per group, 100 per 1m per group")
    await expect(line).to_contain_text("groups take turns")
    await expect(line).to_contain_text("a calm day")
    # Live: what is claimed meanwhile.
    await take(store, instance)
    await expect(group).to_contain_text("full, 3 of 3")
    await confirm(page, line.get_by_test_id("act-reset"), "over")
    await expect(line).to_contain_text("20 at once, 1 at once per group")
    assert await is_same(page)


async def test_a_group_gets_a_limit_and_a_weight_and_loses_them(page: Page, app: Drumbeat) -> None:
    store = await app._internals.store()
    await declare(store, each=Bounds(1), fair=True)
    await add_jobs(store, "tenant:7", 1)
    await page.goto("/limits/default?task=greet")
    group = page.get_by_test_id("group-tenant:7")
    await group.get_by_test_id("act-set-group").click()
    await page.get_by_label("Jobs in each turn").fill("7")
    await page.get_by_test_id("confirm").click()
    await expect(group).to_contain_text("own limits")
    [found] = await app.limits.groups("default", "greet")
    assert (found.own_weight, found.own_limits) == (7, None)
    await confirm(page, group.get_by_test_id("act-reset-group"))
    await expect(group).not_to_contain_text("own limits")
