"""Who is let in: this machine, tokens, a proxy, a program's own function; hosts, origins, logins, listeners."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.clock import FakeClock
from drumbeat.errors import ConfigError
from drumbeat.web import AccessRole, Caller
from drumbeat.web.access import COOKIE, PROXY_HEADERS, check_listener
from drumbeat.web.asgi import SECURITY_HEADERS
from tests.web.conftest import BASE, SAME_ORIGIN, TOKENS, OpenBrowser, bearer

ELSEWHERE = ("192.0.2.7", 50_000)
STATUS = "/api/v1/status"
PAUSE = "/api/v1/queues/mail/pause"


async def test_this_machine_needs_no_login_and_may_do_everything(plain: Drumbeat, open_browser: OpenBrowser) -> None:
    browser = open_browser(plain.dashboard(access="open"))
    assert (await browser.get(STATUS)).status_code == 200
    assert (await browser.post(PAUSE, json={"reason": "tests"})).status_code == 200


async def test_another_machine_is_told_what_to_set(plain: Drumbeat, open_browser: OpenBrowser) -> None:
    answer = await open_browser(plain.dashboard(access="open"), client=ELSEWHERE).get(STATUS)
    assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
    assert "dashboard_tokens" in answer.json()["detail"]


@pytest.mark.parametrize("header", PROXY_HEADERS)
async def test_what_a_proxy_passes_on_is_not_taken_for_this_machine(
    plain: Drumbeat, open_browser: OpenBrowser, header: str
) -> None:
    answer = await open_browser(plain.dashboard(access="open"), headers=SAME_ORIGIN | {header: "192.0.2.7"}).get(STATUS)
    assert answer.status_code == 403


async def test_with_tokens_this_machine_needs_one_too(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    answer = await open_browser(guarded.dashboard()).get(STATUS)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="drumbeat"')


@pytest.mark.parametrize("header", ["Bearer nonsense-nonsense", "Bearer ", "Bearer"])
async def test_a_wrong_token_is_refused(guarded: Drumbeat, open_browser: OpenBrowser, header: str) -> None:
    answer = await open_browser(guarded.dashboard(), headers={"Authorization": header}).get(STATUS)
    assert (answer.status_code, answer.json()["detail"]) == (401, "invalid token")


async def test_a_token_may_be_given_by_its_hash(tmp_path: Path, open_browser: OpenBrowser) -> None:
    digest = hashlib.sha256(TOKENS["viewer"].encode()).hexdigest()
    async with Drumbeat(f"sqlite:///{tmp_path}/a.db", dashboard_tokens=f"ada:viewer:sha256:{digest}") as app:
        assert (await open_browser(app.dashboard(), headers=bearer("viewer")).get(STATUS)).status_code == 200
        assert (await open_browser(app.dashboard(), headers={"Authorization": f"Bearer {digest}"}).get(STATUS)).is_error


@pytest.mark.parametrize(
    "token",
    ["ada:viewer:", "ada:king:0123456789abcdef", "ada:viewer:tiny0", "ada:viewer:sha256:zz", ":admin:0123456789abcdef"],
)
def test_a_token_that_cannot_be_is_refused_without_being_repeated(token: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _ = Drumbeat("sqlite:///a.db", dashboard_tokens=token).settings
    assert "dashboard_tokens" in str(caught.value)
    assert (token.rpartition(":")[2] or token) not in str(caught.value)


def test_settings_keep_no_token_in_clear_text(guarded: Drumbeat) -> None:
    assert not any(token in repr(guarded.settings) for token in TOKENS.values())


async def test_a_viewer_who_writes_is_refused_by_the_api_itself(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    answer = await open_browser(guarded.dashboard(), headers=bearer("viewer")).post(PAUSE, json={})
    assert (answer.status_code, answer.json()["type"]) == (403, "role")
    assert "operator" in answer.json()["detail"]


# --- a proxy in front ---


@pytest.mark.parametrize(
    ("role", "status"), [("operator", 200), ("ADMIN", 200), ("viewer", 403), ("emperor", 403), ("", 403)]
)
async def test_the_proxy_says_who_calls_and_with_which_role(
    behind: Drumbeat, open_browser: OpenBrowser, role: str, status: int
) -> None:
    said = SAME_ORIGIN | {"X-Forwarded-User": "grace", "X-Role": role}
    browser = open_browser(behind.dashboard(), client=("10.1.2.3", 1), headers=said)
    assert (await browser.get(STATUS)).status_code == 200
    assert (await browser.post(PAUSE, json={})).status_code == status


@pytest.mark.parametrize("client", [ELSEWHERE, ("127.0.0.1", 1), ("11.0.0.1", 1)])
async def test_nobody_else_is_believed_who_calls(behind: Drumbeat, open_browser: OpenBrowser, client: Any) -> None:
    said = {"X-Forwarded-User": "grace", "X-Role": "admin"}
    assert (await open_browser(behind.dashboard(), client=client, headers=said).get(STATUS)).status_code == 401


async def test_the_proxy_must_name_somebody(behind: Drumbeat, open_browser: OpenBrowser) -> None:
    assert (await open_browser(behind.dashboard(), client=("10.1.2.3", 1)).get(STATUS)).status_code == 401


# --- a function of the program's own ---


async def test_a_program_may_decide_by_itself_who_calls(plain: Drumbeat, open_browser: OpenBrowser) -> None:
    async def access(scope: Mapping[str, Any]) -> Caller | None:
        names = [value for name, value in scope["headers"] if name == b"x-user"]
        return Caller(name=names[0].decode(), role=AccessRole.OPERATOR) if names else None

    board = plain.dashboard(access=access)
    assert (await open_browser(board).get(STATUS)).status_code == 401
    ada = open_browser(board, client=ELSEWHERE, headers=SAME_ORIGIN | {"X-User": "ada"}, base="http://shop.example")
    assert (await ada.post(PAUSE, json={"reason": "because"})).status_code == 200
    (act,) = await plain.audit.list()
    assert (act.who, act.role) == ("ada", "operator")


# --- hosts ---


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "127.0.0.1:7777",
        "[::1]:7777",
        "192.0.2.1",
        "LOCALHOST:1",
        "jobs.example.com",
        "localhost.",
        "[::1]",
    ],
)
async def test_hosts_that_are_ours_are_served(tmp_path: Path, open_browser: OpenBrowser, host: str) -> None:
    async with Drumbeat(f"sqlite:///{tmp_path}/a.db", dashboard_hosts="jobs.example.com,.inner.example") as app:
        for name in (host, "a.b.inner.example:80"):
            answer = await open_browser(app.dashboard(access="open")).get(STATUS, headers={"Host": name})
            assert answer.status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "inner.example", ""),
        # Not written as a host, whatever it begins with.
        *("[::1].evil.test", "[::1]evil.test", "[::1]:80.evil.test", "[::1", "::1", "[localhost]", "[127.0.0.1]", "[]"),
        *(
            "localhost:80:80",
            "localhost:x",
            "localhost/evil.test",
            "evil.test#localhost",
            "a@localhost",
            "localhost, x",
        ),
        *("localhost..", ".localhost", "127.0.0.1:777777", "[::1%25eth0]"),
    ],
)
async def test_a_name_that_somebody_else_points_at_us_is_refused(
    tmp_path: Path, open_browser: OpenBrowser, host: str
) -> None:
    async with Drumbeat(f"sqlite:///{tmp_path}/a.db", dashboard_hosts=".inner.example") as app:
        answer = await open_browser(app.dashboard(access="open")).get(STATUS, headers={"Host": host})
        assert (answer.status_code, answer.json()["argument"]) == (421, "Host")


# --- origins ---

SAME = [
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": BASE},
    {"Origin": "https://127.0.0.1:7777"},
]
OTHER = [
    {},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": BASE},
    {"Origin": "http://evil.example"},
    {"Origin": "http://127.0.0.1:8000"},
    {"Origin": "null"},
    {"Referer": BASE},
]


@pytest.mark.parametrize("headers", SAME, ids=str)
async def test_our_own_pages_may_write(plain: Drumbeat, open_browser: OpenBrowser, headers: dict[str, str]) -> None:
    assert (await open_browser(plain.dashboard(access="open"), headers=headers).post(PAUSE, json={})).status_code == 200


@pytest.mark.parametrize("headers", OTHER, ids=str)
async def test_pages_of_others_may_not(plain: Drumbeat, open_browser: OpenBrowser, headers: dict[str, str]) -> None:
    browser = open_browser(plain.dashboard(access="open"), headers=headers)
    answer = await browser.post(PAUSE, json={})
    assert (answer.status_code, answer.json()["type"]) == (403, "origin")
    assert (await browser.get(STATUS)).status_code == 200
    assert await plain.audit.list() == []


async def test_a_program_with_a_token_needs_no_origin(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    answer = await open_browser(guarded.dashboard(), headers=bearer("admin")).post(PAUSE, json={})
    assert answer.status_code == 404  # let in; no such queue


# --- logging in ---


def login(browser: httpx.AsyncClient, token: str, next: str = "/queues") -> Any:
    return browser.post("/login", data={"token": token, "next": next})


async def test_somebody_who_wants_a_page_is_led_to_the_login_and_back(
    guarded: Drumbeat, open_browser: OpenBrowser
) -> None:
    browser = open_browser(guarded.dashboard())
    led = await browser.get("/queues?a=1", headers={"Accept": "text/html"})
    assert (led.status_code, led.headers["location"]) == (303, "/login?next=%2Fqueues%3Fa%3D1")
    form = await browser.get(led.headers["location"])
    assert 'value="/queues?a=1"' in form.text
    entered = await login(browser, TOKENS["operator"], "/queues?a=1")
    assert (entered.status_code, entered.headers["location"]) == (303, "/queues?a=1")
    assert (await browser.get("/queues", headers={"Accept": "text/html"})).status_code == 200


async def test_the_cookie_is_no_token_and_only_for_our_own_pages(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    browser = open_browser(guarded.dashboard(), base="https://127.0.0.1:7777")
    cookie = (await login(browser, TOKENS["viewer"])).headers["set-cookie"]
    assert TOKENS["viewer"] not in cookie
    assert {"HttpOnly", "SameSite=Strict", "Secure", "Path=/"} <= set(cookie.split("; "))


async def test_a_session_has_the_rights_of_its_token_and_ends_with_the_logout(
    guarded: Drumbeat, open_browser: OpenBrowser
) -> None:
    board = guarded.dashboard()
    browser = open_browser(board)
    await login(browser, TOKENS["viewer"])
    assert (await browser.get(STATUS)).status_code == 200
    assert (await browser.post(PAUSE, json={})).status_code == 403
    kept = browser.cookies[COOKIE]
    thief = open_browser(board, headers={"Cookie": f"{COOKIE}={kept}"})
    assert (await thief.get(STATUS)).status_code == 200
    await browser.post("/logout")
    assert (await browser.get(STATUS)).status_code == 401
    assert (await thief.get(STATUS)).status_code == 401


async def test_a_session_ends_by_itself_after_twelve_hours(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    board, clock = guarded.dashboard(), FakeClock()
    board.state.access_control.sessions._clock = clock
    browser = open_browser(board)
    cookie = (await login(browser, TOKENS["viewer"])).headers["set-cookie"]
    assert "Max-Age=43200" in cookie
    secret = browser.cookies[COOKIE]
    keeper = open_browser(board, headers={"Cookie": f"{COOKIE}={secret}"})
    await clock.advance(43_199)
    assert (await keeper.get(STATUS)).status_code == 200
    await clock.advance(1)
    assert (await keeper.get(STATUS)).status_code == 401, "whatever the browser keeps"


async def test_a_wrong_token_gives_the_form_again_and_no_session(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    browser = open_browser(guarded.dashboard())
    answer = await login(browser, "nonsense-nonsense", '/"><script>alert(1)</script>')
    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize(
    "next", ["//evil.example", "https://evil.example", "/\\evil.example", "", "a\r\nb", "/\r\nX: 1"]
)
async def test_a_login_leads_nowhere_else(guarded: Drumbeat, open_browser: OpenBrowser, next: str) -> None:
    assert (await login(open_browser(guarded.dashboard()), TOKENS["viewer"], next)).headers["location"] == "/"


async def test_a_page_of_another_site_cannot_log_somebody_in(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    browser = open_browser(guarded.dashboard(), headers={"Sec-Fetch-Site": "cross-site"})
    assert (await login(browser, TOKENS["viewer"])).status_code == 403


async def test_where_there_are_no_tokens_there_is_no_login(plain: Drumbeat, open_browser: OpenBrowser) -> None:
    browser = open_browser(plain.dashboard(access="open"))
    assert (await browser.get("/login")).headers["location"] == "/"
    assert (await login(browser, TOKENS["admin"])).status_code == 403


# --- headers, listeners ---


@pytest.mark.parametrize("path", [STATUS, "/queues", "/nowhere", "/static/app.css", "/login", "/api/v1/jobs/nonsense"])
async def test_every_answer_has_the_strict_headers(plain: Drumbeat, open_browser: OpenBrowser, path: str) -> None:
    for accept in ("application/json", "text/html"):
        answer = await open_browser(plain.dashboard(access="open")).get(path, headers={"Accept": accept})
        assert {name: answer.headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert path.startswith("/static") or answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "jobs.example.com"])
def test_a_listener_for_others_without_access_control_is_refused(plain: Drumbeat, guarded: Drumbeat, host: str) -> None:
    with pytest.raises(ConfigError, match="DRUMBEAT_DASHBOARD_TOKENS"):
        check_listener(plain.settings, host)
    check_listener(guarded.settings, host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.2"])
def test_a_listener_on_loopback_needs_none(plain: Drumbeat, host: str) -> None:
    check_listener(plain.settings, host)
