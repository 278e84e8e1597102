"""How ended jobs are looked up, pruned, and told apart from those that never were."""

import pytest

from drumbeat.core.job import EndedJob, JobState, OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import JobExpired, JobNotFound
from drumbeat.ids import JobId, new_job_id
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from tests.contract.making import (
    BOOM,
    HOUR,
    add,
    claim,
    claimed_one,
    dead_letter,
    end,
    ids,
    new_job,
    outcome,
    report,
    worker,
)


async def test_how_jobs_ended_is_told_in_order_and_none_for_live_ones(store: Store) -> None:
    instance = await worker(store)
    done = await claimed_one(store, instance)
    await end(store, instance, done, OutcomeKind.SUCCEEDED, result='"yes"', result_error="partly")
    dead = await dead_letter(store, instance)
    discarded = await dead_letter(store, instance)
    await store.jobs.discard([discarded.id])
    running = await claimed_one(store, instance)
    pending, cancelled = await add(store, new_job(), new_job())
    await store.jobs.cancel([cancelled])
    wanted = [running.id, done.id, dead.id, discarded.id, pending, cancelled, done.id]
    success = EndedJob(id=done.id, task="greet", state=JobState.SUCCEEDED, result='"yes"', result_error="partly")
    assert await store.jobs.get_results(wanted) == [
        None,
        success,
        EndedJob(id=dead.id, task="greet", state=JobState.DEAD, error=BOOM),
        EndedJob(id=discarded.id, task="greet", state=JobState.DEAD, error=BOOM),
        None,
        EndedJob(id=cancelled, task="greet", state=JobState.CANCELLED),
        success,
    ]
    assert await store.jobs.get_results([]) == []


async def test_jobs_whose_ids_were_made_hours_apart_are_added_ended_and_pruned_together(store: Store) -> None:
    """Most calls are about ids of the same seconds; those of an outbox that was read late are not."""
    now = await store.inspect.now()
    jobs = [new_job(id=new_job_id(now - hours * HOUR)) for hours in (3, 2, 2, 1, 0)]
    wanted = await add(store, *jobs)
    instance = await worker(store)
    claimed = await claim(store, instance)
    assert sorted(ids(claimed)) == wanted
    await report(store, instance, *(outcome(job, OutcomeKind.SUCCEEDED, result=f'"{job.id}"') for job in claimed))
    ended = [(await store.jobs.get_results([id]))[0] for id in wanted]
    assert [each and each.result for each in ended] == [f'"{id}"' for id in wanted]
    assert await store.jobs.get_results(wanted[::-1]) == ended[::-1]
    assert await store.jobs.prune(await store.inspect.now() + HOUR, 10) == 5
    for id in wanted:
        with pytest.raises(JobExpired):
            await store.jobs.get_results([id])


async def test_a_replayed_job_has_not_ended(store: Store) -> None:
    instance = await worker(store)
    dead = await dead_letter(store, instance)
    await store.jobs.replay([dead.id])
    assert await store.jobs.get_results([dead.id]) == [None]


async def test_an_id_that_is_nowhere_and_cannot_have_been_pruned_is_not_found(store: Store) -> None:
    [live] = await add(store, new_job())
    for id in (new_job_id(), JobId("nonsense")):
        with pytest.raises(JobNotFound) as caught:
            await store.jobs.get_results([live, id])
        assert caught.value.id == id


async def test_an_id_as_old_as_pruned_history_has_expired(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    assert await store.jobs.prune(await store.inspect.now() + 10_000, 10) == 1
    with pytest.raises(JobExpired):
        await store.jobs.get_results([job.id])
    with pytest.raises(JobExpired):
        await get_job(store, job.id)
    younger = new_job_id(await store.inspect.now() + HOUR)
    with pytest.raises(JobNotFound):
        await store.jobs.get_results([younger])
    with pytest.raises(JobNotFound):
        await get_job(store, JobId("nonsense"))


async def test_pruning_that_deleted_nothing_lets_nothing_expire(store: Store) -> None:
    """Whatever the hour: where days are kept apart, whole ones that are empty go, too."""
    assert await store.jobs.prune(await store.inspect.now() + 48 * HOUR, 10) == 0
    with pytest.raises(JobNotFound):
        await store.jobs.get_results([new_job_id()])


async def test_history_is_pruned_oldest_first_within_the_limit(store: Store) -> None:
    instance = await worker(store)
    now = await store.inspect.now()
    jobs = []
    for age in (5, 9, 7, 1, 8):
        job = await claimed_one(store, instance)
        await end(store, instance, job, OutcomeKind.SUCCEEDED, finished_at=now - age * HOUR)
        jobs.append((age, job.id))
    assert await store.jobs.prune(now - 6 * HOUR, 2) == 2
    left = ids(await find_jobs(store, JobFilter()))
    assert left == [id for age, id in reversed(jobs) if age not in (8, 9)]
    assert await store.jobs.prune(now - 6 * HOUR, 2) == 1
    assert await store.jobs.prune(now - 6 * HOUR, 2) == 0
    assert len(await find_jobs(store, JobFilter())) == 2


async def test_only_history_is_pruned(store: Store) -> None:
    instance = await worker(store)
    dead, running = await dead_letter(store, instance), await claimed_one(store, instance)
    [pending] = await add(store, new_job())
    discarded = await dead_letter(store, instance)
    await store.jobs.discard([discarded.id])
    [cancelled] = await add(store, new_job())
    await store.jobs.cancel([cancelled])
    assert await store.jobs.prune(await store.inspect.now() + HOUR, 10) == 2
    assert sorted(ids(await find_jobs(store, JobFilter()))) == sorted([dead.id, running.id, pending])


async def test_attempts_are_pruned_with_their_job(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, OutcomeKind.RETRY)
    other = await claimed_one(store, instance)
    await end(store, instance, other, OutcomeKind.RETRY, delay=HOUR)
    held = {each.id: each for each in await store.jobs.list_running(instance)}
    again = held[job.id]
    await report(store, instance, outcome(again, OutcomeKind.SUCCEEDED))
    assert len((await store.inspect.get_attempts([job.id]))[job.id]) == 2
    assert await store.jobs.prune(await store.inspect.now() + HOUR, 10) == 1
    assert (await store.inspect.get_attempts([job.id]))[job.id] == []
    assert len((await store.inspect.get_attempts([other.id]))[other.id]) == 1


async def test_attempts_of_dead_letters_and_of_live_jobs_are_kept(store: Store) -> None:
    """Also when whole days of history go."""
    instance = await worker(store)
    jobs = [await claimed_one(store, instance) for _ in range(3)]
    await report(store, instance, *(outcome(job, OutcomeKind.RETRY) for job in jobs))
    again = {job.id: job for job in await claim(store, instance)}
    done, dead, live = (again[job.id] for job in jobs)
    await end(store, instance, done, OutcomeKind.SUCCEEDED)
    await end(store, instance, dead, OutcomeKind.DEAD)
    await end(store, instance, live, OutcomeKind.RETRY, delay=HOUR)
    assert await store.jobs.prune(await store.inspect.now() + 48 * HOUR, 10) == 1
    attempts = await store.inspect.get_attempts(ids(jobs))
    kept = {id: [attempt.outcome for attempt in found] for id, found in attempts.items()}
    assert kept[dead.id] == [OutcomeKind.RETRY, OutcomeKind.DEAD]
    assert kept[live.id] == [OutcomeKind.RETRY, OutcomeKind.RETRY]
    assert kept[done.id] == []
