"""Every example runs as its own text says."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.core.job import JobState
from tests.cli.command import build_environment, call, start
from tests.servers.redis import RedisServer
from tests.waiting import until_sync

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the examples, so that their databases are made elsewhere."""
    for file in EXAMPLES.glob("*.py"):
        shutil.copy(file, tmp_path / file.name)
    return tmp_path


def python(*words: str, folder: Path, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=build_environment(**environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


KILLED = ("billing.py", "billing_exactly_once.py")
"""Those that kill their own workers: tests/system plays them, with more kills, on a file and on PostgreSQL."""


def test_no_example_is_forgotten() -> None:
    tested = Path(__file__).read_text(encoding="utf-8")
    assert [file.name for file in EXAMPLES.glob("*.py") if f'"{file.name}"' not in tested] == []


def test_hello(folder: Path) -> None:
    with start("run", "hello:app", folder=folder) as worker:
        assert python("hello.py", folder=folder) == "Hello, world!\n"
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(30) == 0


def test_orders(folder: Path) -> None:
    lines = python("orders.py", folder=folder).splitlines()
    progress = next(line for line in lines if line.startswith("progress"))
    assert progress in [f'progress: "{step}"' for step in ("packed", "labelled", "handed over")]
    recorded = [int(line.split()[1]) for line in lines if line.startswith("recorded")]
    assert sum(recorded) == 250
    assert max(recorded) > 1
    told = [line for line in lines if not line.startswith(("recorded", "progress"))]
    # The two words about the death come from two jobs, in either order.
    assert sorted(told[3:5]) == [
        'charge {"order":2,"amount":"5","card":"stolen"} is a dead letter: the card was reported stolen',
        "order 2: the card was reported stolen",
    ]
    assert told[:3] + told[5:] == [
        "order 1: 9.90 charged at attempt 3",
        "reminders cancelled: 1",
        "shipped once: True False",
        "discarded: 1",
    ]


@pytest.mark.parametrize("name", KILLED)
def test_what_kills_its_own_workers_is_played_elsewhere(name: str) -> None:
    played = [file.read_text(encoding="utf-8") for file in (EXAMPLES.parent / "tests" / "system").glob("test_*.py")]
    assert sum(f'"examples" / "{name}"' in text for text in played) == 1


def test_maintenance(folder: Path) -> None:
    assert (folder / "maintenance.py").exists()
    with start("run", "maintenance:app", folder=folder) as worker:
        until_sync(lambda: len(asyncio.run(declared(folder))) == 9, deadline=30)
        names = [each["name"] for each in schedules(folder)]
        jobs = [call("schedules", "run-now", name, folder=folder).stdout.strip() for name in names]
        until_sync(lambda: asyncio.run(have_succeeded(folder, jobs)), deadline=30)
        assert set(jobs) <= succeeded(folder)
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(30) == 0
    assert [each["schedule"] for each in listed("schedules", "history", "heartbeats", folder=folder)][-1:] == [
        "heartbeats"
    ]


async def declared(folder: Path) -> list[Any]:
    """Asked without a process, of which each look would start one."""
    async with Drumbeat(f"sqlite:///{folder / 'drumbeat.db'}") as app:
        return await app.schedules.list()


async def have_succeeded(folder: Path, jobs: list[str]) -> bool:
    async with Drumbeat(f"sqlite:///{folder / 'drumbeat.db'}") as app:
        return all([(await app.jobs.show(id)).state is JobState.SUCCEEDED for id in jobs])


def schedules(folder: Path) -> list[dict[str, Any]]:
    return listed("schedules", "list", folder=folder)


def succeeded(folder: Path) -> set[str]:
    return {job["id"] for job in listed("jobs", "list", "--state", "succeeded", folder=folder)}


def listed(*words: str, folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in call(*words, "--json", folder=folder).stdout.splitlines()]


def test_price_pipeline(folder: Path) -> None:
    counts, moments, fires = python("price_pipeline.py", "7", folder=folder).splitlines()
    found = re.fullmatch(r"(\d+) sweeps, (\d+) calls, (\d+) workers killed", counts)
    assert found is not None and int(found[1]) >= 2 and int(found[2]) > 20 and int(found[3]) >= 3
    assert moments == "at the same time: at most 1 sweep, at most 2 calls"
    told = re.fullmatch(r"(\d+) fires of the schedule, on a grid of 3 s, each once", fires)
    assert told is not None and int(told[1]) >= 1


def test_order_fulfilment(folder: Path, store_url: str) -> None:
    """Each order is killed at each of eight places, and charged once."""
    begun, *told = python("order_fulfilment.py", "2", folder=folder, DRUMBEAT_URL=store_url).splitlines()
    assert begun == "2 orders: each is killed at eight places, one after another ..."
    assert told[-1] == "2 orders, killed 16 times: 2 charges, 2 parcels"
    assert sorted(told[:-1]) == [
        f"order {number}: receipt {number}, approved by ann, parcel {number} from shelf {number}" for number in (1, 2)
    ] or {line.split(":")[0] for line in told[:-1]} == {"order 1", "order 2"}


def test_triggers(folder: Path, store_url: str) -> None:
    # Its instant leaves time for thousands, on a slow machine.
    script = folder / "triggers.py"
    text = script.read_text(encoding="utf-8")
    assert "seconds=6 + " in text
    script.write_text(text.replace("seconds=6 + ", "seconds=3 + "), encoding="utf-8")
    with RedisServer() as broker:
        told = python("triggers.py", "1000", folder=folder, REDIS_URL=broker.url, DRUMBEAT_URL=store_url)
    counts, verdict = told.splitlines()
    assert re.fullmatch(r"1000 triggers, 100 cancelled, 900 sent in \d+\.\d s", counts), told
    assert verdict == "0 missing, 0 twice, 0 that were not due"


# --- the dashboard inside of other programs ---


@contextmanager
def site(*words: str, folder: Path) -> Iterator[httpx.Client]:
    """A browser at an example that serves; ended at the end, though an event stream may be open."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # The examples have a port that people can remember.
    script = folder / words[0]
    script.write_text(script.read_text(encoding="utf-8").replace("port=8000", f"port={port}"), encoding="utf-8")
    with (
        subprocess.Popen([sys.executable, *words], cwd=folder, env=build_environment()) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as browser,
    ):
        try:
            until_sync(lambda: answers(browser), deadline=40, what=f"an answer of {words}")
            yield browser
        finally:
            process.terminate()
            process.wait(30)


def answers(browser: httpx.Client) -> bool:
    try:
        return browser.get("/").status_code > 0
    except httpx.TransportError:
        return False


SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
PAUSE = "api/v1/queues/default/pause"


@pytest.mark.parametrize("words", [["mounted.py"], ["mounted.py", "fastapi"]], ids=["starlette", "fastapi"])
def test_mounted(folder: Path, words: list[str]) -> None:
    with site(*words, folder=folder) as browser:
        assert browser.get("/admin/jobs/").status_code == 401
        queued = browser.get("/", auth=("ada", "ada")).text.split()[1]
        page = browser.get(queued, auth=("ada", "ada"))
        assert (page.status_code, "greet" in page.text) == (200, True)
        links = re.findall(r'(?:href|src)="(/[^"]*)"', page.text)
        assert links and all(link.startswith("/admin/jobs/") for link in links)
        for name, status in (("grace", 403), ("ada", 200)):
            paused = browser.post(f"/admin/jobs/{PAUSE}", json={}, auth=(name, name), headers=SAME_ORIGIN)
            assert paused.status_code == status, paused.text
        [act] = browser.get("/admin/jobs/api/v1/audit", auth=("grace", "grace")).json()["items"]
        assert (act["who"], act["verb"]) == ("ada", "queues.pause")


def test_mounted_django(folder: Path) -> None:
    with site("mounted_django.py", folder=folder) as browser:
        assert browser.get("/jobs/api/v1/queues").status_code == 401
        for name, status in (("grace", 403), ("ada", 200)):
            browser.cookies.clear()
            form = browser.get("/admin/login/").text
            token = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', form)[0]
            entered = {"csrfmiddlewaretoken": token, "username": name, "password": name, "next": "/jobs"}
            assert browser.post("/admin/login/", data=entered).headers["location"] == "/jobs"
            page = browser.get("/jobs", headers={"Accept": "text/html"})
            assert (page.status_code, f"{name} · " in page.text) == (200, True)
            assert browser.post(f"/jobs/{PAUSE}", json={}, headers=SAME_ORIGIN).status_code == status
        assert browser.get("/jobs/api/v1/queues/default").json()["paused_by"] == "ada"


def test_fan_out(folder: Path, store_url: str) -> None:
    told = python("fan_out.py", "2000", folder=folder, DRUMBEAT_URL=store_url).splitlines()
    assert re.fullmatch(r"2001 jobs stored in [\d.]+ s", told[0])
    assert re.fullmatch(r"99000 words, [\d.]+ s after the beginning; one worker was killed", told[1])
    assert told[2:] == ["as expected"]


def test_canvas_thumbnails(folder: Path) -> None:
    assert python("canvas_thumbnails.py", folder=folder).splitlines() == [
        "published /pictures/cat-100.png /pictures/cat-200.png /pictures/cat-400.png",
        "3 thumbnails",
    ]


def test_canvas_report(folder: Path) -> None:
    told = python("canvas_report.py", folder=folder).splitlines()
    assert told == ["failed: the office in the east is closed", "140 in all, of 3 regions"]


def test_canvas_import(folder: Path) -> None:
    assert python("canvas_import.py", folder=folder).splitlines() == [
        "extracting 2026-11-18",
        "load was cancelled: its parent ... (task transform) died",
        "loaded [10, 20, 30]",
    ]
