"""`drumbeat limits` and `drumbeat groups`: what may run, who waits, and changes on record. On every engine."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.limits import Bounds
from drumbeat.store.urls import open_store
from tests.cli.command import invoke, read_refusal
from tests.contract.lanes import add_jobs, declare, take
from tests.contract.making import worker

MINUTE = 60_000_000


@pytest.fixture
def place(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMBEAT_URL", store_url)
    asyncio.run(_fill(store_url))


async def _fill(url: str) -> None:
    async with await open_store(url) as store:
        instance = await worker(store)
        await declare(store, each=Bounds(2, 100, MINUTE), whole=Bounds(30))
        await declare(store, "", queue="mail", fair=True, weights={"big": 3})
        await add_jobs(store, "tenant:7", 5)
        await add_jobs(store, "\x1b[31m", 1)
        await add_jobs(store, "big", 1, line="", queue="mail")
        await take(store, instance)


def shown(*words: str) -> str:
    result = invoke(*words)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def document(*words: str) -> Any:
    return json.loads(shown(*words, "--json"))


def records(*words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shown(*words, "--json").splitlines()]


@pytest.mark.usefixtures("place")
def test_limits_are_listed_and_shown() -> None:
    text = shown("limits")
    assert "30 at once, 2 at once per group, 100 per 1m per group" in text
    assert [line["fair"] for line in records("limits", "list")] == [False, True]
    text = shown("limits", "show", "default", "--task", "greet")
    assert "running" in text and "3" in text
    assert "big 3" in shown("limits", "show", "mail")
    assert document("limits", "show", "mail")["weights"] == {"big": 3}


@pytest.mark.usefixtures("place")
def test_groups_are_listed_of_a_line_of_a_queue_and_the_busiest_of_all() -> None:
    text = shown("groups", "default", "--task", "greet")
    assert "tenant:7" in text and "2 of 2" in text and "2 of 100 per 1m" in text
    assert "\x1b" not in text and "\\x1b[31m" in text
    assert {each["group"] for each in records("groups", "default")} == {"tenant:7", "\x1b[31m"}
    assert [each["group"] for each in records("groups", "mail")] == ["big"]
    assert [each["group"] for each in records("groups", "default", "--task", "greet", "--after", "a")] == ["tenant:7"]
    busiest = records("groups", "--limit", "2")
    assert (busiest[0]["group"], busiest[0]["waiting"], busiest[0]["running"]) == ("tenant:7", 3, 2)
    assert "The first 1;" in shown("groups", "default", "--limit", "1")


@pytest.mark.usefixtures("place")
def test_limits_are_set_and_reset_on_record() -> None:
    text = shown(
        *("limits", "set", "default", "--task", "greet", "--concurrency", "9", "--group-rate", "10/1s"),
        *("--fair", "--reason", "a calm day"),
    )
    assert text == "Limits of task greet in queue default: 9 at once, 10 per 1s per group; its groups take turns.\n"
    act = records("audit", "list", "--limit", "1")[0]
    assert (act["verb"], act["target"], act["touched"], act["outcome"], act["reason"]) == (
        "limits.set",
        "task greet in queue default",
        1,
        "done",
        "a calm day",
    )
    text = shown("limits", "show", "default", "--task", "greet")
    assert "30 at once" in text and "a calm day" in text
    assert "those of the code again" in shown("limits", "reset", "default", "--task", "greet")
    assert document("limits", "reset", "default", "--task", "greet") == {
        "queue": "default",
        "task": "greet",
        "reset": False,
    }
    assert document("limits", "set", "default", "--task", "greet", "--unlimited")["limits"] == []


@pytest.mark.usefixtures("place")
def test_a_group_gets_limits_of_its_own_and_loses_them_on_record() -> None:
    text = shown(
        *("limits", "set-group", "default", "tenant:7", "--task", "greet", "--concurrency", "9", "--weight", "3"),
        *("--reason", "they pay"),
    )
    assert text == "Group tenant:7: 9 at once per group, weight 3.\n"
    act = records("audit", "list", "--limit", "1")[0]
    assert (act["verb"], act["target"], act["reason"]) == (
        "limits.set_group",
        "task greet in queue default group tenant:7",
        "they pay",
    )
    assert "limits and weight" in shown("groups", "default")
    assert "like the others again" in shown("limits", "reset-group", "default", "tenant:7", "--task", "greet")
    assert "was no exception" in shown("limits", "reset-group", "default", "tenant:7", "--task", "greet")


@pytest.mark.usefixtures("place")
def test_what_cannot_be_is_refused_in_one_line() -> None:
    for words, reason in (
        (("limits", "set", "mail"), "which limits? Add --concurrency"),
        (("limits", "set", "mail", "--concurrency", "0"), "concurrency must be at least 1, not 0"),
        (("limits", "set", "mail", "--rate", "100"), "'100' is no rate: write 100/1m"),
        (("limits", "set", "mail", "--rate", "5/x"), "'5/x' is no rate"),
        (("limits", "set", "mail", "--rate", "5/1s", "--unlimited"), "contradict"),
        (("limits", "set", "male", "--concurrency", "1"), "there are task greet in queue default, queue mail"),
        (("limits", "set-group", "mail", "big"), "which limits? Add --concurrency"),
        (("limits", "set-group", "mail", "big", "--weight", "101"), "weight must be a whole number from 1 to 100"),
        (("limits", "set-group", "mail", "x" * 201, "--weight", "1"), "is not valid: use text of 1 to 200"),
        (("groups", "male"), "queue male has no limits"),
        (("groups", "--task", "greet"), "--task and --after need a QUEUE"),
    ):
        assert reason in read_refusal(invoke(*words)), words


def test_without_limits_there_is_a_line_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMBEAT_URL", f"sqlite:///{tmp_path}/empty.db")
    shown("migrate")
    assert "No limit is declared" in shown("limits")
    assert "No group has jobs" in shown("groups")
