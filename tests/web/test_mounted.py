"""The dashboard inside of somebody else's program: under a path, under its server, with its store away for a while."""

import asyncio
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar, asgi
from starlette.applications import Starlette
from starlette.routing import Mount

from drumbeat import Drumbeat
from drumbeat.errors import ConfigError
from drumbeat.web import Dashboard
from drumbeat.web.server import listen
from tests.cli.command import build_environment
from tests.conftest import fresh_url
from tests.servers.ports import free_port
from tests.servers.redis import RedisServer
from tests.waiting import until
from tests.web.conftest import SAME_ORIGIN, TOKENS, OpenBrowser
from tests.web.live_server import follow_events

HTML = {"Accept": "text/html"}
PREFIX = "/admin/jobs"
ROOT = Path(__file__).parents[2]


def in_starlette(board: Dashboard) -> Any:
    return Starlette(routes=[Mount(PREFIX, board)])


def in_litestar(board: Dashboard) -> Any:
    """It cuts the prefix off the path, puts a slash to its end, and sets no root_path."""
    return Litestar([asgi(PREFIX, is_mount=True, copy_scope=True)(board)])


EACH_FRAMEWORK = pytest.mark.parametrize("framework", [in_starlette, in_litestar])


def mounted(app: Drumbeat, framework: Callable[[Dashboard], Any] = in_starlette) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(framework(app.dashboard(access="open")), client=("127.0.0.1", 1)),
        base_url="http://127.0.0.1:8000",
        headers=SAME_ORIGIN,
    )


@EACH_FRAMEWORK
async def test_under_a_path_everything_is_found_there(app: Drumbeat, framework: Callable[[Dashboard], Any]) -> None:
    async with mounted(app, framework) as browser:
        assert (await browser.get(f"{PREFIX}/api/v1/queues")).json()["items"][0]["name"] == "mail"
        assert (await browser.post(f"{PREFIX}/api/v1/queues/mail/pause", json={})).status_code == 200
        document = (await browser.get(f"{PREFIX}/api/v1/openapi.json")).json()
        assert document["servers"] == [{"url": PREFIX}]


@EACH_FRAMEWORK
async def test_every_address_in_a_page_is_under_that_path(app: Drumbeat, framework: Callable[[Dashboard], Any]) -> None:
    async with mounted(app, framework) as browser:
        for path in ("/", "/queues"):
            page = await browser.get(PREFIX + path, headers=HTML)
            assert page.status_code == 200
            addresses = re.findall(r'(?:href|src|action)="(/[^"]*)"', page.text)
            assert addresses
            assert [address for address in addresses if not address.startswith(f"{PREFIX}/")] == []
            for address in {address for address in addresses if "/static/" in address}:
                assert (await browser.get(address)).status_code == 200


async def test_a_login_under_a_path_stays_there(guarded: Drumbeat) -> None:
    async with mounted(guarded) as browser:
        led = await browser.get(f"{PREFIX}/queues", headers=HTML)
        assert led.headers["location"] == f"{PREFIX}/login?next=%2Fqueues"
        entered = await browser.post(f"{PREFIX}/login", data={"token": TOKENS["viewer"], "next": "/queues"})
        assert entered.headers["location"] == f"{PREFIX}/queues"
        assert f"Path={PREFIX};" in entered.headers["set-cookie"]
        assert (await browser.get(f"{PREFIX}/queues", headers=HTML)).status_code == 200


# --- static files ---


async def test_a_static_file_is_kept_as_long_as_it_is_the_same(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    browser = open_browser(guarded.dashboard())
    plain = await browser.get("/static/app.css")
    assert (plain.status_code, plain.headers["cache-control"]) == (200, "no-cache")
    assert (await browser.get("/static/app.css", headers={"If-None-Match": plain.headers["etag"]})).status_code == 304
    version = plain.headers["etag"].strip('"')
    assert "immutable" in (await browser.get(f"/static/app.css?v={version}")).headers["cache-control"]
    assert (await browser.get("/static/app.css?v=older")).headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "name", ["..%2Froutes.py", "..", ".hidden.css", "nothing.css", "app.css%00", "routes.py", "%2Fetc%2Fpasswd"]
)
async def test_no_other_file_is_a_static_one(guarded: Drumbeat, open_browser: OpenBrowser, name: str) -> None:
    assert (await open_browser(guarded.dashboard()).get(f"/static/{name}")).status_code in (404, 401)


# --- a store that is away ---


