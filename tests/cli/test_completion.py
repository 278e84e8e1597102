"""What a shell offers after TAB: states and names that the store knows; nothing is printed, made or waited for otherwise."""

import asyncio
from pathlib import Path

import pytest

from drumbeat.store.protocol import Store
from drumbeat.store.urls import open_store
from tests.cli.running import call
from tests.contract import making, scheduling


def offered(folder: Path, url: str, *words: str) -> list[str]:
    """What bash gets for a line that ends with the last of these words."""
    env = {
        "_DRUMBEAT_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["drumbeat", *words]),
        "COMP_CWORD": str(len(words)),
        "DRUMBEAT_URL": url,
    }
    done = call(folder=folder, env=env)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


async def furnish(store: Store) -> str:
    await making.worker(store, queues=("mail",), tasks={"greet": "s1", "grow": "s2"})
    await scheduling.put(store, scheduling.new_schedule("nightly"))
    [id] = await making.add(store, making.new_job(queue="main"))
    return id


def test_a_shell_is_offered_states_and_what_the_store_knows(store_url: str, tmp_path: Path) -> None:
    async def furnished() -> str:
        async with await open_store(store_url) as store:
            return await furnish(store)

    id = asyncio.run(furnished())
    assert offered(tmp_path, store_url, "jobs", "list", "--state", "re") == ["ready", "retrying"]
    assert offered(tmp_path, store_url, "queues", "pause", "ma") == ["mail", "main"]
    assert offered(tmp_path, store_url, "jobs", "list", "--task", "gre") == ["greet"]
    assert offered(tmp_path, store_url, "schedules", "pause", "n") == ["nightly"]
    assert offered(tmp_path, store_url, "jobs", "show", id[:8]) == [id]


@pytest.mark.parametrize("url", ["sqlite:///nowhere.db", "redis://127.0.0.1:1/0", "nonsense://x"])
def test_a_store_that_cannot_be_asked_offers_nothing_and_says_nothing(tmp_path: Path, url: str) -> None:
    assert offered(tmp_path, url, "queues", "pause", "m") == []
    assert list(tmp_path.iterdir()) == []
