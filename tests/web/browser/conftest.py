"""Debian's chromium, one for the whole run, and a fresh profile for each test that tells of everything it should not see.

All of it lives on one event loop, the session's: the browser, the dashboard on its socket, and the tests. Most tests are on
SQLite; those of the main path name another by `@on_engine`.
"""

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

from drumbeat import Drumbeat
from drumbeat.web import Dashboard, static_files, ticker
from tests.web.browser.page_opener import FLAGS, Haste, Opener, OpenPage
from tests.web.browser.shop import declare
from tests.web.live_server import serve_dashboard

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where no chromium can be had these tests alone are left out, with one line: here, or of tools/browser.sh."""
    mine = [item for item in items if HERE in item.path.parents]
    for item in mine:
        item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
    if not Path(CHROMIUM).exists():
        config.hook.pytest_deselected(items=mine)
        items[:] = [item for item in items if item not in mine]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not Path(CHROMIUM).exists():
        terminalreporter.write_line("no chromium: the tests of the dashboard in a browser were left out")


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "sqlite"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        playwright.selectors.set_test_id_attribute("data-test")
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def app(store_url: str) -> AsyncIterator[Drumbeat]:
    """A shop; nothing runs until a test starts a worker."""
    async with Drumbeat(store_url, name="shop", heartbeat=0.2, dead_after=2, poll=0.2) as app:
        declare(app)
        yield app


USUAL = {"const BATCH = 1000;": "const BATCH = 200;", "passed >= Number(word) * 1000": "passed >= Number(word) * 200"}
USUAL |= {"passed >= Number(seconds || 2) * 1000": "passed >= Number(seconds || 2) * 200"}


@pytest.fixture(scope="session")
def hasty_static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static") / "static"
    shutil.copytree(static_files.FOLDER, folder)
    script = (folder / "live.js").read_text(encoding="utf-8")
    for usual, quick in USUAL.items():
        assert script.count(usual) == 1, usual
        script = script.replace(usual, quick)
    (folder / "live.js").write_text(script, encoding="utf-8")
    return folder


@pytest.fixture
def haste(hasty_static: Path, monkeypatch: pytest.MonkeyPatch) -> Haste:
    """Has a dashboard and its pages look for changes five times as often: what they do then is the same, and nobody waits."""
    monkeypatch.setattr(ticker, "SLOW_INTERVAL", 0.5)
    monkeypatch.setattr(ticker, "IDLE_DELAY", 0.2)

    def haste(board: Dashboard) -> Dashboard:
        board.state.static_files = static_files.StaticFileCache(hasty_static)
        return board

    return haste


@pytest_asyncio.fixture(loop_scope="session")
async def address(app: Drumbeat, haste: Haste) -> AsyncIterator[str]:
    """Where the dashboard of the app is served, in haste."""
    async with serve_dashboard(haste(app.dashboard(access="open"))) as (address, _):
        yield address


@pytest_asyncio.fixture(loop_scope="session")
async def address_as_delivered(app: Drumbeat) -> AsyncIterator[str]:
    """The same, for what is promised in seconds."""
    async with serve_dashboard(app.dashboard(access="open")) as (address, _):
        yield address


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(browser: Browser) -> AsyncIterator[OpenPage]:
    """Another person's browser: `page = await open_page(address, dark=True)`. At the end, none has seen anything wrong."""
    async with AsyncExitStack() as stack:
        opener = Opener(browser, stack)
        yield opener.open
        opener.check()


@pytest_asyncio.fixture(loop_scope="session")
async def page(open_page: OpenPage, address: str) -> Page:
    """A browser at a desk; `await page.goto("/jobs")`."""
    return await open_page(address)


@pytest_asyncio.fixture(loop_scope="session")
async def page_as_delivered(open_page: OpenPage, address_as_delivered: str) -> Page:
    return await open_page(address_as_delivered)
