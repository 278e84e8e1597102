"""The example project, as its own text says: migrated, served, and worked for by `manage.py`, with a database of PostgreSQL."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
import pytest

from drumbeat import Drumbeat
from drumbeat.errors import UnknownTask
from tests.cli.command import build_environment
from tests.conftest import SERVERS
from tests.meta.project import ROOT
from tests.servers.ports import free_port
from tests.servers.postgres import Databases
from tests.waiting import until_sync

EXAMPLE = ROOT / "examples" / "django_shop"
USERS = """
from django.contrib.auth import get_user_model
people = get_user_model().objects
people.create_superuser("ada", password="ada")
people.create_user("grace", password="grace", is_staff=True)
people.create_user("eve", password="eve")
"""


class Shop:
    """The project in a folder of its own."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder = folder / "shop"
        shutil.copytree(EXAMPLE, self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        self.environment = build_environment()
        if url is not None:
            parts = urlsplit(url)
            self.environment |= {
                "PGDATABASE": parts.path[1:],
                "PGUSER": str(parts.username),
                "PGPASSWORD": unquote(str(parts.password)),
                "PGHOST": str(parts.hostname),
                "PGPORT": str(parts.port),
            }

    def manage(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @contextmanager
    def start(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [sys.executable, *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def change(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")


def answers(browser: httpx.Client) -> bool:
    try:
        return browser.get("/orders/").status_code == 200
    except httpx.TransportError:
        return False


def log_in(browser: httpx.Client, name: str) -> httpx.Response:
    browser.cookies.clear()
    form = browser.get("/admin/login/").text
    token = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', form)[0]
    entered = {"csrfmiddlewaretoken": token, "username": name, "password": name, "next": "/jobs/"}
    return browser.post("/admin/login/", data=entered)


def test_the_example_works_as_it_says(tmp_path: Path) -> None:
    shop = Shop(tmp_path, empty_postgres())
    migrated = shop.manage("migrate")
    assert migrated.returncode == 0, migrated.stderr
    assert shop.manage("shell", "-c", USERS).returncode == 0
    port = free_port()
    with (
        shop.start("-m", "uvicorn", "shop.asgi:application", "--port", str(port), "--log-level", "error"),
        shop.start("manage.py", "drumbeat", "run", "--log-level", "error") as worker,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as browser,
    ):
        until_sync(lambda: answers(browser), deadline=60, what="the site")
        assert browser.post("/orders/", data={"item": "milk", "unpaid": "yes"}).status_code == 500
        assert browser.post("/orders/", data={"item": "tea"}).status_code == 200
        done = [{"item": "tea", "state": "shipped", "thanked": True}]
        until_sync(lambda: browser.get("/orders/").json()["orders"] == done, deadline=60, what="the order, shipped")

        page = {"Accept": "text/html"}
        assert browser.get("/jobs/api/v1/queues").status_code == 401
        assert browser.get("/jobs/?a=b", headers=page).headers["location"] == "/admin/login/?next=%2Fjobs%2F%3Fa%3Db"
        for name, looks, acts in (("eve", 302, 401), ("grace", 200, 403), ("ada", 200, 200)):
            log_in(browser, name)
            assert browser.get("/jobs/", headers=page).status_code == looks, name
            headers = {"Sec-Fetch-Site": "same-origin"}
            assert browser.post("/jobs/api/v1/queues/default/pause", json={}, headers=headers).status_code == acts, name
        assert browser.get("/jobs/api/v1/queues/default").json()["paused_by"] == "ada"

        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(40) == 0
    listed = shop.manage("drumbeat", "jobs", "list", "--json").stdout
    assert sorted(re.findall(r'"task":\s*"([\w.]+)"', listed)) == ["orders.tasks.thank", "ship"]


def empty_postgres() -> str:
    """A database in which `manage.py migrate` must make every table."""
    databases = SERVERS["postgres"]
    assert isinstance(databases, Databases)
    return asyncio.run(databases.server.create_database("django_shop"))


# --- development ---


def test_a_worker_with_reload_takes_new_code_and_survives_a_mistake(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    assert shop.manage("migrate", "--verbosity", "0").returncode == 0
    client = Drumbeat(f"sqlite:///{shop.folder}/shop.db").sync

    def is_served() -> bool:
        return any("count" in each.tasks for each in client.instances.list())

    def count() -> object:
        try:
            return client.jobs.enqueue("count", {"state": "taken"}).result(timeout=60)
        except UnknownTask:  # no worker is there while it restarts
            return None

    with shop.start("manage.py", "drumbeat", "run", "--reload", "--log-level", "error") as keeper:
        until_sync(is_served, deadline=60, what="the worker")
        assert count() == 0
        shop.change("orders/tasks.py", "return await Order.objects.filter(state=state).acount()", "return 42")
        until_sync(lambda: count() == 42, deadline=60, what="the new code")
        shop.change("orders/tasks.py", "return 42", "return (")
        until_sync(lambda: not is_served(), deadline=60, what="the end of the worker")
        shop.change("orders/tasks.py", "return (", "return 43")
        until_sync(is_served, deadline=60, what="the worker")
        until_sync(lambda: count() == 43, deadline=60, what="the repaired code")
        os.kill(keeper.pid, signal.SIGTERM)
        assert keeper.wait(40) == 0
    client.close()


# --- bad input ---


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("shop/settings.py", "DRUMBEAT = ", "OTHER = ", "settings.DRUMBEAT is missing: add DRUMBEAT"),
        (
            "shop/settings.py",
            '"database": "default"',
            '"URL": "x"',
            "settings.DRUMBEAT has no key 'URL'; did you mean 'url'?",
        ),
        (
            "shop/settings.py",
            '"database": "default", "name": "shop"',
            '"app": "nowhere:app"',
            "there is no module 'nowhere'",
        ),
        ("orders/tasks.py", "@app.task\ndef", "@app.tusk\ndef", "module 'orders.tasks' cannot be imported: "),
    ],
)
def test_a_mistake_is_told_in_one_line(tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    shop = Shop(tmp_path)
    shop.change(file, old, new)
    told = shop.manage("drumbeat", "tasks", "list")
    assert (told.returncode, len(told.stderr.splitlines())) == (2, 1), told.stderr
    assert told.stderr.startswith(f"drumbeat: {said}"), told.stderr
