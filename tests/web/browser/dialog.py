"""What a person does with the mouse again and again."""

from playwright.async_api import Locator, Page, expect


async def confirm(page: Page, act: Locator, reason: str = "") -> None:
    """Press the button of an act, say why, and decide."""
    await act.click()
    await expect(page.get_by_test_id("dialog")).to_be_visible()
    if reason:
        await page.get_by_test_id("reason").fill(reason)
    await page.get_by_test_id("confirm").click()
    await expect(page.get_by_test_id("dialog")).to_be_hidden()


async def mark(page: Page) -> None:
    """From now on a reload would be seen."""
    await page.evaluate("() => { window.isSame = true }")


async def is_same(page: Page) -> bool:
    return bool(await page.evaluate("() => window.isSame === true"))
