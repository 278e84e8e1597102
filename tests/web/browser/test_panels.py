"""Buttons of a program's own panel, in a real browser: pressed at once, or asked first; what they say is text."""

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Page, expect

from drumbeat import Drumbeat
from drumbeat.web import dashboard
from drumbeat.web.panels import Button, ButtonResult, Panel
from drumbeat.web.problem import Problem
from tests.web.browser.page_opener import OpenPage
from tests.web.live_server import serve_dashboard


class Bell:
    def __init__(self, app: Drumbeat) -> None:
        self._app = app
        self.pressed: list[str] = []

    async def ring(self) -> ButtonResult:
        self.pressed.append("ring")
        await self._app._internals.registry["send_mail"].using(delay=3600).enqueue("bell@example.org")
        return ButtonResult(message="<b>Ding</b>")

    async def refuse(self) -> ButtonResult:
        raise Problem(409, "the bell is gone")

    async def wipe(self) -> ButtonResult:
        self.pressed.append("wipe")
        return ButtonResult(message="Wiped", touched=2)

    def panel(self) -> Panel:
        return Panel(
            name="bell",
            title="The bell",
            text="Of this program only.",
            buttons=(
                Button(name="ring", label="Ring", text="rings", action=self.ring),
                Button(name="refuse", label="Refuse", text="never works", action=self.refuse),
                Button(name="wipe", label="Wipe", text="wipes it all", action=self.wipe, danger=True),
            ),
        )


@pytest_asyncio.fixture(loop_scope="session")
async def bell(app: Drumbeat) -> Bell:
    return Bell(app)


@pytest_asyncio.fixture(loop_scope="session")
async def address(app: Drumbeat, bell: Bell) -> AsyncIterator[str]:
    async with serve_dashboard(dashboard(app._internals, "open", panels=[bell.panel()])) as (address, _):
        yield address


async def test_a_button_is_pressed_at_once_and_the_page_shows_what_came_of_it(page: Page, bell: Bell) -> None:
    await page.goto("/")
    await page.get_by_test_id("press-ring").click()
    await expect(page.get_by_test_id("toast")).to_have_text("<b>Ding</b>")
    await expect(page.get_by_test_id("counter-scheduled")).to_have_text("1")
    assert bell.pressed == ["ring"]


async def test_what_was_refused_is_told(page: Page) -> None:
    await page.goto("/")
    await page.get_by_test_id("press-refuse").click()
    await expect(page.get_by_test_id("toast")).to_have_text("the bell is gone")


async def test_a_dangerous_one_asks_first(page: Page, bell: Bell) -> None:
    await page.goto("/")
    await page.get_by_test_id("act-wipe").click()
    await page.get_by_test_id("dismiss").click()
    assert bell.pressed == []
    await page.get_by_test_id("act-wipe").click()
    await page.get_by_test_id("confirm").click()
    await expect(page.get_by_test_id("toast")).to_be_visible()
    assert bell.pressed == ["wipe"]


async def test_a_dashboard_without_a_panel_loads_no_script_for_it(app: Drumbeat, open_page: OpenPage) -> None:
    async with serve_dashboard(app.dashboard(access="open")) as (address, _):
        page = await open_page(address)
        await page.goto("/")
        assert await page.locator("script[src*=panels]").count() == 0
