"""`drumbeat locks`: who holds, who waits, and taking a lock away."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.lock import NewTicket
from drumbeat.store.urls import open_store
from tests.cli.command import invoke, read_refusal

HOUR = 3_600_000_000


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    url = f"sqlite:///{tmp_path}/locks.db"
    monkeypatch.setenv("DRUMBEAT_URL", url)
    asyncio.run(_fill(url))
    return url  # type: ignore[return-value]


async def _fill(url: str) -> None:
    async with await open_store(url) as store:
        for number in range(3):
            ticket = NewTicket(
                id=f"t{number}", lock="sweep", lease=HOUR, owner=f"shop host:{number}", what="job \x1b[31m"
            )
            await store.locks.acquire(ticket)
        await store.locks.acquire(NewTicket(id="r", lock="rate", limit=10, per=1_000_000, lease=HOUR))
        await store.locks.release(["r"])


def shown(*words: str) -> str:
    result = invoke(*words)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def document(*words: str) -> Any:
    return json.loads(shown(*words, "--json"))


def test_locks_are_listed_with_their_holders_and_idle_ones_if_wanted(url: str) -> None:
    text = shown("locks")
    assert "sweep" in text and "1 of 1" in text and "rate" not in text
    assert "10 per 1s" in shown("locks", "list", "--all")
    assert [json.loads(line)["waiting"] for line in shown("locks", "list", "--json").splitlines()] == [2]


def test_a_lock_is_shown_with_its_line_in_order_and_without_control_characters(url: str) -> None:
    text = shown("locks", "show", "sweep")
    assert [text.index(ticket) for ticket in ("t0", "t1", "t2")] == sorted(text.index(f"t{n}") for n in range(3))
    assert "\x1b" not in text
    found = document("locks", "show", "sweep")
    assert [ticket["id"] for ticket in found["waiters"]] == ["t1", "t2"]
    assert found["holders"][0]["token"] < found["waiters"][0]["token"]


def test_a_release_needs_a_reason_and_is_shown_at_the_lock(url: str) -> None:
    assert invoke("locks", "release", "sweep").exit_code == 2
    assert "1 ticket of lock sweep released" in shown("locks", "release", "sweep", "--reason", "stuck")
    assert document("locks", "show", "sweep")["holders"][0]["id"] == "t1"
    assert "stuck" in shown("locks", "show", "sweep")
    assert document("locks", "release", "sweep", "--ticket", "t2", "--reason", "gone") == {
        "lock": "sweep",
        "released": 1,
    }


def test_nothing_to_release_is_reported_and_an_unknown_lock_refused(url: str) -> None:
    result = invoke("locks", "release", "sweep", "--ticket", "unknown", "--reason", "stuck")
    assert (result.exit_code, "there is no such ticket" in result.stderr) == (1, True)
    assert "there is no lock 'nothing'" in read_refusal(invoke("locks", "show", "nothing"))
