"""Parents that are completed inside a transaction of the program's own: their children hear of the commit."""

from collections.abc import AsyncIterator

import pytest

from drumbeat.core.claim import ClaimedJob, CompletedJob
from drumbeat.core.job import JobState
from drumbeat.ids import InstanceId
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from tests.callers import Caller, caller
from tests.conftest import TRANSACTIONAL
from tests.contract.graphs import add_child, add_graph, bind, settle
from tests.contract.making import claim, claimed_one, hold, ids, new_job, worker


@pytest.fixture(params=TRANSACTIONAL[:2])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def program(store: Store, store_url: str) -> AsyncIterator[Caller]:
    async with caller(store_url) as made:
        yield made


async def complete(store: Store, program: Caller, instance: InstanceId, job: ClaimedJob) -> bool:
    """Whether other jobs may wait for it."""
    done = CompletedJob(instance=instance, claim=hold(job), started_at=job.token, result="7", result_error=None)
    await program.begin()
    return await store.transactional.complete(program.conn, done)


async def test_a_completion_releases_with_its_commit(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child = new_job()
    await add_graph(store, [child], [bind(child, job.id)])
    assert await complete(store, program, instance, job)
    await program.rollback()
    await settle(store)
    assert (await get_job(store, child.id)).open_parents == 1
    await complete(store, program, instance, job)
    await program.commit()
    await settle(store)
    assert ids(await claim(store, instance)) == [child.id]
    [result] = (await store.dependencies.load_results([child.id]))[child.id]
    assert (result.parent, result.state, result.result) == (job.id, JobState.SUCCEEDED, "7")


async def test_any_exchange_follows_what_a_completion_left(store: Store, program: Caller) -> None:
    """Whose worker was killed after the commit."""
    instance, other = await worker(store), await worker(store)
    job, plain = await claimed_one(store, instance), await claimed_one(store, other)
    child = await add_child(store, job.id)
    await complete(store, program, instance, job)
    await program.commit()
    assert await store.dependencies.advance() is False
    assert ids(await claim(store, other)) == [child]
    assert plain.id != child


async def test_a_completion_of_a_job_without_children_calls_for_nothing(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    assert not await complete(store, program, instance, job)
    await program.commit()
