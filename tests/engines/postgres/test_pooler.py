"""`?pooler=transaction`: everything works without a session of one's own, by polling instead of LISTEN.

With PgBouncer where the machine has it; without it the same calls go to the server itself.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from drumbeat import Drumbeat
from drumbeat.core.job import OutcomeKind, Unique
from drumbeat.core.job_query import JobFilter
from drumbeat.core.schedule import Overlap
from drumbeat.ids import new_job_ids
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.postgres import PostgresStore
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Subscriber
from tests.contract.making import HOUR, add, claim, claimed_one, end, exchange, new_job, outcome, wanting, worker
from tests.contract.scheduling import after, fire, got, new_schedule, put
from tests.engines.postgres.conftest import address_of
from tests.servers.pgbouncer import PROGRAM, PgBouncer
from tests.servers.postgres import PostgresServer


@pytest.fixture
def pooled_url(server: PostgresServer, url: str) -> Iterator[str]:
    if PROGRAM is None:
        yield f"{url}?pooler=transaction"
        return
    with PgBouncer(server) as pooler:
        yield pooler.url_of(url.rpartition("/")[2])


@pytest.fixture
async def pooled(pooled_url: str) -> AsyncIterator[PostgresStore]:
    async with await PostgresStore.open(address_of(pooled_url)) as store:
        yield store


async def test_a_whole_life_of_jobs(pooled: PostgresStore) -> None:
    instance = await worker(pooled)
    ids = await add(pooled, *(new_job() for _ in range(4)))
    done, retried, dead, parked = await claim(pooled, instance)
    statuses = await exchange(
        pooled,
        instance,
        [
            outcome(done, OutcomeKind.SUCCEEDED, result="1"),
            outcome(retried, OutcomeKind.RETRY, delay=HOUR),
            outcome(dead, OutcomeKind.DEAD, follow_up=new_job("mourn")),
            outcome(parked, OutcomeKind.BLOCKED, blocked_on="task:x", started_at=None),
        ],
        wanting(wants=["task:x"]),
    )
    assert statuses.statuses == ["applied"] * 4
    assert sorted(job.task for job in statuses.jobs) == ["greet", "mourn"]
    assert (await pooled.instances.heartbeat(instance, 2)).running == 2
    assert await pooled.jobs.cancel([*ids]) == ["succeeded", "cancelled", "dead", "requested"]
    assert (await pooled.jobs.replay([dead.id]))[0].replayed
    assert (await pooled.instances.declare_dead(instance, beat=None, started=None, reason="test")).declared
    assert len(await find_jobs(pooled, JobFilter())) == 5
    assert await pooled.jobs.prune(await pooled.inspect.now() + HOUR, 100) == 3


async def test_schedules_are_fired_and_their_blocked_jobs_run(pooled: PostgresStore) -> None:
    instance = await worker(pooled)
    await put(pooled, new_schedule(overlap=Overlap.QUEUE))
    await put(pooled, after())
    for name in ("nightly", "sweep"):
        assert (await fire(pooled, name, 10)).applied
    [queued] = (await fire(pooled, "nightly", 20)).jobs
    for job in await claim(pooled, instance):
        await end(pooled, instance, job, OutcomeKind.SUCCEEDED)
    assert [job.id for job in await claim(pooled, instance)] == [queued]
    assert (await got(pooled, "sweep")).next_at is not None
    nightly = await got(pooled, "nightly")
    assert (await pooled.instances.heartbeat(instance, 1, lead=HOUR)).next_fire_at == nightly.next_at
    assert (await pooled.schedules.get_due(10)).schedules == [nightly]
    assert await pooled.schedules.advance_stalled() == 0


async def test_big_batches_and_unique_keys(pooled: PostgresStore) -> None:
    jobs = [new_job(id=id) for id in new_job_ids(2_000)]
    assert all(answer.created for answer in await pooled.jobs.add(jobs))
    assert not any(answer.created for answer in await pooled.jobs.add(jobs))
    [first] = await pooled.jobs.add([new_job(key="k", unique=Unique.LIVE)])
    [second] = await pooled.jobs.add([new_job(key="k", unique=Unique.LIVE)])
    assert (second.id, second.created) == (first.id, False)


async def test_many_clients_share_few_connections(pooled_url: str, raw: Any) -> None:
    stores = [await PostgresStore.open(address_of(pooled_url)) for _ in range(8)]
    done: list[str] = []

    async def work(store: Store) -> None:
        instance = await worker(store)
        outcomes: list[Any] = []
        while True:
            answer = await exchange(store, instance, outcomes, wanting(limit=10))
            done.extend(each.id for each in outcomes)
            if not answer.jobs:
                return
            outcomes = [outcome(job, OutcomeKind.SUCCEEDED) for job in answer.jobs]

    added = await add(stores[0], *(new_job() for _ in range(600)))
    async with asyncio.TaskGroup() as group:
        for store in stores:
            group.create_task(work(store))
    assert sorted(done) == sorted(added)
    for store in stores:
        await store.close()


async def test_a_day_of_history_is_made_and_removed(pooled: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = await worker(pooled)
    now = await pooled.inspect.now()
    job = await claimed_one(pooled, instance)
    assert await end(pooled, instance, job, OutcomeKind.SUCCEEDED, finished_at=now - 30 * 24 * HOUR) == "applied"
    monkeypatch.setattr(pooled.jobs._history, "_large_bytes", 0)
    assert await pooled.jobs.prune(now - 24 * HOUR, 5) == 5
    assert await find_jobs(pooled, JobFilter()) == []


async def test_hints_of_the_same_store_need_no_listen(pooled: PostgresStore) -> None:
    hints: list[int] = []
    async with pooled.wake.listen(Subscriber(hints.append)) as address:
        assert address is None
        await add(pooled, new_job())
        assert hints


async def test_locks_change_hands_without_a_session_of_their_own(pooled_url: str) -> None:
    entered: list[int] = []

    async def enter(app: Drumbeat, number: int) -> None:
        async with app.lock("x"):
            entered.append(number)

    async with Drumbeat(pooled_url) as app:
        async with asyncio.timeout(4), asyncio.TaskGroup() as group, app.lock("x"):  # the renewal comes after 5 s
            for number in range(3):
                group.create_task(enter(app, number))
                await asyncio.get_running_loop().run_in_executor(None, int)
    assert sorted(entered) == [0, 1, 2]
