"""A unique job that comes and is claimed while another of its key is being added: made to happen by a gate in the table."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from drumbeat.core.job import AddResult, NewJob, Unique
from drumbeat.store.postgres import PostgresStore
from drumbeat.store.postgres.insert import MIN_COPY_JOBS
from tests.contract.making import add, claim, claimed_one, new_job, worker
from tests.engines.postgres.conftest import address_of
from tests.waiting import until

GATE = """
CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7);
    RETURN NEW;
END $$;
CREATE TRIGGER gate BEFORE INSERT ON drumbeat.job FOR EACH ROW WHEN (NEW."unique" = 'live') EXECUTE FUNCTION gate()"""
AT_GATE = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted)"
Adds = Callable[[PostgresStore, NewJob], Awaitable[AddResult]]


async def alone(store: PostgresStore, job: NewJob) -> AddResult:
    return (await store.jobs.add([job]))[0]


async def beside_a_known_job(store: PostgresStore, job: NewJob) -> AddResult:
    """Which makes the store look at them one by one."""
    known = new_job()
    await add(store, known)
    return (await store.jobs.add([known, job]))[1]


async def in_a_transaction(store: PostgresStore, job: NewJob) -> AddResult:
    conn = await asyncpg.connect(store._parts.connection._address.dsn)
    try:
        async with conn.transaction():
            return (await store.transactional.add(conn, [job]))[0]
    finally:
        await conn.close()


async def among_many(store: PostgresStore, job: NewJob) -> AddResult:
    """Copied into the table. The gate is closed for it alone."""
    return (await store.jobs.add([*(new_job() for _ in range(MIN_COPY_JOBS)), job]))[-1]


WAYS = [alone, beside_a_known_job, in_a_transaction, among_many]


@asynccontextmanager
async def closed_gate(raw: Any) -> AsyncIterator[None]:
    """Nobody gets past the look into the table."""
    await raw.execute(GATE)
    await raw.execute("SELECT pg_advisory_lock(7)")
    try:
        yield
    finally:
        await raw.execute("SELECT pg_advisory_unlock(7)")


async def at_the_gate(raw: Any) -> bool:
    return bool(await raw.fetchval(AT_GATE))


@pytest.mark.parametrize("adds", WAYS)
async def test_a_live_job_collides_with_one_that_came_and_was_claimed_meanwhile(
    postgres: PostgresStore, url: str, raw: Any, adds: Adds
) -> None:
    async with await PostgresStore.open(address_of(url)) as other, asyncio.TaskGroup() as group:
        instance = await worker(other)
        async with closed_gate(raw):
            adding = group.create_task(adds(postgres, new_job(key="k", unique=Unique.LIVE)))  # type: ignore[arg-type, var-annotated]
            await until(lambda: at_the_gate(raw), what="an insert at the gate")
            quick = await claimed_one(other, instance, key="k", unique=Unique.PENDING)
        answer = await adding
    assert answer == AddResult(quick.id, False)
    assert await raw.fetchval("SELECT count(*) FROM drumbeat.job WHERE key = 'k'") == 1


@pytest.mark.parametrize("adds", WAYS)
async def test_a_live_job_whose_key_is_still_free_is_added(
    postgres: PostgresStore, url: str, raw: Any, adds: Adds
) -> None:
    async with await PostgresStore.open(address_of(url)) as other, asyncio.TaskGroup() as group:
        instance = await worker(other)
        async with closed_gate(raw):
            job = new_job(key="k", unique=Unique.LIVE)
            adding = group.create_task(adds(postgres, job))  # type: ignore[arg-type, var-annotated]
            await until(lambda: at_the_gate(raw), what="an insert at the gate")
            await claimed_one(other, instance, key="another", unique=Unique.PENDING)
        assert await adding == AddResult(job.id, True)


async def test_a_pending_job_may_run_beside_a_live_one_that_ran_before(postgres: PostgresStore) -> None:
    instance = await worker(postgres)
    await claimed_one(postgres, instance, key="k", unique=Unique.LIVE)
    beside = await claimed_one(postgres, instance, key="k", unique=Unique.PENDING)
    third = new_job(key="other", unique=Unique.LIVE)
    assert await postgres.jobs.add([third]) == [AddResult(third.id, True)]
    assert [job.id for job in await claim(postgres, instance)] == [third.id] != [beside.id]
