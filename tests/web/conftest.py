"""An app on a fresh store of each engine, its dashboard, and browsers of several people, without a socket."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.web import Dashboard

BASE = "http://127.0.0.1:7777"
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}

OpenBrowser = Callable[..., httpx.AsyncClient]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """schemathesis names its tests after their operations, and pytest 9.2 leaves that name out of their identity: side by side,
    where a test is known by that alone, one of forty-four was run."""
    for item in items:
        label = getattr(item, "operation_label", None)
        if label is not None and item.name.endswith(f"[{label}]") and not item.nodeid.endswith(f"[{label}]"):
            item._id = item.id.with_params(label)


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[Drumbeat]:
    """On each engine; with a task for which jobs can be queued."""
    async with Drumbeat(store_url, name="shop") as app:

        @app.task(queue="mail", retries=2)
        async def send_mail(to: str, big: int = 0) -> str:
            return to

        yield app


@pytest.fixture
def board(app: Drumbeat) -> Dashboard:
    return app.dashboard(access="open")


@pytest.fixture
async def open_browser() -> AsyncIterator[OpenBrowser]:
    """Gives a client of a dashboard: by default somebody at this machine, whose browser says that the page is ours."""
    opened: list[httpx.AsyncClient] = []

    def open_browser(
        board: Dashboard,
        *,
        client: tuple[str, int] = ("127.0.0.1", 50_000),
        headers: dict[str, str] | None = None,
        base: str = BASE,
        root: str = "",
    ) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(board, client=client, root_path=root)
        browser = httpx.AsyncClient(
            transport=transport, base_url=base, headers=SAME_ORIGIN if headers is None else headers
        )
        opened.append(browser)
        return browser

    yield open_browser
    for browser in opened:
        await browser.aclose()


@pytest.fixture
def api(board: Dashboard, open_browser: OpenBrowser) -> httpx.AsyncClient:
    """Somebody at this machine, who may do everything: `await api.get("/api/v1/queues")`."""
    return open_browser(board)


TOKENS = {role: f"{role}-token-0123456789" for role in ("viewer", "operator", "admin")}


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Drumbeat]:
    """An app whose dashboard asks for tokens, one for each role. On a file: for what is decided before the store is asked."""
    tokens = [f"{role}-person:{role}:{token}" for role, token in TOKENS.items()]
    async with Drumbeat(f"sqlite:///{tmp_path}/guarded.db", dashboard_tokens=tokens) as app:
        yield app


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[Drumbeat]:
    """An app without tokens."""
    async with Drumbeat(f"sqlite:///{tmp_path}/plain.db", queues="mail") as app:
        yield app


@pytest.fixture
async def behind(tmp_path: Path) -> AsyncIterator[Drumbeat]:
    """An app behind a proxy at 10.1.2.3 that says who calls, and what they may."""
    async with Drumbeat(
        f"sqlite:///{tmp_path}/behind.db",
        queues="mail",
        dashboard_proxy="X-Forwarded-User",
        dashboard_proxy_role="X-Role",
        dashboard_proxy_from="10.0.0.0/8",
    ) as app:
        yield app


def bearer(role: str) -> dict[str, str]:
    """The headers of a program with the token of this role."""
    return {"Authorization": f"Bearer {TOKENS[role]}"}
