"""Steps recorded inside a transaction of the program's own: with its commit, or not at all."""

from collections.abc import AsyncIterator

import pytest

from drumbeat.core.claim import ClaimedJob, ClaimRef
from drumbeat.core.job import OutcomeKind
from drumbeat.core.signals import NewSignal, SignalAnswer, SignalWait
from drumbeat.core.step import NewStep, StepKind
from drumbeat.core.suspension import FOREVER_US, Suspension
from drumbeat.errors import ClaimLost
from drumbeat.ids import InstanceId
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


def approval(job: ClaimedJob) -> NewSignal:
    return NewSignal(id="s1", job=job.id, name="approved", payload="7")


async def suspend(store: Store, instance: InstanceId, job: ClaimedJob) -> None:
    suspension = Suspension(kind=StepKind.WAIT, name="approved", signal="approved", until=FOREVER_US)
    await end(store, instance, job, OutcomeKind.SUSPENDED, suspension=suspension)


async def test_a_signal_is_sent_with_the_commit(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await suspend(store, instance, job)
    await program.begin()
    assert await store.transactional.send_signal(program.conn, approval(job)) is SignalAnswer.SENT
    assert await claim(store, instance) == []
    await program.commit()
    [again] = await claim(store, instance)
    wait = SignalWait(claim=ClaimRef(again.id, again.token), name="approved", signal="approved")
    assert (await store.steps.take_signal(instance, wait)).payload == "7"


async def test_a_signal_is_gone_after_a_rollback(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await suspend(store, instance, job)
    await program.begin()
    await store.transactional.send_signal(program.conn, approval(job))
    await program.rollback()
    assert (await claim(store, instance), await store.steps.list_signals([job.id])) == ([], {job.id: []})


async def test_a_signal_for_a_job_that_has_ended_is_not_stored(store: Store, program: Caller) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    await program.begin()
    assert await store.transactional.send_signal(program.conn, approval(job)) is SignalAnswer.SUCCEEDED
    await program.commit()
