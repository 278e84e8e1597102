"""The hint of a single job: with its commit where nobody else is at it, else right after, and once either way."""

from typing import Any

import pytest

from drumbeat.model.job import NewJob
from drumbeat.store.postgres import PostgresStore
from tests.contract.making import add, new_job
from tests.engines.postgres.conftest import at
from tests.waiting import until

CHANNEL = "drumbeat.wake"
LOCK = "SELECT pg_advisory_lock(hashtextextended('drumbeat.wake', 0))"


async def heard(raw: Any, store: PostgresStore, job: NewJob) -> list[str]:
    """The hints that somebody else hears when this job is added."""
    payloads: list[str] = []
    await raw.add_listener(CHANNEL, lambda _connection, _pid, _channel, payload: payloads.append(payload))
    await add(store, job)
    # What waits is sent first.
    await store.close()
    await raw.execute(f"NOTIFY \"{CHANNEL}\", 'the end'")
    await until(lambda: "the end" in payloads, what="the last hint")
    return payloads[:-1]


@pytest.mark.parametrize("busy", [False, True], ids=["with its commit", "after it, as somebody else tells"])
async def test_a_single_job_is_told_once(url: str, raw: Any, busy: bool) -> None:
    store = await PostgresStore.open(at(url))
    if busy:
        await raw.execute(LOCK)
    assert len(await heard(raw, store, new_job())) == 1


async def test_a_job_that_is_known_is_not_told_again(url: str, raw: Any) -> None:
    store = await PostgresStore.open(at(url))
    job = new_job()
    await add(store, job)
    await until(lambda: store._announcer.voice is not None, what="the end of the first one's burst")
    assert await heard(raw, store, job) == []


async def test_no_hint_travels_with_a_job_while_one_is_under_way(postgres: PostgresStore) -> None:
    assert postgres._announcer.voice is not None
    await add(postgres, new_job())
    assert postgres._announcer.voice is None


async def test_no_hint_travels_with_a_job_where_hints_go_another_way(postgres: PostgresStore) -> None:
    postgres.wake.forward(lambda _due: True)
    assert postgres._announcer.voice is None
