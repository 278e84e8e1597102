"""Claims that race with a declared death, a cancellation or another claim: one side's transaction stays open meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
import pytest

from drumbeat.core.claim import ClaimedJob
from drumbeat.core.job import CancelAnswer, JobState, OutcomeKind
from drumbeat.ids import InstanceId
from drumbeat.store.job_reads import get_job
from drumbeat.store.postgres import PostgresStore
from drumbeat.store.postgres.connections import PostgresConnection, Session
from tests.contract.making import add, claim, claimed_one, end, ids, new_job, wanting, worker
from tests.engines.postgres.conftest import address_of
from tests.waiting import until

Raw = Any
BLOCKED_ON = "task:greet"


@pytest.fixture
async def other(url: str) -> AsyncIterator[PostgresStore]:
    """Another process."""
    async with await PostgresStore.open(address_of(url)) as store:
        yield store


@asynccontextmanager
async def held_open(
    connection: PostgresConnection, work: Callable[[Session], Awaitable[Any]]
) -> AsyncIterator["asyncio.Task[Any]"]:
    """The work is done when the block begins; its transaction commits when the block ends."""
    is_done, commit = asyncio.Event(), asyncio.Event()

    async def run(session: Session) -> Any:
        result = await work(session)
        is_done.set()
        await commit.wait()
        return result

    async with asyncio.TaskGroup() as group:
        task = group.create_task(connection.transact(run))
        await is_done.wait()
        yield task
        commit.set()


async def waits_for_lock(raw: Raw, task: "asyncio.Task[Any]") -> None:
    """Until the task's session waits for a lock, or the task needed none."""

    async def is_waiting() -> bool:
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return task.done() or await raw.fetchval(waiting) > 0

    await until(is_waiting, deadline=4, what="the lock")


def claiming(store: PostgresStore, instance: InstanceId, *, blocked: bool) -> Callable[[Session], Awaitable[Any]]:
    async def take(session: Session) -> list[ClaimedJob]:
        if blocked:
            request = wanting(wants=[BLOCKED_ON])
            return (await store._parts.claimer.claim_blocked(session, instance, request))[0]
        return (await store._parts.claimer.report_and_claim(session, instance, (), wanting())).jobs

    return take


async def claimable(store: PostgresStore, *, blocked: bool) -> str:
    """A job that waits for its time, which has come, or for a worker that can run it."""
    if not blocked:
        [id] = await add(store, new_job(key="k"))
        return id
    instance = await worker(store)
    job = await claimed_one(store, instance, key="k")
    await end(store, instance, job, OutcomeKind.BLOCKED, blocked_on=BLOCKED_ON, started_at=None)
    return job.id


@pytest.mark.parametrize("blocked", [False, True])
async def test_what_was_being_claimed_when_its_instance_was_declared_dead_is_released(
    postgres: PostgresStore, other: PostgresStore, raw: Raw, blocked: bool
) -> None:
    id = await claimable(postgres, blocked=blocked)
    instance = await worker(postgres)
    async with held_open(postgres._parts.claim_connection, claiming(postgres, instance, blocked=blocked)) as claimed:
        death = asyncio.Task(other.instances.declare_dead(instance, beat=None, started=None, reason="silent"))
        await waits_for_lock(raw, death)
    assert (await death).declared
    assert ids(claimed.result()) == [id]
    found = await get_job(postgres, id)  # type: ignore[arg-type]
    assert (found.state, found.instance) == (JobState.PENDING, None)


@pytest.mark.parametrize("blocked", [False, True])
async def test_an_instance_that_is_being_declared_dead_claims_nothing(
    postgres: PostgresStore, other: PostgresStore, raw: Raw, blocked: bool
) -> None:
    id = await claimable(postgres, blocked=blocked)
    instance = await worker(postgres)
    dying = partial(postgres.instances._declare_dead, instance, None, None, "silent")
    async with held_open(postgres._parts.connection, dying):
        late = asyncio.Task(claim(other, instance, wants=[BLOCKED_ON] if blocked else []))
        await waits_for_lock(raw, late)
    assert await late == []
    found = await get_job(postgres, id)  # type: ignore[arg-type]
    assert (found.state, found.instance) == (JobState.PENDING, None)


@pytest.mark.parametrize("by_key", [False, True])
async def test_a_cancellation_of_what_is_being_claimed_is_requested_and_the_job_stays(
    postgres: PostgresStore, other: PostgresStore, raw: Raw, by_key: bool
) -> None:
    [id] = await add(postgres, new_job(key="k"))
    instance = await worker(postgres)
    async with held_open(postgres._parts.claim_connection, claiming(postgres, instance, blocked=False)) as claimed:
        cancel = other.jobs.cancel_keys("greet", ["k"]) if by_key else other.jobs.cancel([id])
        cancelling = asyncio.Task(cancel)
        await waits_for_lock(raw, cancelling)
    assert ids(claimed.result()) == [id]
    assert await cancelling == [CancelAnswer.REQUESTED]
    found = await get_job(postgres, id)
    assert (found.state, found.instance, found.cancel_requested) == (JobState.RUNNING, instance, True)


async def test_what_is_being_cancelled_is_not_claimed(postgres: PostgresStore, other: PostgresStore, raw: Raw) -> None:
    [id] = await add(postgres, new_job())
    instance = await worker(postgres)
    async with held_open(postgres._parts.connection, partial(postgres.jobs._cancel, [id])):
        claimed = asyncio.Task(claim(other, instance))
        await waits_for_lock(raw, claimed)
        assert claimed.done(), "it waits for nobody"
    assert await claimed == []
    assert (await get_job(postgres, id)).state is JobState.CANCELLED


@pytest.mark.parametrize("blocked", [False, True])
async def test_what_is_being_claimed_is_left_to_who_claims_it(
    postgres: PostgresStore, other: PostgresStore, raw: "asyncpg.Connection[asyncpg.Record]", blocked: bool
) -> None:
    id = await claimable(postgres, blocked=blocked)
    first, second = await worker(postgres), await worker(postgres)
    async with held_open(postgres._parts.claim_connection, claiming(postgres, first, blocked=blocked)) as claimed:
        late = asyncio.Task(claim(other, second, wants=[BLOCKED_ON] if blocked else []))
        await waits_for_lock(raw, late)
        assert late.done(), "it waits for nobody"
    assert (ids(claimed.result()), await late) == ([id], [])
    assert (await get_job(postgres, id)).instance == first  # type: ignore[arg-type]
