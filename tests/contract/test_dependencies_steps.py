"""Jobs that a running job adds by a step: stored together with its record, under its claim, once."""

import asyncio

import pytest

from drumbeat.core.claim import ClaimedJob, ClaimRef, WriteStatus
from drumbeat.core.job import NewJob, OutcomeKind, Unique
from drumbeat.core.job_query import JobFilter
from drumbeat.core.step import NewStep
from drumbeat.errors import JobNotFound, UniqueConflict
from drumbeat.ids import JobId, new_job_id
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from tests.conftest import OpenAgain
from tests.contract.graphs import add_graph, edges
from tests.contract.making import HOUR, add, claim, claimed_one, end, hold, ids, new_job, worker

APPLIED, DUPLICATE, STALE = WriteStatus.APPLIED, WriteStatus.DUPLICATE, WriteStatus.STALE


def step(job: ClaimedJob, name: str = "pages", result: str = '["a"]') -> NewStep:
    return NewStep(
        claim=ClaimRef(job.id, job.token), name=name, started_at=job.token, finished_at=job.token + 5, result=result
    )


async def recorded(store: Store, id: JobId) -> dict[str, str | None]:
    return {each.name: each.result for each in (await store.steps.load([id]))[id]}


async def count(store: Store) -> int:
    return (await store.inspect.count_jobs(JobFilter())).total


async def test_jobs_and_the_record_are_stored_together(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    first, last = new_job(), new_job()
    answer = await add_graph(store, [first, last], edges(last, first, job.id), instance=instance, step=step(job))
    assert (answer.status, [each.created for each in answer.results]) == (APPLIED, [True, True])
    assert await recorded(store, job.id) == {"pages": '["a"]'}
    assert (await get_job(store, last.id)).open_parents == 2
    for each in await claim(store, instance):
        await end(store, instance, each, OutcomeKind.SUCCEEDED)
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    assert ids(await claim(store, instance)) == [last.id]


async def test_a_later_run_gets_what_is_on_record_and_adds_nothing(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, queue="parent")
    await add_graph(store, [new_job(delay=HOUR)], instance=instance, step=step(job, result="1"))
    await end(store, instance, job, OutcomeKind.RETRY)
    [again] = await claim(store, instance, "parent")
    for told in (again, again):
        answer = await add_graph(store, [new_job()], instance=instance, step=step(told, result="2"))
        assert (answer.status, answer.recorded) == (DUPLICATE, "1")
    assert (await count(store), await recorded(store, job.id)) == (2, {"pages": "1"})
    answer = await add_graph(store, [new_job()], instance=instance, step=step(again, "more", "3"))
    assert (answer.status, await count(store)) == (APPLIED, 3)


async def test_a_repeated_call_is_a_duplicate(store: Store) -> None:
    """Its answer was lost."""
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child = new_job(delay=HOUR)
    for status in (APPLIED, DUPLICATE):
        answer = await add_graph(store, [child], edges(child, job.id), instance=instance, step=step(job))
        assert answer.status is status
    assert answer.recorded == '["a"]'
    assert (await get_job(store, child.id)).open_parents == 1


async def test_a_record_without_jobs(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    assert (await add_graph(store, [], instance=instance, step=step(job))).status is APPLIED
    assert (await add_graph(store, [], instance=instance, step=step(job))).status is DUPLICATE
    assert await recorded(store, job.id) == {"pages": '["a"]'}


async def zombie_of(store: Store, way: str) -> tuple[str, ClaimedJob]:
    """An instance, and a claim that it has no longer."""
    instance = await worker(store)
    job = await claimed_one(store, instance, queue="parent")
    match way:
        case "buried":
            await store.instances.declare_dead(instance, beat=None, started=[hold(job)], reason="silent")
        case "claimed again":
            await end(store, instance, job, OutcomeKind.RELEASED)
            await claim(store, instance, "parent")
        case "of another":
            return await worker(store), job
        case _:
            await end(store, instance, job, OutcomeKind(way))
    return instance, job


@pytest.mark.parametrize("way", ["buried", "claimed again", "of another", "succeeded", "dead", "retry"])
async def test_a_zombie_adds_nothing(store: Store, way: str) -> None:
    instance, job = await zombie_of(store, way)
    live = await claimed_one(store, await worker(store))
    jobs = [new_job(), new_job()]
    answer = await add_graph(store, jobs, edges(jobs[1], live.id), instance=instance, step=step(job))
    assert answer.status is STALE
    assert (await recorded(store, job.id), await count(store)) == ({}, 2)
    assert (await store.dependencies.list_children([live.id], 10))[live.id] == []


async def test_a_refused_graph_leaves_no_record(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    [holder] = await add(store, new_job(key="k", unique=Unique.LIVE, delay=HOUR))
    leaf, child = new_job(key="k", unique=Unique.LIVE), new_job()
    refused: list[tuple[type[Exception], list[NewJob], JobId]] = [
        (UniqueConflict, [leaf], job.id),
        (JobNotFound, [child], new_job_id()),
    ]
    for error, jobs, parent in refused:
        with pytest.raises(error):
            await add_graph(store, jobs, edges(jobs[0], parent), instance=instance, step=step(job))
        assert (await recorded(store, job.id), await count(store)) == ({}, 2)
    assert (await get_job(store, holder)).open_parents is None


async def test_burial_and_a_step_that_adds_at_once(store: Store, open_again: OpenAgain) -> None:
    """Whichever comes first: the jobs are there if and only if the record is."""
    second = await open_again()
    for _ in range(20):
        instance = await worker(store)
        job = await claimed_one(store, instance)
        child = new_job(delay=HOUR)
        async with asyncio.TaskGroup() as group:
            added = group.create_task(add_graph(second, [child], instance=instance, step=step(job)))
            group.create_task(store.instances.declare_dead(instance, beat=None, started=[], reason="silent"))
        is_applied = added.result().status is APPLIED
        assert (await recorded(store, job.id) != {}) == is_applied
        assert (child.id in await store.inspect.get_jobs([child.id])) == is_applied
        await store.jobs.cancel([job.id])
