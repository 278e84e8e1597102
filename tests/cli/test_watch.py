"""`--watch` and `drumbeat top`: on a terminal, and where there is none."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from drumbeat import Drumbeat
from drumbeat.cli import output
from drumbeat.cli.options import CliTarget
from drumbeat.cli.watch import watch
from drumbeat.core.job import OutcomeKind
from drumbeat.core.stats import Resolution, Rollup
from drumbeat.errors import StoreUnavailable
from drumbeat.store.protocol import Store
from drumbeat.store.urls import open_store
from tests.cli.command import COMMAND_TIMEOUT, invoke, start
from tests.cli.terminal import terminal
from tests.contract import making

SECOND = 1_000_000


def on(url: str, steps: Any) -> Any:
    async def done() -> Any:
        async with await open_store(url) as store:
            return await steps(store)

    return asyncio.run(done())


async def one_more(store: Store) -> None:
    await making.add(store, making.new_job())


@pytest.fixture
def place(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMBEAT_URL", store_url)
    return store_url


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/watched.db"


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "list"],
        ["dead", "list"],
        ["dead", "groups"],
        ["queues", "list"],
        ["tasks", "list"],
        ["tasks", "history", "greet"],
        ["schedules", "list"],
        ["schedules", "history", "nightly"],
        ["instances", "list"],
        ["locks", "list"],
        ["audit", "list"],
        ["explain", "x"],
    ],
    ids=" ".join,
)
def test_whatever_shows_a_list_can_be_watched(words: list[str]) -> None:
    assert "--watch" in invoke(*words, "--help").stdout


def test_a_watched_list_is_drawn_in_place_until_ctrl_c(file: str, tmp_path: Path) -> None:
    on(file, one_more)
    with terminal("queues", "--watch", folder=tmp_path, url=file) as screen:
        screen.wait_for("open")
        on(file, one_more)
        second = screen.wait_for("open", times=3)
        screen.press("\x03")
        assert screen.wait_exit_code() == 130, screen.seen
    assert "\x1b[2J\x1b[H" in second
    assert second.count("\x1b[2J") == 1  # cleared once, then drawn over
    assert "Traceback" not in screen.seen


def test_a_watched_list_in_a_pipe_is_written_again_and_again(file: str, tmp_path: Path) -> None:
    on(file, one_more)
    with start("jobs", "--watch", "--json", folder=tmp_path, env={"DRUMBEAT_URL": file}) as process:
        assert process.stdout is not None
        first, second = json.loads(process.stdout.readline()), json.loads(process.stdout.readline())
        assert first == second
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(COMMAND_TIMEOUT) == 130


async def busy(store: Store) -> str:
    """A worker, a paused queue, a dead letter, and what was counted in the last minute."""
    worker = await making.worker(store, concurrency=4, host="rack\x1b7")
    await making.dead_letter(store, worker)
    job = await making.claimed_one(store, worker)
    await making.end(store, worker, job, OutcomeKind.SUCCEEDED)
    await making.add(store, making.new_job(), making.new_job(queue="mail"))
    await store.jobs.pause_queue("mail", by="ada", reason="")
    at = (await store.inspect.now() // (10 * SECOND) - 2) * 10 * SECOND
    counted = Rollup(
        resolution=Resolution.TEN_SECONDS, at=at, queue="default", task="greet", started=120, succeeded=90, failed=30
    )
    await store.stats.put(worker, [counted])
    return worker


def test_top_shows_everything_once(place: str) -> None:
    worker = on(place, busy)
    result = invoke("top", "--once")
    assert result.exit_code == 0, result.stderr
    text = result.stdout
    assert "2 ready, 0 scheduled, 0 retrying, 0 waiting, 0 running, 1 dead letter\n" in text
    assert "last minute: 2.0 started/s, 1.5 done/s, 0.5 failed/s; 1 instance with 4 slots" in text
    assert worker in text and "0/4" in text
    assert "paused by ada" in text
    assert "ValueError: boom" in text
    assert "\x1b" not in text


def test_top_gives_programs_the_same(place: str) -> None:
    worker = on(place, busy)
    result = invoke("top", "--once", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["rate"] == found["rates"]["default"] == {"started": 2.0, "succeeded": 1.5, "failed": 0.5}
    assert [queue["name"] for queue in found["queues"]] == ["default", "mail"]
    assert [each["id"] for each in found["instances"]] == [worker]
    assert (found["counts"]["ready"], found["counts"]["dead"], found["leader"]) == (2, 1, None)
    assert [group["count"] for group in found["dead_groups"]] == [1]


def test_top_of_an_empty_store_says_so(place: str) -> None:
    result = invoke("top", "--once")
    assert result.exit_code == 0, result.stderr
    assert "No instance is alive." in result.stdout


@pytest.mark.parametrize("keys", ["q", "\x03"], ids=["q", "Ctrl-C"])
def test_top_has_the_screen_until_it_is_ended(file: str, tmp_path: Path, keys: str) -> None:
    on(file, one_more)
    with terminal("top", "--interval", "0.2", folder=tmp_path, url=file) as screen:
        screen.wait_for("1 ready")
        on(file, one_more)
        screen.wait_for("2 ready")
        screen.press(keys)
        assert screen.wait_exit_code() == 0, screen.seen
    assert "Traceback" not in screen.seen


def test_top_in_a_pipe_writes_one_picture_after_the_other(file: str, tmp_path: Path) -> None:
    on(file, one_more)
    words = ("top", "--interval", "0.2", "--json")
    with start(*words, folder=tmp_path, env={"DRUMBEAT_URL": file}) as process:
        assert process.stdout is not None
        first, second = json.loads(process.stdout.readline()), json.loads(process.stdout.readline())
        assert first["at"] < second["at"]
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(COMMAND_TIMEOUT) == 130


def test_a_store_that_goes_away_is_reported_and_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter(["first", StoreUnavailable("the server is away"), "second"])

    async def question(app: Drumbeat) -> str:
        answer = next(answers, None)
        if answer is None:
            raise LookupError("that was all")
        if isinstance(answer, StoreUnavailable):
            raise answer
        return answer  # type: ignore[return-value]

    target = CliTarget()
    target.watch_interval = 0
    with pytest.raises(LookupError):
        asyncio.run(watch(Drumbeat(), target, question, output.print_line))
    shown = capsys.readouterr()
    assert shown.out == "first\n\nsecond\n"
    assert shown.err == "drumbeat: the server is away\n"
