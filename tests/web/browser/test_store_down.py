"""A store that goes away under an open page, and comes back: nothing green is left, and nobody has to reload."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from drumbeat import Drumbeat
from tests.servers.redis import RedisServer
from tests.web.browser.page_opener import DESK, Haste
from tests.web.browser.shop import declare, working
from tests.web.live_server import serve_dashboard


@pytest_asyncio.fixture(loop_scope="session")
async def lonely(browser: Browser) -> AsyncIterator[Page]:
    """A page that may see errors: those of a store that is away are what it is about."""
    context = await browser.new_context(viewport=DESK, reduced_motion="reduce")
    yield await context.new_page()
    await context.close()


async def test_nothing_is_healthy_while_the_store_is_away_and_all_is_well_when_it_is_back(
    lonely: Page, haste: Haste
) -> None:
    with RedisServer("valkey") as server:
        app = Drumbeat(server.url, name="shop", heartbeat=0.2, dead_after=5, poll=0.2)
        declare(app)
        async with app, serve_dashboard(haste(app.dashboard(access="open"))) as (address, _):
            async with working(app):
                await lonely.goto(address)
                verdict = lonely.get_by_test_id("verdict")
                await expect(verdict).to_have_text("Healthy")
                await asyncio.to_thread(server.stop)
                await expect(lonely.get_by_test_id("away")).to_contain_text("Store unavailable.")
                await expect(verdict).to_have_text("Store unavailable")
                await expect(verdict).to_have_class("verdict bad")
                # Somebody who opens a page now is told so, and sees it as soon as there is something to see.
                other = await lonely.context.new_page()
                await other.goto(f"{address}/queues")
                await expect(other.get_by_test_id("problem")).to_contain_text("Service Unavailable")
                await expect(other.get_by_test_id("again")).to_contain_text("Last attempt at")
                await asyncio.to_thread(server.start)
                await expect(other.get_by_role("heading", level=1)).to_have_text("Queues")
                await expect(lonely.get_by_test_id("away")).to_be_hidden()
                await expect(verdict).not_to_have_text("Store unavailable")
                await expect(verdict).to_have_text("Healthy")
