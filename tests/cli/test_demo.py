"""`drumbeat demo`: it ends by itself where nobody sits, ends as it should, and leaves nothing behind.

That it stays for a person until Ctrl-C is shown with its buttons, in tests/web/test_demo.py.
"""

import asyncio
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from drumbeat.cli.demo.main import SignalScope
from tests.cli.command import call, start
from tests.cli.terminal import terminal
from tests.waiting import until_sync

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/")


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """For temporary files of the demo; pytest's own are too long for sockets."""
    with tempfile.TemporaryDirectory(prefix="d-") as folder:
        yield Path(folder)


def left_behind(folder: Path) -> list[str]:
    """Files of the demo, and processes whose environment says that they are its children."""
    files = [path.name for path in folder.iterdir()]
    mark = f"TMPDIR={folder}".encode()
    return files + [pid for pid in filter(str.isdigit, os.listdir("/proc")) if _has(pid, mark)]


def _has(pid: str, mark: bytes) -> bool:
    try:
        return any(each.startswith(mark) for each in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:  # gone, or somebody else's
        return False


def assert_every_fate(shown: str) -> None:
    summary = dict(re.findall(r"^(\w[\w ]+?) {2,}(\d.* ok) *$", shown, re.MULTILINE))
    counts = {kind: re.findall(r"[\d,]+", row)[:3] for kind, row in summary.items()}
    assert counts == {
        "success": ["20", "20", "0"],
        "many small": ["500", "500", "0"],
        "delayed": ["6", "6", "0"],
        "transient fail": ["8", "8", "0"],
        "permanent fail": ["3", "0", "3"],
        "gives up at once": ["1", "0", "1"],
        "worker killed": ["1", "1", "0"],
    }
    assert shown.count("no such address") == 3
    assert "sk-demo" not in shown
    assert re.search(
        r"Worker (\w+) \(pid \d+\), killed at page \d+ .* found dead after .*; worker (?!\1)\w+ took", shown
    )


FLAGS = ("", "--no-dashboard")


class Played(NamedTuple):
    """A demo whose output goes into a pipe, to its end."""

    done: "subprocess.CompletedProcess[str]"
    took: float
    left_behind: list[str]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """By their flags; side by side, because they sleep most of the time."""

    def play(flags: str) -> Played:
        with tempfile.TemporaryDirectory(prefix="d-") as short:
            began = time.monotonic()
            env = {"TMPDIR": short, "DRUMBEAT_CONCURRENCY": "nonsense"}
            done = call("demo", *flags.split(), folder=tmp_path_factory.mktemp("demo"), env=env)
            return Played(done, time.monotonic() - began, left_behind(Path(short)))

    with ThreadPoolExecutor() as threads:
        return dict(zip(FLAGS, threads.map(play, FLAGS), strict=True))


@pytest.mark.parametrize("flags", FLAGS, ids=["with its dashboard", "without"])
def test_the_demo_in_a_pipe_shows_every_fate_and_exits_0_in_under_40_seconds(
    played: dict[str, Played], flags: str
) -> None:
    done, took, left = played[flags]
    assert done.returncode == 0, done.stdout + done.stderr
    assert took < 40
    assert done.stderr == ""
    assert_every_fate(done.stdout)
    assert bool(ADDRESS.search(done.stdout)) == (not flags)
    assert left == []


def test_its_dashboard_listens_where_the_setting_says_and_on_this_machine_only(
    tmp_path: Path, short_folder: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        env = {"TMPDIR": str(short_folder), "DRUMBEAT_DASHBOARD": f"127.0.0.1:{port}"}
        busy = call("demo", folder=tmp_path, env=env)
    assert busy.returncode == 2 and f"cannot listen on 127.0.0.1:{port}" in busy.stderr
    open_to_all = call("demo", folder=tmp_path, env=env | {"DRUMBEAT_DASHBOARD": "0.0.0.0:0"})
    assert open_to_all.returncode == 2 and "listens on a loopback address only" in open_to_all.stderr
    with start("demo", folder=tmp_path, env=env) as demo:
        assert demo.stdout is not None
        assert next(iter(ADDRESS.findall(demo.stdout.readline()))) == f"http://127.0.0.1:{port}/"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_leaves_nothing_behind_though_somebody_looks_on(
    tmp_path: Path, short_folder: Path, number: signal.Signals, code: int
) -> None:
    with start("demo", folder=tmp_path, env={"TMPDIR": str(short_folder)}) as demo:
        assert demo.stdout is not None
        seen = ""
        while "jobs enqueued" not in seen:
            seen += demo.stdout.readline()
        with httpx.stream("GET", f"{ADDRESS.findall(seen)[0]}api/v1/events", timeout=20) as stream:
            assert any(line.startswith("event: tick") for line in stream.iter_lines())
            os.kill(demo.pid, number)
            out, err = demo.communicate(timeout=30)
    assert (demo.returncode, err) == (code, "")
    assert "Everything ended" not in out
    assert left_behind(short_folder) == []


def test_the_workers_of_a_killed_demo_leave_by_themselves(tmp_path: Path, short_folder: Path) -> None:
    with start("demo", folder=tmp_path, env={"TMPDIR": str(short_folder)}) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "jobs enqueued" in line:
                break
        os.kill(demo.pid, signal.SIGKILL)
        demo.wait(30)
    until_sync(lambda: not any(map(str.isdigit, left_behind(short_folder))), deadline=20, what="the end of all workers")


def test_it_does_not_stay_with_exit(tmp_path: Path, short_folder: Path) -> None:
    with terminal("demo", "--exit", folder=tmp_path, env={"TMPDIR": str(short_folder)}) as demo:
        demo.wait_for("Everything ended as expected")
        assert demo.wait_exit_code() == 0
    assert "Ctrl-C" not in demo.seen
    assert left_behind(short_folder) == []


@contextmanager
def usual_port_taken() -> Iterator[None]:
    """By us, if nobody else has it."""
    with socket.socket() as taken:
        with suppress(OSError):
            taken.bind(("127.0.0.1", 7777))
            taken.listen()
        yield


def test_where_the_usual_port_is_taken_another_one_is_told_and_the_browser_opens_there(
    tmp_path: Path, short_folder: Path
) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened.new && mv {tmp_path}/opened.new {tmp_path}/opened\n')
    browser.chmod(0o755)
    with (
        usual_port_taken(),
        start("demo", "--open", folder=tmp_path, env={"TMPDIR": str(short_folder), "BROWSER": str(browser)}) as demo,
    ):
        assert demo.stdout is not None
        [address] = ADDRESS.findall(demo.stdout.readline())
        assert address != "http://127.0.0.1:7777/"
        until_sync(lambda: (tmp_path / "opened").exists(), what="the browser")
        assert httpx.get(address, timeout=20).status_code == 200
        os.kill(demo.pid, signal.SIGTERM)
        demo.communicate(timeout=30)
    assert (tmp_path / "opened").read_text().strip() == address


def test_without_the_packages_of_the_dashboard_it_says_so_in_one_line_and_goes_on(
    tmp_path: Path, short_folder: Path
) -> None:
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    for package in ("starlette", "uvicorn", "jinja2"):
        (hiding / f"{package}.py").write_text(
            f"raise ModuleNotFoundError('No module named {package}', name='{package}')\n"
        )
    with start("demo", folder=tmp_path, env={"TMPDIR": str(short_folder), "PYTHONPATH": str(hiding)}) as demo:
        assert demo.stdout is not None
        first = demo.stdout.readline()
        assert first.startswith("Without the dashboard, which needs packages: pip install 'drumbeat[web]'")
        assert any("jobs enqueued" in line for line in demo.stdout)
        os.kill(demo.pid, signal.SIGTERM)
        assert "http" not in demo.communicate(timeout=30)[0]
    assert demo.returncode == 143


@pytest.fixture
def hangups() -> Iterator[None]:
    """Whatever this process does at SIGHUP, it does it afterwards, too."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


async def test_a_closed_terminal_ends_what_is_on_and_what_would_follow(hangups: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    curtain = SignalScope()
    with curtain.handle_signals():
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGHUP)
        assert await curtain.run(asyncio.Event().wait()) is None
        assert await curtain.run(asyncio.Event().wait()) is None
    assert curtain.signal is signal.SIGHUP


async def test_under_nohup_it_goes_on_when_the_terminal_is_closed(hangups: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    curtain = SignalScope()
    with curtain.handle_signals():
        os.kill(os.getpid(), signal.SIGHUP)
        assert await curtain.run(asyncio.to_thread(lambda: "played")) == "played"
    assert curtain.signal is None
