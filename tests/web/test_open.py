"""Whom a dashboard is open to: nobody, unless somebody has said so; and what becomes of those who guess tokens."""

import asyncio
from pathlib import Path

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.clock import FakeClock
from drumbeat.errors import ConfigError
from drumbeat.web import access, login_throttle
from tests.web.conftest import TOKENS, OpenBrowser, bearer
from tests.web.live_server import serve_dashboard

ELSEWHERE = ("192.0.2.7", 50_000)
STATUS = "/api/v1/status"
PAUSE = "/api/v1/queues/mail/pause"


async def login(browser: httpx.AsyncClient, token: str) -> httpx.Response:
    return await browser.post("/login", data={"token": token, "next": "/"})


def test_a_dashboard_for_which_nobody_has_said_who_may_use_it_is_refused(plain: Drumbeat) -> None:
    with pytest.raises(ConfigError) as refused:
        plain.dashboard()
    for way in ("access=", "dashboard_tokens", "dashboard_proxy", 'access="open"'):
        assert way in str(refused.value)


def test_a_word_that_is_no_way_in_is_refused(plain: Drumbeat) -> None:
    with pytest.raises(ConfigError, match="open"):
        plain.dashboard(access="everybody")  # type: ignore[arg-type]


async def test_tokens_or_a_proxy_are_enough_and_leave_nothing_open(
    guarded: Drumbeat, behind: Drumbeat, open_browser: OpenBrowser
) -> None:
    for app in (guarded, behind):
        for board in (app.dashboard(), app.dashboard(access="open")):
            assert (await open_browser(board).get(STATUS)).status_code == 401


async def test_settings_that_lose_their_tokens_later_open_nothing(
    tmp_path: Path, open_browser: OpenBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUMBEAT_DASHBOARD_TOKENS", f"ada:admin:{TOKENS['admin']}")
    app = Drumbeat(f"sqlite:///{tmp_path}/a.db")
    board = app.dashboard()
    monkeypatch.delenv("DRUMBEAT_DASHBOARD_TOKENS")
    async with app:
        assert (await open_browser(board).get(STATUS)).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "same-origin", "Referer": "https://jobs.example.com/jobs"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://jobs.example.com"},
    ],
)
async def test_a_page_at_another_host_that_calls_itself_ours_came_by_a_proxy(
    plain: Drumbeat, open_browser: OpenBrowser, headers: dict[str, str]
) -> None:
    browser = open_browser(plain.dashboard(access="open"), headers=headers)
    assert (await browser.get(STATUS)).status_code == 403
    assert (await browser.post(PAUSE, json={})).status_code == 403


async def test_a_link_from_elsewhere_and_our_own_pages_are_no_proxy(plain: Drumbeat, open_browser: OpenBrowser) -> None:
    board = plain.dashboard(access="open")
    for headers in (
        {"Sec-Fetch-Site": "cross-site", "Referer": "https://chat.example.com/"},
        {"Sec-Fetch-Site": "same-origin", "Referer": "http://127.0.0.1:7777/jobs"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:7777"},
    ):
        assert (await open_browser(board, headers=headers).get(STATUS)).status_code == 200


async def test_a_plain_proxy_pass_makes_nobody_an_admin(plain: Drumbeat) -> None:
    # As nginx sends it where nothing but proxy_pass is set.
    request = b"GET /api/v1/status HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    async with serve_dashboard(plain.dashboard(access="open")) as (address, _), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        writer.write(request)
        assert b" 403 " in (await reader.read()).splitlines()[0]
        writer.close()


# --- tokens that are none ---


async def test_who_guesses_tokens_has_to_wait_and_others_do_not(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    board = guarded.dashboard()
    knows = open_browser(board, headers=bearer("viewer"))
    assert (await knows.get(STATUS)).status_code == 200
    for n in range(login_throttle.FREE_ATTEMPTS + 1):
        guess = open_browser(board, headers={"Authorization": f"Bearer not-the-token-{n:010}"})
        assert (await guess.get(STATUS)).status_code == 401
    held = await open_browser(board, headers={"Authorization": "Bearer another-token-0123"}).get(STATUS)
    assert (held.status_code, held.json()["type"]) == (429, "too-many-attempts")
    assert int(held.headers["retry-after"]) >= 1
    # Not even the right one is judged meanwhile, unless it has been right here before.
    assert (await open_browser(board, headers=bearer("admin")).get(STATUS)).status_code == 429
    assert (await login(open_browser(board), TOKENS["admin"])).status_code == 429
    assert (await knows.get(STATUS)).status_code == 200
    elsewhere = open_browser(board, headers=bearer("admin"), client=ELSEWHERE)
    assert (await elsewhere.get(STATUS)).status_code == 200


async def test_logins_are_counted_too(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    browser = open_browser(guarded.dashboard())
    answers = [await login(browser, f"not-the-token-{n:010}") for n in range(login_throttle.FREE_ATTEMPTS + 2)]
    assert [each.status_code for each in answers] == [401] * (login_throttle.FREE_ATTEMPTS + 1) + [429]
    assert "retry-after" in answers[-1].headers


async def test_the_wait_doubles_is_bounded_and_forgotten_and_so_is_what_is_kept() -> None:
    clock = FakeClock()
    kept = login_throttle.LoginThrottle(clock)
    waits = []
    for n in range(20):
        kept.record("address", f"token {n}", is_right=False)
        waits.append(round(kept.retry_after("address", "another"), 3))
        await clock.advance(waits[-1])
    assert waits[: login_throttle.FREE_ATTEMPTS + 4] == [0.0] * login_throttle.FREE_ATTEMPTS + [1.0, 2.0, 4.0, 8.0]
    assert max(waits) == login_throttle.MAX_DELAY
    await clock.advance(login_throttle.EXPIRY_SECONDS + 1)
    kept.record("address", "token", is_right=False)
    assert kept.retry_after("address", "another") == 0.0
    for n in range(login_throttle.MAX_ENTRIES + 100):
        kept.record(f"address {n}", f"token {n}", is_right=n % 2 == 0)
    assert len(kept) <= 2 * login_throttle.MAX_ENTRIES


def test_one_person_s_addresses_are_one() -> None:
    assert access.client_network("2001:db8::1") == access.client_network("2001:db8::ffff")
    assert (
        access.client_network("::ffff:192.0.2.1")
        == access.client_network("192.0.2.1")
        != access.client_network("192.0.2.2")
    )
    assert access.client_network("nonsense") == access.client_network("")
