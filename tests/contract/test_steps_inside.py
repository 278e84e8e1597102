"""Steps recorded inside a transaction of the program's own: with its commit, or not at all."""

from collections.abc import AsyncIterator

import pytest

from drumbeat.core.claim import ClaimedJob, ClaimRef
from drumbeat.core.job import OutcomeKind
from drumbeat.core.step import NewStep
from drumbeat.errors import ClaimLost
from drumbeat.store.protocol import Store
from tests.callers import Caller, caller
from tests.conftest import TRANSACTIONAL
from tests.contract.making import claim, claimed_one, end, worker


@pytest.fixture(params=TRANSACTIONAL)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def program(store: Store, store_url: str) -> AsyncIterator[Caller]:
    async with caller(store_url) as made:
        yield made


def step(job: ClaimedJob, result: str = "1") -> NewStep:
    return NewStep(claim=ClaimRef(job.id, job.token), name="note", started_at=1, finished_at=2, result=result)


async def results(store: Store, job: ClaimedJob) -> list[str | None]:
    return [each.result for each in (await store.steps.load([job.id]))[job.id]]


async def test_a_step_is_on_record_after_the_commit_and_not_before(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await program.begin()
    await program.write(1)
    await store.transactional.record_step(program.conn, instance, step(job))
    assert await results(store, job) == []
    await program.commit()
    assert (await results(store, job), await program.numbers()) == (["1"], [1])


async def test_a_step_is_gone_after_a_rollback(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await program.begin()
    await store.transactional.record_step(program.conn, instance, step(job, "1"))
    await program.rollback()
    await program.begin()
    await store.transactional.record_step(program.conn, instance, step(job, "2"))
    await program.commit()
    assert await results(store, job) == ["2"]


async def test_the_whole_transaction_of_a_claim_that_has_ended_is_refused(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, OutcomeKind.RELEASED)
    [again] = await claim(store, instance)
    await program.begin()
    await program.write(1)
    with pytest.raises(ClaimLost):
        await store.transactional.record_step(program.conn, instance, step(job))
    await program.commit()
    assert (await results(store, again), await program.numbers()) == ([], [])
