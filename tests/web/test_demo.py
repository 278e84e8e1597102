"""`drumbeat demo` at a terminal stays for a person: its buttons are pressed, each does what it says, and is on record.

Then comes Ctrl-C, after which it exits with 0, whatever was pressed, and leaves nothing behind.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.terminal import terminal
from tests.cli.test_demo import left_behind
from tests.waiting import until_sync
from tests.web.conftest import SAME_ORIGIN

BUTTONS = {"success", "delayed", "transient", "permanent", "long", "burst", "kill", "clear"}


class Demo:
    """A demo after its play, seen by somebody with a browser."""

    def __init__(self, address: str) -> None:
        self.browser = httpx.Client(base_url=address, headers=SAME_ORIGIN, timeout=30)

    def press(self, name: str) -> Any:
        answer = self.browser.post(f"/api/v1/demo/{name}", json={})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def get(self, path: str) -> Any:
        answer = self.browser.get(f"/api/v1/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def job_of(self, pressed: Any) -> str:
        found = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", pressed["message"])
        assert found is not None, pressed
        return found[0]

    def job(self, id: str) -> Any:
        return self.get(f"jobs/{id}")

    def becomes(self, id: str, state: str) -> Any:
        until_sync(lambda: self.job(id)["state"] == state, deadline=20, what=f"job {id} {state}")
        return self.job(id)


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    with (
        tempfile.TemporaryDirectory(prefix="d-") as folder,
        terminal("demo", folder=Path(folder), env={"TMPDIR": folder}) as screen,
    ):
        shown = screen.wait_for("Ctrl-C ends it")
        assert "Everything ended as expected" in shown
        made = Demo(re.findall(r"http://127\.0\.0\.1:\d+", shown)[0])
        yield made
        made.browser.close()
        screen.press("\x03")
        screen.wait_for("Stopping the workers")
        assert screen.wait_exit_code() == 0, screen.seen[-2000:]
        assert left_behind(Path(folder)) == []


@pytest.fixture(scope="module", autouse=True)
def pressed_before(demo: Demo) -> Any:
    """The job of "delayed" as it was at once: its ten seconds pass while others are tested."""
    return demo.job(demo.job_of(demo.press("delayed")))


def test_the_overview_has_all_buttons(demo: Demo) -> None:
    page = demo.browser.get("/").text
    assert set(re.findall(r'data-press="/api/v1/demo/(\w+)"', page)) == BUTTONS - {"clear"}
    assert 'data-test="act-clear"' in page  # it asks first


def test_success_succeeds_at_once(demo: Demo) -> None:
    job = demo.becomes(demo.job_of(demo.press("success")), "succeeded")
    assert (job["task"], job["attempt"]) == ("greet", 1)


def test_transient_fails_twice_and_then_succeeds(demo: Demo) -> None:
    id = demo.job_of(demo.press("transient"))
    assert demo.becomes(id, "succeeded")["failures"] == 2
    assert len(demo.get(f"jobs/{id}/attempts")["items"]) == 3


def test_permanent_becomes_a_dead_letter_that_shows_no_secret(demo: Demo) -> None:
    job = demo.becomes(demo.job_of(demo.press("permanent")), "dead")
    assert (job["failures"], job["error"]["message"]) == (3, "no such address: '1 Nowhere Lane'")
    assert "sk-demo" not in demo.browser.get(f"/jobs/{job['id']}").text


def test_a_killed_worker_is_replaced_and_its_job_runs_again(demo: Demo) -> None:
    before = {each["id"]: each["pid"] for each in demo.get("instances")["items"]}
    assert len(before) == 2
    id = demo.job_of(demo.press("long"))
    owner = until_sync(lambda: demo.job(id)["instance"], what="a worker for the long job")
    said = demo.press("kill")["message"]
    assert said.startswith(f"kill -9 {before[owner]}: worker {owner} is gone")
    until_sync(lambda: not is_there(before[owner]), what="its death")
    assert demo.becomes(id, "succeeded")["crashes"] == 1
    after = until_sync(lambda: living(demo, 2), deadline=20, what="another worker")
    assert len(after - before.keys()) == 1 and owner not in after


def test_delayed_waits_for_its_moment(demo: Demo, pressed_before: Any) -> None:
    assert pressed_before["view"] == "scheduled"
    job = demo.becomes(pressed_before["id"], "succeeded")
    assert job["started_at"] >= job["due_at"]


def is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def living(demo: Demo, size: int) -> set[str]:
    found = {each["id"] for each in demo.get("instances")["items"]}
    return found if len(found) == size else set()


def test_a_burst_is_ten_thousand_jobs_and_clear_leaves_none_of_them(demo: Demo) -> None:
    burst = demo.press("burst")
    assert burst["touched"] == 10_000
    counts = demo.get("jobs/counts?task=resize")
    assert sum(counts[word] for word in ("ready", "running", "succeeded")) >= 10_000
    assert demo.press("clear")["touched"] > 10_000
    # The schedule of the demo goes on.
    left = until_sync(lambda: without_tidy(demo), deadline=20, what="an empty store")
    assert left == "nothing"
    assert demo.get("dead")["items"] == []


def without_tidy(demo: Demo) -> str:
    tasks = {job["task"] for job in demo.get("jobs?limit=500")["items"]}
    return "nothing" if tasks <= {"tidy"} else ""


def test_what_is_pressed_is_on_record(demo: Demo) -> None:
    for name in ("success", "delayed", "kill", "clear"):
        pressed = demo.press(name)
        act = demo.get(f"audit?verb=demo.{name}&limit=1")["items"][0]
        assert (act["who"], act["via"], act["outcome"]) == ("local", "api", "done")
        assert act["touched"] == pressed["touched"]


def test_a_page_of_another_site_presses_nothing(demo: Demo) -> None:
    answer = demo.browser.post("/api/v1/demo/clear", json={}, headers={"Sec-Fetch-Site": "cross-site"})
    assert (answer.status_code, answer.json()["type"]) == (403, "origin")
