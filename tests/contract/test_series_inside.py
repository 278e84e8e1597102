"""A series whose job is completed inside a transaction of the program's own: the next moment is set by its commit."""

from collections.abc import AsyncIterator

import pytest

from drumbeat.core.claim import CompletedJob
from drumbeat.core.job import JobState
from drumbeat.core.schedule import Overlap
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from tests.callers import Caller, caller
from tests.conftest import TRANSACTIONAL
from tests.contract.making import claim, hold, worker
from tests.contract.scheduling import MINUTE, after, fire, got, new_schedule, put


@pytest.fixture(params=TRANSACTIONAL)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def program(store: Store, store_url: str) -> AsyncIterator[Caller]:
    async with caller(store_url) as made:
        yield made


@pytest.mark.parametrize("commits", [True, False])
async def test_the_next_moment_is_set_with_the_commit_and_not_with_a_rollback(
    store: Store, program: Caller, commits: bool
) -> None:
    await put(store, after())
    [id] = (await fire(store, "sweep", 10)).jobs
    me = await worker(store)
    [job] = await claim(store, me)
    before = await store.inspect.now()
    await program.begin()
    await store.transactional.complete(
        program.conn, CompletedJob(instance=me, claim=hold(job), started_at=job.token, result=None, result_error=None)
    )
    assert (await got(store, "sweep")).next_at is None
    await (program.commit() if commits else program.rollback())
    found = await got(store, "sweep")
    if commits:
        assert (await get_job(store, id)).schedule == "sweep"
        assert found.current is None
        assert found.next_at is not None
        assert before + MINUTE <= found.next_at <= await store.inspect.now() + MINUTE
    else:
        assert (await get_job(store, id)).state is JobState.RUNNING
        assert (found.current, found.next_at) == (id, None)


async def test_the_next_in_line_goes_on_with_the_commit(store: Store, program: Caller) -> None:
    await put(store, new_schedule(overlap=Overlap.QUEUE))
    _, queued = (await fire(store, "nightly", 10, 20)).jobs
    me = await worker(store)
    [job] = await claim(store, me)
    await program.begin()
    await store.transactional.complete(
        program.conn, CompletedJob(instance=me, claim=hold(job), started_at=job.token, result=None, result_error=None)
    )
    assert (await get_job(store, queued)).blocked_on is not None
    await program.commit()
    assert [each.id for each in await claim(store, me)] == [queued]
