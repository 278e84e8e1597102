"""Several stores at once, as several processes would have: one authority, no double, no loss."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from drumbeat.core.claim import WriteStatus
from drumbeat.core.job import CancelAnswer, JobState, OutcomeKind, Unique
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import StoreUnavailable
from drumbeat.ids import new_job_id
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from tests.conftest import OpenAgain
from tests.contract.making import add, claim, claimed_one, exchange, ids, new_job, outcome, report, wanting, worker

R = TypeVar("R")


async def all_of(calls: Sequence[Coroutine[Any, Any, R]]) -> list[R]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call) for call in calls]
    return [task.result() for task in tasks]


@pytest.mark.parametrize("unique", [Unique.LIVE, Unique.PENDING])
async def test_of_200_racing_adds_with_one_unique_key_one_wins(
    store: Store, open_again: OpenAgain, unique: Unique
) -> None:
    stores = [store, await open_again(), await open_again(), await open_again()]
    jobs = [new_job(key="k", unique=unique) for _ in range(200)]
    answers = await all_of([stores[number % 4].jobs.add([job]) for number, job in enumerate(jobs)])
    [winner] = [answer.id for [answer] in answers if answer.created]
    assert {answer.id for [answer] in answers} == {winner}
    assert ids(await find_jobs(store, JobFilter())) == [winner]


async def test_the_same_job_added_by_many_at_once_is_created_once(store: Store, open_again: OpenAgain) -> None:
    stores = [store, await open_again(), await open_again()]
    job = new_job()
    answers = await all_of([each.jobs.add([job]) for each in stores * 20])
    assert Counter(answer.created for [answer] in answers) == {True: 1, False: 59}


async def test_racing_claims_never_share_a_job_and_lose_none(store: Store, open_again: OpenAgain) -> None:
    stores = [store, await open_again(), await open_again(), await open_again()]
    added = await add(store, *(new_job() for _ in range(1_000)))
    instances = [await worker(each) for each in stores]

    async def work(mine: Store, instance: Any) -> list[str]:
        got: list[str] = []
        outcomes: list[Any] = []
        while True:
            answer = await exchange(mine, instance, outcomes, wanting(limit=7))
            assert answer.statuses == [WriteStatus.APPLIED] * len(outcomes)
            if not answer.jobs:
                return got
            got += ids(answer.jobs)
            outcomes = [outcome(job, OutcomeKind.SUCCEEDED) for job in answer.jobs]

    got = await all_of([work(*pair) for pair in zip(stores, instances, strict=True)])
    assert sorted(id for each in got for id in each) == sorted(added)


async def test_a_job_is_either_cancelled_or_claimed_never_both(store: Store, open_again: OpenAgain) -> None:
    other = await open_again()
    instance = await worker(store)
    added = await add(store, *(new_job() for _ in range(300)))

    async def claims() -> set[str]:
        return {id for _ in range(60) for id in ids(await claim(store, instance, limit=5))}

    async def cancels() -> dict[str, CancelAnswer]:
        return {id: (await other.jobs.cancel([id]))[0] for id in reversed(added)}

    async with asyncio.TaskGroup() as group:
        claiming, cancelling = group.create_task(claims()), group.create_task(cancels())
    claimed, answers = claiming.result(), cancelling.result()
    for id in added:
        assert answers[id] in {CancelAnswer.CANCELLED, CancelAnswer.REQUESTED}
        assert (id in claimed) == (answers[id] is CancelAnswer.REQUESTED)


async def test_of_many_who_declare_one_instance_dead_one_does(store: Store, open_again: OpenAgain) -> None:
    stores = [store, await open_again(), await open_again()]
    dead = await worker(store)
    job = await claimed_one(store, dead)
    reports = await all_of(
        [each.instances.declare_dead(dead, beat=0, started=None, reason="race") for each in stores * 4]
    )
    assert sum(each.declared for each in reports) == 1
    assert sum(each.crash_suspect for each in reports) == 1
    assert (await get_job(store, job.id)).crashes == 1


async def test_of_a_finish_and_a_declared_death_exactly_one_counts(store: Store, open_again: OpenAgain) -> None:
    other = await open_again()
    for _ in range(20):
        instance = await worker(store)
        job = await claimed_one(store, instance)
        async with asyncio.TaskGroup() as group:
            finish = group.create_task(report(store, instance, outcome(job, OutcomeKind.SUCCEEDED)))
            death = group.create_task(other.instances.declare_dead(instance, beat=None, started=None, reason="race"))
        state = (await get_job(store, job.id)).state
        if finish.result() == [WriteStatus.APPLIED]:
            assert (state, death.result().crash_suspect) == (JobState.SUCCEEDED, 0)
        else:
            assert (finish.result(), state, death.result().crash_suspect) == (
                [WriteStatus.STALE],
                JobState.PENDING,
                1,
            )
            await store.jobs.cancel([job.id])


async def test_a_cancelled_call_is_done_or_undone_and_the_store_goes_on(store: Store) -> None:
    jobs = [[new_job(), new_job()] for _ in range(50)]
    tasks = []
    async with asyncio.TaskGroup() as group:
        for turn, pair in enumerate(jobs):
            tasks.append(group.create_task(store.jobs.add(pair)))
            for _ in range(turn % 4):
                await store.inspect.now()
                await asyncio.wait(tasks[-1:], timeout=0)
            tasks[-1].cancel()
    found = {job.id for job in await find_jobs(store, JobFilter(limit=1_000))}
    for task, pair in zip(tasks, jobs, strict=True):
        there = [job.id in found for job in pair]
        assert there in ([True, True], [False, False])
        assert there == [True, True] or task.cancelled()
    assert (await store.jobs.add([new_job()]))[0].created


async def test_calls_under_way_at_close_end_and_those_after_it_are_refused(store: Store) -> None:
    calls = [asyncio.Task(store.jobs.add([new_job()])) for _ in range(20)]
    await store.inspect.now()
    await store.close()
    await store.close()
    done, pending = await asyncio.wait(calls, timeout=10)
    assert not pending
    for call in done:
        error = call.exception()
        assert error is None or isinstance(error, StoreUnavailable)
    with pytest.raises(StoreUnavailable):
        await store.jobs.add([new_job()])
    with pytest.raises(StoreUnavailable):
        await find_jobs(store, JobFilter())


async def test_what_was_accepted_before_close_is_there_afterwards(store: Store, open_again: OpenAgain) -> None:
    mine = await open_again()
    id = new_job_id()
    await mine.jobs.add([new_job(id=id)])
    await mine.close()
    assert (await get_job(store, id)).state == JobState.PENDING
