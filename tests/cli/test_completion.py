"""What a shell offers after TAB: states and names that the store knows; nothing is printed, made or waited for otherwise."""

import asyncio
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from drumbeat.cli.program import COMPLETION_VARIABLE, program
from drumbeat.store.protocol import Store
from drumbeat.store.urls import open_store
from tests.cli.command import call
from tests.contract import making, scheduling


def offered(*words: str) -> list[str]:
    """What a shell gets for a line that ends with the last of these words."""
    found = ShellComplete(program, {}, "drumbeat", COMPLETION_VARIABLE).get_completions(list(words[:-1]), words[-1])
    return [item.value for item in found]


def offered_by_bash(folder: Path, url: str, *words: str) -> list[str]:
    """The same by a process of its own, as bash has it."""
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


def test_a_shell_is_offered_states_and_what_the_store_knows(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMBEAT_URL", store_url)

    async def furnished() -> str:
        async with await open_store(store_url) as store:
            return await furnish(store)

    id = asyncio.run(furnished())
    assert offered("jobs", "list", "--state", "re") == ["ready", "retrying"]
    assert offered("queues", "pause", "ma") == ["mail", "main"]
    assert offered("jobs", "list", "--task", "gre") == ["greet"]
    assert offered("schedules", "pause", "n") == ["nightly"]
    assert offered("jobs", "show", id[:8]) == [id]
    assert offered("glossary", "dead") == ["dead letter"]


@pytest.mark.parametrize("url", ["sqlite:///nowhere.db", "redis://127.0.0.1:1/0", "nonsense://x"])
def test_a_store_that_cannot_be_asked_offers_nothing_and_says_nothing(tmp_path: Path, url: str) -> None:
    assert offered_by_bash(tmp_path, url, "queues", "pause", "m") == []
    assert list(tmp_path.iterdir()) == []
