"""`drumbeat demo`: it ends by itself, as it should, and leaves nothing behind."""

import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import call, running
from tests.waiting import until_sync


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """For temporary files of the demo; pytest's own are too long for sockets."""
    with tempfile.TemporaryDirectory(prefix="d-") as folder:
        yield Path(folder)


def left_behind(folder: Path) -> list[str]:
    """Files of the demo, and processes whose environment says that they are its children."""
    files = [path.name for path in folder.iterdir()]
    mark = f"TMPDIR={folder}".encode()
    return files + [pid for pid in filter(str.isdigit, os.listdir("/proc")) if mark in _environment(pid)]


def _environment(pid: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, or somebody else's
        return []


def test_the_demo_shows_every_fate_and_exits_0_in_under_40_seconds(tmp_path: Path, short_folder: Path) -> None:
    began = time.monotonic()
    done = call(
        "demo", "--no-dashboard", folder=tmp_path, env={"TMPDIR": str(short_folder), "DRUMBEAT_CONCURRENCY": "nonsense"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - began < 40
    assert done.stderr == ""
    summary = dict(re.findall(r"^(\w[\w ]+?) {2,}(\d.* ok) *$", done.stdout, re.MULTILINE))
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
    assert done.stdout.count("no such address") == 3
    assert "sk-demo" not in done.stdout
    assert re.search(
        r"Worker (\w+) \(pid \d+\), killed at page \d+ .* found dead after .*; worker (?!\1)\w+ took", done.stdout
    )
    assert left_behind(short_folder) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_leaves_nothing_behind(
    tmp_path: Path, short_folder: Path, number: signal.Signals, code: int
) -> None:
    with running("demo", folder=tmp_path, env={"TMPDIR": str(short_folder)}) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "jobs enqueued" in line:
                break
        os.kill(demo.pid, number)
        _, err = demo.communicate(timeout=30)
    assert (demo.returncode, err) == (code, "")
    assert left_behind(short_folder) == []


def test_the_workers_of_a_killed_demo_leave_by_themselves(tmp_path: Path, short_folder: Path) -> None:
    with running("demo", folder=tmp_path, env={"TMPDIR": str(short_folder)}) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "jobs enqueued" in line:
                break
        os.kill(demo.pid, signal.SIGKILL)
        demo.wait(30)
    until_sync(lambda: not any(map(str.isdigit, left_behind(short_folder))), deadline=20, what="the end of all workers")
