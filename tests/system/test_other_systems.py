"""macOS and Windows, as far as Linux can show them: what they lack is taken away from Python, in processes of their own."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from drumbeat.app import Drumbeat
from drumbeat.core.job import JobState
from tests.apps import chains
from tests.cli.command import build_environment, call
from tests.system.workers import ROOT, cluster_of

APPS = ROOT / "tests" / "apps"
PATH = os.pathsep.join(map(str, (APPS / "macos", ROOT / "src", ROOT)))
LACKS = "import os, fcntl; print(hasattr(os, 'waitid'), hasattr(fcntl, 'F_SETSIG'), os.listdir('/proc'))"


def test_the_simulation_takes_away_what_macos_lacks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LACKS.replace("os.listdir('/proc')", "0")],
        env=build_environment(PYTHONPATH=PATH),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False False 0\n"
    failed = subprocess.run(
        [sys.executable, "-c", LACKS],
        env=build_environment(PYTHONPATH=PATH),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "FileNotFoundError" in failed.stderr


def test_the_demo_runs_on_macos() -> None:
    done = call("demo", "--no-dashboard", folder=ROOT, env={"PYTHONPATH": PATH})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


async def test_a_supervisor_replaces_a_killed_worker_on_macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster_of(tmp_path, "tests.apps.chains", monkeypatch) as (cluster, app):
        async with app:
            killed = await chains.kill_once.enqueue(str(tmp_path / "marker"))
            apart = await chains.apart.enqueue()
            supervisor = cluster.start("--burst", "--processes", "2", "--max-memory", "2GB", PYTHONPATH=PATH)
            assert supervisor.wait(60) == 0, cluster.logs()
            found = await killed.job()
            assert (found.state, found.crashes, found.failures) == (JobState.SUCCEEDED, 1, 0)
            assert (await apart.job()).state is JobState.SUCCEEDED


def take_lock(folder: Path, *words: str, boot: str) -> "subprocess.Popen[str]":
    environ = build_environment(
        PYTHONPATH=PATH, TEST_BOOT=boot, DRUMBEAT_URL=f"sqlite:///{folder}/jobs.db", DRUMBEAT_LOCK_RENEW="100"
    )
    process = subprocess.Popen(
        [sys.executable, APPS / "macos_lock.py", *words], cwd=folder, env=environ, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process


def test_a_lock_does_not_outlive_a_reboot_of_macos(tmp_path: Path) -> None:
    """Its lease of ten minutes would hold for another process of the same boot."""
    with take_lock(tmp_path, "stay", boot="before") as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "taken\n"
        holder.kill()
    for boot, answer in (("before", "not free\n"), ("after", "taken\n")):
        with take_lock(tmp_path, boot=boot) as next_one:
            assert (next_one.communicate(timeout=60)[0], next_one.returncode) == (answer, 0)


async def python_of_windows(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        APPS / "windows" / "without_posix.py",
        *words,
        env=build_environment(USERNAME="somebody"),
        stdout=subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


@pytest.mark.parametrize("engine", ["postgres", "valkey"])
async def test_a_program_on_windows_enqueues_and_waits_for_results(store_url: str) -> None:
    app = Drumbeat(store_url)

    @app.task
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    async with app, asyncio.TaskGroup() as group, asyncio.timeout(60):
        worker = group.create_task(app.serve(), name="worker")
        assert await python_of_windows(store_url, "async", "sync") == "Hello, Windows!\n" * 2
        worker.cancel()


async def test_what_windows_cannot_do_is_refused_in_one_line(tmp_path: Path) -> None:
    told = await python_of_windows(f"sqlite:///{tmp_path}/jobs.db", "async")
    assert (
        told
        == "ConfigError: SQLite stores need Linux, macOS or another POSIX system: on Windows, use PostgreSQL or Redis\n"
    )
    told = await python_of_windows("redis://127.0.0.1:1", "run", "serve")
    line = "ConfigError: workers need Linux, macOS or another POSIX system: on Windows, run them in WSL or in a container\n"
    assert told == line * 2
