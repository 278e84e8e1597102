"""The hint of a single job is sent with its commit if there is no other caller, else right after; once either way."""

import asyncio
from typing import Any

import pytest

from drumbeat.core.job import NewJob
from drumbeat.store.postgres import PostgresStore
from tests.contract.making import add, new_job
from tests.engines.postgres.conftest import address_of
from tests.waiting import until

CHANNEL = "drumbeat.wake"
LOCK = "SELECT pg_advisory_lock(hashtextextended('drumbeat.wake', 0))"


async def collect_notifications(raw: Any, store: PostgresStore, job: NewJob) -> list[str]:
    """The hints that other connections get when this job is added."""
    payloads: list[str] = []
    await raw.add_listener(CHANNEL, lambda _connection, _pid, _channel, payload: payloads.append(payload))
    await add(store, job)
    # What waits is sent first.
    await store.close()
    await raw.execute(f"NOTIFY \"{CHANNEL}\", 'the end'")
    await until(lambda: "the end" in payloads, what="the last hint")
    return payloads[:-1]


@pytest.mark.parametrize("busy", [False, True], ids=["with its commit", "after it, beside another notifier"])
async def test_a_single_job_is_notified_once(url: str, raw: Any, busy: bool) -> None:
    store = await PostgresStore.open(address_of(url))
    if busy:
        await raw.execute(LOCK)
    assert len(await collect_notifications(raw, store, new_job())) == 1


async def test_a_duplicate_job_is_not_notified_again(url: str, raw: Any) -> None:
    store = await PostgresStore.open(address_of(url))
    job = new_job()
    await add(store, job)
    await until(
        lambda: store._parts.notifier.sender_for_commit(alone=False) is not None,
        what="the end of the first one's burst",
    )
    assert await collect_notifications(raw, store, job) == []


async def test_in_a_burst_of_several_calls_no_hint_travels_with_a_job(postgres: PostgresStore) -> None:
    assert postgres._parts.notifier.sender_for_commit(alone=False) is not None
    await add(postgres, new_job())
    postgres._parts.notifier.notify(0, sent=True)
    assert postgres._parts.notifier.sender_for_commit(alone=False) is None
    assert postgres._parts.notifier.sender_for_commit(alone=True) is not None, "a lone caller has no burst to join"


async def test_no_hint_travels_with_a_job_where_hints_go_another_way(postgres: PostgresStore, url: str) -> None:
    async with await PostgresStore.open(address_of(url), forward=lambda _due: True) as store:
        assert store._parts.notifier.sender_for_commit(alone=True) is None


@pytest.mark.parametrize("busy", [False, True], ids=["", "beside another notifier"])
@pytest.mark.parametrize("calls", [[1], [600], [1, 1, 1], [2, 600, 1]], ids=str)
async def test_a_call_has_sent_its_hint_when_its_loop_is_stopped_with_its_end(
    url: str, raw: Any, calls: list[int], busy: bool
) -> None:
    """`run_until_complete` for each call: what is left to a task in the background waits for the next one."""
    loop = asyncio.new_event_loop()
    store = await asyncio.to_thread(loop.run_until_complete, PostgresStore.open(address_of(url)))
    payloads: list[str] = []
    await raw.add_listener(CHANNEL, lambda _connection, _pid, _channel, payload: payloads.append(payload))
    if busy:
        await raw.execute(LOCK)

    async def call() -> None:
        async with asyncio.TaskGroup() as group:
            for count in calls:
                group.create_task(store.jobs.add([new_job() for _ in range(count)]))

    for number in range(5):
        payloads.clear()
        await asyncio.to_thread(loop.run_until_complete, call())
        assert [task.get_name() for task in asyncio.all_tasks(loop)] == [], "nothing is left behind"
        await until(lambda: payloads, deadline=2, what=f"the hint of call {number}")
    await asyncio.to_thread(loop.run_until_complete, store.close())
    loop.close()
