"""`drumbeat dashboard`, and `drumbeat run --dashboard`: a page beside the workers, in a process of its own."""

import asyncio
import signal
import socket
from pathlib import Path

import httpx
import pytest

from tests.cli.command import build_environment, call, start
from tests.waiting import until

APP = """
from drumbeat import Drumbeat
app = Drumbeat("sqlite:///shop.db", name="shop")

@app.task
async def greet(name: str) -> str:
    return name
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


async def status(port: int) -> dict[str, object] | None:
    try:
        async with httpx.AsyncClient() as browser:
            answer = await browser.get(f"http://127.0.0.1:{port}/api/v1/status")
    except httpx.TransportError:
        return None
    return answer.json() if answer.status_code == 200 else None


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_a_dashboard_beside_workers_shows_them_and_leaves_with_them(
    folder: Path, port: int, processes: str
) -> None:
    address = f"127.0.0.1:{port}"
    with start("run", "shop:app", "--processes", processes, "--dashboard", address, folder=folder) as process:

        async def sees_all() -> bool:
            found = await status(port)
            return found is not None and len(found["instances"]) == int(processes)  # type: ignore[arg-type]

        await until(sees_all, deadline=40, what="a dashboard that sees all workers")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 20) == 0
    assert await status(port) is None


async def test_a_dashboard_does_not_outlive_workers_that_were_killed(folder: Path, port: int) -> None:
    with start("run", "shop:app", "--dashboard", f"127.0.0.1:{port}", folder=folder) as process:
        await until(lambda: status(port), deadline=40, what="a dashboard")
        process.kill()
        await until(lambda: _is_closed(port), deadline=20, what="its end")


async def _is_closed(port: int) -> bool:
    return await status(port) is None


@pytest.mark.parametrize("words", [("dashboard", "--host", "0.0.0.0"), ("run", "shop:app", "--dashboard", "0.0.0.0:0")])
def test_others_are_not_let_in_without_tokens(folder: Path, words: tuple[str, ...]) -> None:
    ended = call(*words, folder=folder)
    assert ended.returncode == 2
    assert "DRUMBEAT_DASHBOARD_TOKENS" in ended.stderr


async def test_with_tokens_it_listens_for_others(folder: Path, port: int) -> None:
    env = build_environment(DRUMBEAT_DASHBOARD_TOKENS="ada:viewer:0123456789abcdef")
    words = ("dashboard", "--host", "0.0.0.0", "--port", str(port), "--app", "shop:app")
    with start(*words, folder=folder, env=env):

        async def refuses() -> bool:
            try:
                async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as browser:
                    assert (await browser.get("/api/v1/status")).status_code == 401
                    headers = {"Authorization": "Bearer 0123456789abcdef"}
                    return (await browser.get("/api/v1/status", headers=headers)).status_code == 200
            except httpx.TransportError:
                return False

        await until(refuses, deadline=40, what="an answer")


def test_an_address_that_is_none_is_refused(folder: Path) -> None:
    ended = call("run", "shop:app", "--dashboard", "everywhere", folder=folder)
    assert (ended.returncode, "HOST:PORT" in ended.stderr) == (2, True)
