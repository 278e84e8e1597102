"""Ways in, and ways out, that somebody with bad intentions would try; each of them has worked once."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.web import AccessRole, Caller, parsing
from drumbeat.web.access import COOKIE
from tests.web.conftest import BASE, SAME_ORIGIN, TOKENS, OpenBrowser

STATUS = "/api/v1/status"
PAUSE = "/api/v1/queues/mail/pause"


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[Drumbeat]:
    async with Drumbeat(f"sqlite:///{tmp_path}/plain.db", queues="mail") as app:
        yield app


async def logged_in(browser: httpx.AsyncClient, next: str = "/", **headers: str) -> httpx.Response:
    return await browser.post("/login", data={"token": TOKENS["viewer"], "next": next}, headers=headers)


# --- logging in ---


@pytest.mark.parametrize("next", ["/é/evil.example", "/\u00a0/evil.example", "/é\\evil.example", "/日/evil.example/x"])
async def test_letters_that_a_header_cannot_hold_lead_nowhere_else(
    guarded: Drumbeat, open_browser: OpenBrowser, next: str
) -> None:
    led = (await logged_in(open_browser(guarded.dashboard()), next)).headers["location"]
    assert urljoin(BASE, led).startswith(f"{BASE}/")
    assert led.isascii()


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://127.0.0.1:7777"}, {"X-Forwarded-Proto": "https, http"}, {"X-Forwarded-Proto": "HTTPS"}],
)
async def test_behind_tls_the_cookie_is_never_sent_without_it(
    guarded: Drumbeat, open_browser: OpenBrowser, headers: dict[str, str]
) -> None:
    answer = await logged_in(open_browser(guarded.dashboard()), **headers)
    assert "Secure" in answer.headers["set-cookie"].split("; ")


@pytest.mark.parametrize(
    "others",
    ['a[b]=1; {}; x={{"y": 1, "z": [2]}}', 'x={{"y": "a;b"}}; {}', f"{COOKIE}=stale; {{}}", f"{{}}; {COOKIE}=stale"],
)
async def test_cookies_of_others_do_not_hide_ours(guarded: Drumbeat, open_browser: OpenBrowser, others: str) -> None:
    board = guarded.dashboard()
    browser = open_browser(board)
    await logged_in(browser)
    ours = f"{COOKIE}={browser.cookies[COOKIE]}"
    other = open_browser(board, headers=SAME_ORIGIN | {"Cookie": others.format(ours)})
    assert (await other.get(STATUS)).status_code == 200
    await other.post("/logout")
    assert (await browser.get(STATUS)).status_code == 401


async def test_a_path_that_we_are_mounted_under_adds_no_header(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    browser = open_browser(guarded.dashboard(), root="/a\r\nX-Evil: 1; é")
    answer = await logged_in(browser)
    assert answer.headers["location"] == "/a%0D%0AX-Evil:%201;%20%C3%A9/"
    assert "Path=/a%0D%0AX-Evil:%201%3B%20%C3%A9; " in answer.headers["set-cookie"]


async def test_a_second_login_of_a_browser_ends_the_first(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    board = guarded.dashboard()
    browser = open_browser(board)
    await logged_in(browser)
    first = open_browser(board, headers={"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"})
    assert (await first.get(STATUS)).status_code == 200
    await logged_in(browser)
    assert [(await each.get(STATUS)).status_code for each in (first, browser)] == [401, 200]


async def test_nobody_holds_a_request_open_by_not_sending_its_body(
    guarded: Drumbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even before the login."""
    monkeypatch.setattr(parsing, "BODY_TIMEOUT", 0.05)
    sent: list[Any] = []

    async def never() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/login", "query_string": b"", "client": ("192.0.2.7", 1)}
    headers = [(b"host", b"127.0.0.1"), (b"sec-fetch-site", b"same-origin")]
    async with asyncio.timeout(10):
        await guarded.dashboard()(scope | {"headers": headers, "server": ("127.0.0.1", 1)}, never, send)
    assert sent[0]["status"] == 408


# --- who calls ---


@pytest.mark.parametrize("header", ["X-Forwarded-Server", "X-Forwarded-Port", "CF-Connecting-IP", "True-Client-IP"])
async def test_what_came_by_some_proxy_is_not_taken_for_this_machine(
    plain: Drumbeat, open_browser: OpenBrowser, header: str
) -> None:
    assert (await open_browser(plain.dashboard(access="open"), headers={header: "x"}).get(STATUS)).status_code == 403


@pytest.fixture
async def behind(tmp_path: Path) -> AsyncIterator[Drumbeat]:
    async with Drumbeat(
        f"sqlite:///{tmp_path}/behind.db", dashboard_proxy="X-Forwarded-User", dashboard_proxy_role="Operator"
    ) as app:
        yield app


async def test_a_peer_without_a_readable_address_is_no_proxy(behind: Drumbeat, open_browser: OpenBrowser) -> None:
    said = {"X-Forwarded-User": "grace"}
    assert (
        await open_browser(behind.dashboard(), client=("somewhere", 1), headers=said).get(STATUS)
    ).status_code == 401
    assert (await open_browser(behind.dashboard(), headers=said).get(STATUS)).status_code == 200


async def test_a_name_that_is_said_twice_is_nobodys(behind: Drumbeat, open_browser: OpenBrowser) -> None:
    """A proxy that adds its header to that of the caller, instead of replacing it."""
    browser = open_browser(behind.dashboard())
    twice = [("X-Forwarded-User", "mallory"), ("X-Forwarded-User", "grace")]
    assert (await browser.get(STATUS, headers=twice)).status_code == 401


async def test_a_role_in_capitals_is_a_role_and_not_the_name_of_a_header(
    behind: Drumbeat, open_browser: OpenBrowser
) -> None:
    browser = open_browser(behind.dashboard(), headers={"X-Forwarded-User": "grace", "Operator": "admin"} | SAME_ORIGIN)
    answer = await browser.post("/api/v1/locks/a/release", json={})
    assert (answer.status_code, answer.json()["detail"]) == (403, "this needs the role admin; grace is operator")


async def test_no_page_of_others_writes_by_a_token_that_nobody_has_looked_at(
    plain: Drumbeat, open_browser: OpenBrowser
) -> None:
    """The program goes by its own cookie, and lets other origins send what headers they like."""

    def access(scope: Mapping[str, Any]) -> Caller | None:
        return Caller(name="ada", role=AccessRole.ADMIN)

    board = plain.dashboard(access=access)
    junk = {"Authorization": "Bearer junk"}
    for elsewhere in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
        assert (await open_browser(board, headers=junk | elsewhere).post(PAUSE, json={})).status_code == 403
    assert (await open_browser(board, headers=junk).post(PAUSE, json={})).status_code == 200


async def test_a_program_may_say_the_role_by_its_word(plain: Drumbeat, open_browser: OpenBrowser) -> None:
    board = plain.dashboard(access=lambda scope: Caller(name="ada", role="viewer"))  # type: ignore[arg-type]
    browser = open_browser(board)
    assert (await browser.get(STATUS)).status_code == 200
    assert (await browser.post(PAUSE, json={})).status_code == 403
