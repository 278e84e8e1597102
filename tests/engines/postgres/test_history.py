"""The days of history: made ahead and on demand, taken away whole when they are large and over."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.core.job import OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import JobExpired
from drumbeat.ids import new_job_id
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.postgres import PostgresStore, history
from tests.contract.making import HOUR, add, claim, claimed_one, dead_letter, end, new_job, outcome, report, worker
from tests.engines.postgres.conftest import address_of

DAY = 24 * HOUR


async def days(raw: Any) -> list[str]:
    rows = await raw.fetch(
        "SELECT relname::text AS name FROM pg_class WHERE relnamespace = 'drumbeat'::regnamespace"
        " AND relname ~ '^history_[0-9]+$' ORDER BY 1"
    )
    return [row["name"] for row in rows]


def partition_name(timestamp: int) -> str:
    return f"history_{datetime.fromtimestamp(timestamp / 1e6, UTC):%Y%m%d}"


async def test_who_registers_makes_a_week_of_days_ahead(postgres: PostgresStore, raw: Any) -> None:
    for name in await days(raw):
        await raw.execute(f"DROP TABLE drumbeat.{name}")
    before = await postgres.inspect.now()
    await worker(postgres)
    after = await postgres.inspect.now()
    # Before and after are the same day, but at midnight.
    assert await days(raw) in [[partition_name(today + ahead * DAY) for ahead in range(8)] for today in (before, after)]


async def test_a_heart_makes_days_ahead_once_an_hour(
    postgres: PostgresStore, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = await worker(postgres)
    last = (await days(raw))[-1]
    await raw.execute(f"DROP TABLE drumbeat.{last}")
    await postgres.instances.heartbeat(instance, 0)
    assert last not in await days(raw)
    monkeypatch.setattr(history, "ENSURE_INTERVAL", 0.0)
    await postgres.instances.heartbeat(instance, 0)
    assert last in await days(raw)


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.CANCELLED])
async def test_a_finish_that_meets_a_missing_day_makes_it(postgres: PostgresStore, kind: OutcomeKind) -> None:
    """Midnight without tomorrow's partition, and a reporter that held an outcome back for a month."""
    instance = await worker(postgres)
    for moment in (await postgres.inspect.now() + 30 * DAY, await postgres.inspect.now() - 30 * DAY):
        job = await claimed_one(postgres, instance)
        assert await end(postgres, instance, job, kind, finished_at=moment) == "applied"
        assert (await get_job(postgres, job.id)).finished_at == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
            microseconds=moment
        )


async def test_one_batch_may_need_several_missing_days(postgres: PostgresStore) -> None:
    instance = await worker(postgres)
    now = await postgres.inspect.now()
    await add(postgres, *(new_job() for _ in range(4)))
    jobs = await claim(postgres, instance)
    outcomes = [
        outcome(job, OutcomeKind.SUCCEEDED, finished_at=now + month * 30 * DAY) for month, job in enumerate(jobs)
    ]
    assert await report(postgres, instance, *outcomes) == ["applied"] * 4


async def test_two_who_make_the_same_day_at_once_do_not_disturb_each_other(url: str, raw: Any) -> None:
    for name in await days(raw):
        await raw.execute(f"DROP TABLE drumbeat.{name}")
    stores = [await PostgresStore.open(address_of(url)) for _ in range(6)]
    async with asyncio.TaskGroup() as group:
        for store in stores:
            group.create_task(worker(store))
    assert len(await days(raw)) == 8
    for store in stores:
        await store.close()


async def test_a_large_day_that_is_over_is_dropped_as_a_whole(
    url: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history.HistoryPartitions.__init__, "__kwdefaults__", {"large_bytes": 0})
    async with await PostgresStore.open(address_of(url)) as store:
        instance = await worker(store)
        now = await store.inspect.now()
        old = [await claimed_one(store, instance) for _ in range(3)]
        await end(store, instance, old[0], OutcomeKind.RETRY)
        [again] = await claim(store, instance)
        for job in (again, *old[1:]):
            await end(store, instance, job, OutcomeKind.SUCCEEDED, finished_at=now - 5 * DAY)
        young = await claimed_one(store, instance)
        await end(store, instance, young, OutcomeKind.SUCCEEDED)
        gone = partition_name(now - 5 * DAY)
        assert gone in await days(raw)
        assert await store.jobs.prune(now - 2 * DAY, 10) == 10
        assert gone not in await days(raw)
        assert await store.jobs.prune(now - 2 * DAY, 10) == 0
        assert [job.id for job in await find_jobs(store, JobFilter())] == [young.id]
        attempts = (await store.inspect.get_attempts([old[0].id]))[old[0].id]
        assert [attempt.token for attempt in attempts] == [old[0].token], "its attempt is younger than the day"
        with pytest.raises(JobExpired):
            await get_job(store, new_job_id(now - 6 * DAY))


async def test_dropping_a_day_does_not_wait_for_readers_and_is_done_later(
    url: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history.HistoryPartitions.__init__, "__kwdefaults__", {"large_bytes": 0})
    async with await PostgresStore.open(address_of(url)) as store:
        instance = await worker(store)
        now = await store.inspect.now()
        job = await claimed_one(store, instance)
        await end(store, instance, job, OutcomeKind.SUCCEEDED, finished_at=now - 5 * DAY)
        async with raw.transaction():
            await raw.fetch("SELECT count(*) FROM drumbeat.history")
            await store.jobs.prune(now - 2 * DAY, 10)
            # Jobs finish meanwhile: none waits for the removal.
            async with asyncio.timeout(4):
                other = await claimed_one(store, instance)
                assert await end(store, instance, other, OutcomeKind.SUCCEEDED) == "applied"
        await store.jobs.prune(now - 2 * DAY, 10)
        await store.jobs.prune(now - 2 * DAY, 10)
        assert partition_name(now - 5 * DAY) not in await days(raw)


async def test_a_detached_day_that_is_read_is_dropped_later(url: str, raw: Any) -> None:
    async with await PostgresStore.open(address_of(url)) as store:
        instance = await worker(store)
        now = await store.inspect.now()
        job = await claimed_one(store, instance)
        await end(store, instance, job, OutcomeKind.SUCCEEDED, finished_at=now - 5 * DAY)
        day = f"drumbeat.{partition_name(now - 5 * DAY)}"
        await raw.execute(f"ALTER TABLE drumbeat.history DETACH PARTITION {day}")
        async with raw.transaction(), asyncio.timeout(5):
            await raw.fetch(f"SELECT FROM {day}")
            await store.jobs.prune(now - 2 * DAY, 10)
        assert await raw.fetchval("SELECT to_regclass($1)", day) is not None
        await store.jobs.prune(now - 2 * DAY, 10)
        assert await raw.fetchval("SELECT to_regclass($1)", day) is None


async def test_a_discarded_dead_letter_of_long_ago_finds_its_day(postgres: PostgresStore, raw: Any) -> None:
    instance = await worker(postgres)
    job = await dead_letter(postgres, instance)
    await raw.execute("UPDATE drumbeat.dead SET finished_at = finished_at - $1", 400 * DAY)
    assert await postgres.jobs.discard([job.id]) == 1
    assert (await get_job(postgres, job.id)).state == "dead"