async def test_it_works_again_after_the_store_was_away(open_browser: OpenBrowser) -> None:
    with RedisServer("valkey") as server:
        async with Drumbeat(server.url, queues="mail") as app:
            browser = open_browser(app.dashboard(access="open"))
            assert (await browser.get("/api/v1/queues")).status_code == 200
            await asyncio.to_thread(server.stop)
            away = await browser.get("/api/v1/queues")
            assert (away.status_code, away.json()["type"]) == (503, "store-away")
            page = await browser.get("/queues", headers=HTML)
            assert (page.status_code, "text/html" in page.headers["content-type"]) == (503, True)
            await asyncio.to_thread(server.start)
            await until(lambda: _is_back(browser), deadline=20, what="the queues")


async def _is_back(browser: httpx.AsyncClient) -> bool:
    return (await browser.get("/api/v1/queues")).status_code == 200


async def test_it_starts_while_the_store_is_away_and_has_it_later(open_browser: OpenBrowser) -> None:
    with RedisServer("valkey") as server:
        await asyncio.to_thread(server.stop)
        app = Drumbeat(server.url, queues="mail")
        browser = open_browser(app.dashboard(access="open"))
        assert (await browser.get("/api/v1/queues")).status_code == 503
        await asyncio.to_thread(server.start)
        await until(lambda: _is_back(browser), deadline=20, what="the queues")
        await app.close()


# --- servers ---


PROGRAM = """
import sys, uvicorn
from drumbeat import Drumbeat
from starlette.applications import Starlette
from starlette.routing import Mount
app = Drumbeat(sys.argv[1])
uvicorn.run(Starlette(routes=[Mount("/admin/jobs", app.dashboard(access="open"))]), port=int(sys.argv[2]), log_level="warning")
"""


async def opened(address: str) -> None:
    async def answers() -> bool:
        try:
            async with httpx.AsyncClient() as browser:
                return (await browser.get(f"{address}/api/v1/status")).status_code == 200
        except httpx.TransportError:
            return False

    await until(answers, deadline=40, what=f"an answer of {address}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_command_ends_at_once_though_somebody_looks_on(tmp_path: Path, number: signal.Signals) -> None:
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "drumbeat",
        "dashboard",
        "--port",
        str(port),
        "--url",
        fresh_url("sqlite", tmp_path),
    ]
    with subprocess.Popen(command, cwd=tmp_path, env=build_environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            await opened(f"http://127.0.0.1:{port}")
            async with follow_events(f"http://127.0.0.1:{port}") as told:
                assert (await anext(told)).kind == "tick"
                process.send_signal(number)
                code = await asyncio.to_thread(process.wait, 15)
        finally:
            process.kill()
        assert process.stdout is not None
        said = process.stdout.read()
    assert code == 0
    assert f"http://127.0.0.1:{port}/" in said


async def test_uvicorn_of_a_program_that_has_mounted_it_ends_though_somebody_looks_on(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-c", PROGRAM, fresh_url("sqlite", tmp_path), str(port)]
    with subprocess.Popen(command, cwd=tmp_path, env=build_environment()) as process:
        try:
            await opened(f"http://127.0.0.1:{port}{PREFIX}")
            async with follow_events(f"http://127.0.0.1:{port}{PREFIX}") as told:
                assert (await anext(told)).kind == "tick"
                process.send_signal(signal.SIGTERM)
                await asyncio.to_thread(process.wait, 15)
        finally:
            process.kill()


@pytest.mark.parametrize("package", ["jinja2", "starlette.responses"])
def test_packages_that_are_missing_are_told_before_the_first_page(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=r"drumbeat\[web\]"):
        Drumbeat("sqlite:///unused.db").dashboard(access="open")


def test_an_address_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        app = Drumbeat("sqlite:///unused.db", dashboard=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ConfigError, match="cannot listen"):
            listen(app.settings)


async def test_parameters_of_the_path_around_it_are_not_its_own(app: Drumbeat) -> None:
    program = Starlette(routes=[Mount("/{tenant}/jobs", app.dashboard(access="open"))])
    transport = httpx.ASGITransport(program, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers=SAME_ORIGIN) as browser:
        assert (await browser.post("/acme/jobs/api/v1/queues/mail/pause", json={})).status_code == 200
        assert (await browser.get("/acme/jobs/api/v1/nothing")).headers["content-type"] == "application/problem+json"
    assert [act.target for act in await app.audit.list(verb="queues.pause")] == ["mail"]


@pytest.mark.parametrize("root", ["/ops", "/ops/"])
async def test_a_root_path_may_end_with_a_slash(app: Drumbeat, open_browser: OpenBrowser, root: str) -> None:
    browser = open_browser(app.dashboard(access="open"), root=root)
    for path in ("/ops", "/ops/", "/ops/queues"):
        assert (await browser.get(path)).status_code == 200, path
