"""Make the README's pictures of the dashboard:  python -m tools.screenshot [SECONDS]

Starts tests/apps/showcase.py (a bookshop that works, with a little of everything) on a fresh SQLite file, lets it run until its
charts have something to show, and takes docs/images/dashboard.png and dashboard-dark.png with Debian's chromium.
"""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.async_api import Browser, ViewportSize, async_playwright

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
SIZE = ViewportSize(width=1280, height=800)
MOST_BYTES = 300_000
FULL_CHART = 940.0
"""Seconds: after a quarter of an hour the charts are full, and the rush of the beginning has left them."""
CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


@contextmanager
def showcase() -> Iterator[str]:
    """The address of a bookshop's dashboard; its worker runs."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="drumbeat-picture-") as folder:
        url = f"sqlite:///{folder}/shop.db"
        command = [sys.executable, "-m", "tests.apps.showcase", url, str(port)]
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"DRUMBEAT_LOG_LEVEL": "error"})
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


async def take(browser: Browser, address: str, name: str, *, dark: bool) -> None:
    """A picture of the overview, as somebody sees it who has looked for some seconds."""
    context = await browser.new_context(
        viewport=SIZE, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    page = await context.new_page()
    await page.goto(address)
    # Rates are those of the last five seconds that somebody looked.
    await page.wait_for_function("() => /\\d/.test(document.querySelector('[data-test=rate-started]').textContent)")
    await page.wait_for_timeout(6_500)
    path = IMAGES / name
    await page.screenshot(path=path)
    await context.close()
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {size:,} bytes")
    if size > MOST_BYTES:
        raise SystemExit(f"{name} has more than {MOST_BYTES:,} bytes")


async def main(seconds: float) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with showcase() as address:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            waiting = await browser.new_page()
            await waiting.wait_for_timeout(seconds * 1_000)
            for name, dark in (("dashboard.png", False), ("dashboard-dark.png", True)):
                await take(browser, address, name, dark=dark)
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else FULL_CHART))
