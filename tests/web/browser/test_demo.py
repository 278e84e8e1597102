"""`drumbeat demo` in a real browser: its buttons are pressed, each fate is watched, and the pictures of the README are taken.

    DRUMBEAT_PICTURES=900 .venv/bin/python -m pytest tests/web/browser/test_demo.py

presses for a quarter of an hour, until the charts have something to show, and writes docs/images; otherwise the pictures go to
a temporary folder.
"""

import asyncio
import os
import random
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.cli.terminal import terminal
from tests.web.browser.dialog import confirm
from tests.web.browser.page_opener import OpenPage

IMAGES = Path(__file__).parents[3] / "docs" / "images"
PICTURES = "DRUMBEAT_PICTURES"
MOST_BYTES = 300_000
WATCHED = 10_000 if os.environ.get("DRUMBEAT_FULL") else 2_000
"""Of the ten thousand: they take a quarter of a minute at best, because each sleeps a little."""
OFTEN = ("success", "success", "success", "delayed", "transient", "long")
"""What somebody who plays with it presses."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a demo after its play."""
    folder = tmp_path_factory.mktemp("demo")
    with terminal("demo", folder=folder, env={"TMPDIR": str(folder)}) as screen:
        shown = await asyncio.to_thread(screen.wait_for, "Ctrl-C ends it")
        yield re.findall(r"http://127\.0\.0\.1:\d+", shown)[0]
        screen.press("\x03")
        assert await asyncio.to_thread(screen.wait_exit_code) == 0


async def number(page: Page, word: str) -> int:
    text = await page.get_by_test_id(f"counter-{word}").inner_text()
    return int(text.replace(",", ""))


async def test_what_is_pressed_is_seen_in_the_counters(demo: str, open_page: OpenPage) -> None:
    page = await open_page(demo)
    await page.goto("/")
    dead, succeeded = await number(page, "dead"), await number(page, "succeeded")
    await page.get_by_test_id("press-permanent").click()
    await expect(page.get_by_test_id("toast").last).to_contain_text("Enqueued")
    await expect(page.get_by_test_id("counter-dead")).to_have_text(str(dead + 1))
    await page.get_by_test_id("press-success").click()
    await page.wait_for_function(
        "(least) => Number(document.querySelector('[data-test=counter-succeeded]').textContent.replaceAll(',', '')) > least",
        arg=succeeded,
    )


async def test_a_worker_is_killed_and_another_takes_its_place(demo: str, open_page: OpenPage) -> None:
    page = await open_page(demo)
    await page.goto("/")
    await page.get_by_test_id("press-long").click()
    await expect(page.get_by_test_id("counter-running")).not_to_have_text("0")
    await page.get_by_test_id("press-kill").click()
    await expect(page.get_by_test_id("toast").last).to_contain_text("kill -9")
    await page.goto("/instances")
    await expect(page.get_by_test_id("instances").locator("tbody tr")).to_have_count(2)


async def test_the_pictures_of_the_readme(demo: str, open_page: OpenPage, tmp_path: Path) -> None:
    """Of the overview, light and dark, as somebody sees it who has played for a while."""
    folder = IMAGES if PICTURES in os.environ else tmp_path
    page = await open_page(demo)
    await page.goto("/")
    await play(page, float(os.environ.get(PICTURES, "0")))
    for name, dark in (("dashboard.png", False), ("dashboard-dark.png", True)):
        shown = await open_page(demo, dark=dark)
        await shown.goto("/")
        # Rates are those of the last seconds that somebody looked.
        await shown.wait_for_function(
            "() => /\\d/.test(document.querySelector('[data-test=rate-started]').textContent)"
        )
        await expect(shown.get_by_test_id("panel-demo")).to_be_visible()
        await shown.screenshot(path=folder / name)
        assert 20_000 < (folder / name).stat().st_size < MOST_BYTES


async def play(page: Page, seconds: float) -> None:
    chance, end = random.Random(1), time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(chance.randrange(1, 6)):
            await page.get_by_test_id(f"press-{chance.choice(OFTEN)}").click()
        if chance.random() < 0.06:
            await page.get_by_test_id("press-permanent").click()
        if chance.random() < 0.02:
            await page.get_by_test_id("press-burst").click()
        await page.wait_for_timeout(chance.uniform(300, 2_500))
        await page.mouse.move(640, 20)


async def test_ten_thousand_are_worked_off_before_the_eyes(demo: str, open_page: OpenPage) -> None:
    page = await open_page(demo)
    await page.goto("/")
    before = await number(page, "succeeded")
    await page.get_by_test_id("press-burst").click()
    await expect(page.get_by_test_id("toast").last).to_contain_text("10,000")
    await page.wait_for_function(
        "(least) => Number(document.querySelector('[data-test=counter-succeeded]').textContent.replaceAll(',', '')) >= least",
        arg=before + WATCHED,
        timeout=60_000,
    )


async def test_clear_asks_first_and_leaves_nothing(demo: str, open_page: OpenPage) -> None:
    page = await open_page(demo)
    await page.goto("/")
    # Thousands are in line, since the test before.
    await confirm(page, page.get_by_test_id("act-clear"))
    await expect(page.get_by_test_id("counter-dead")).to_have_text("0", timeout=30_000)
