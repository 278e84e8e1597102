"""The span that enqueued a job travels with it: to each claim, into history and dead letters, and into its next life."""

import pytest

from drumbeat.core.job import JobState, OutcomeKind, Unique
from drumbeat.core.job_query import JobFilter
from drumbeat.ids import JobId
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from tests.contract.making import (
    HOUR,
    add,
    claim,
    claimed_one,
    dead_letter,
    end,
    exchange,
    new_job,
    outcome,
    wanting,
    worker,
)
from tests.contract.scheduling import after, fired_job, got

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def traced(store: Store, id: JobId) -> str | None:
    return (await get_job(store, id)).trace


async def test_a_claim_has_the_trace_of_the_enqueue_at_each_attempt(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, trace=TRACE)
    assert (job.trace, await traced(store, job.id)) == (TRACE, TRACE)
    await end(store, instance, job, OutcomeKind.RETRY)
    [again] = await claim(store, instance)
    assert (again.id, again.attempt, again.trace) == (job.id, 2, TRACE)


async def test_a_job_without_a_trace_has_none(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    assert (job.trace, await traced(store, job.id)) == (None, None)
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    assert await traced(store, job.id) is None


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.CANCELLED, OutcomeKind.DEAD])
@pytest.mark.parametrize("key", [None, "k"])
async def test_the_record_of_an_end_has_the_trace(store: Store, kind: OutcomeKind, key: str | None) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, trace=TRACE, key=key)
    await end(store, instance, job, kind)
    found = await get_job(store, job.id)
    assert (found.state, found.trace, found.key, found.schedule) == (kind.value, TRACE, key, None)


async def test_a_success_that_left_a_result_has_the_trace(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, trace=TRACE)
    await exchange(store, instance, [outcome(job, OutcomeKind.SUCCEEDED, result="1")], wanting())
    assert await traced(store, job.id) == TRACE


async def test_a_pending_job_that_is_cancelled_keeps_its_trace(store: Store) -> None:
    [id] = await add(store, new_job(delay=HOUR, trace=TRACE))
    await store.jobs.cancel([id])
    found = await get_job(store, id)
    assert (found.state, found.trace) == (JobState.CANCELLED, TRACE)


async def test_a_replayed_dead_letter_goes_on_in_its_trace(store: Store) -> None:
    instance = await worker(store)
    job = await dead_letter(store, instance, trace=TRACE)
    await store.jobs.replay([job.id])
    assert await traced(store, job.id) == TRACE
    [again] = await claim(store, instance)
    assert (again.id, again.replays, again.trace) == (job.id, 1, TRACE)


async def test_a_discarded_dead_letter_keeps_its_trace(store: Store) -> None:
    instance = await worker(store)
    job = await dead_letter(store, instance, trace=TRACE)
    await store.jobs.discard([job.id])
    assert await traced(store, job.id) == TRACE


@pytest.mark.parametrize("unique", [Unique.NO, Unique.LIVE])
@pytest.mark.parametrize("count", [3, 600])
async def test_each_job_of_a_batch_has_its_own_trace(store: Store, count: int, unique: Unique) -> None:
    instance = await worker(store)
    traces = [(TRACE, None, OTHER)[number % 3] for number in range(count)]
    jobs = [new_job(trace=trace, key=f"k{number}", unique=unique) for number, trace in enumerate(traces)]
    await store.jobs.add(jobs)
    found = {job.id: job.trace for job in await claim(store, instance, limit=count)}
    assert [found[job.id] for job in jobs] == traces


async def test_a_batch_that_is_known_in_part_keeps_the_traces_of_the_others(store: Store) -> None:
    instance = await worker(store)
    first, second = new_job(trace=TRACE), new_job(trace=OTHER)
    await store.jobs.add([first])
    await store.jobs.add([first, second])
    assert {job.id: job.trace for job in await claim(store, instance)} == {first.id: TRACE, second.id: OTHER}


async def test_a_job_that_waited_for_a_worker_has_its_trace(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, trace=TRACE)
    await end(store, instance, job, OutcomeKind.BLOCKED, blocked_on="task:greet", started_at=None)
    [again] = await claim(store, instance, wants=["task:greet"])
    assert (again.id, again.trace) == (job.id, TRACE)


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.CANCELLED, OutcomeKind.DEAD, OutcomeKind.RETRY])
async def test_a_traced_job_is_of_no_schedule_though_there_are_some(store: Store, kind: OutcomeKind) -> None:
    fired = await fired_job(store, after())
    instance = await worker(store)
    [scheduled] = await claim(store, instance)
    job = await claimed_one(store, instance, trace=TRACE)
    before = await got(store, "sweep")
    await end(store, instance, job, kind)
    found = await get_job(store, job.id)
    assert (found.trace, found.schedule, await got(store, "sweep")) == (TRACE, None, before)
    assert (scheduled.id, scheduled.trace) == (fired, None)
    assert (await get_job(store, fired)).schedule == "sweep"
    assert [each.id for each in await find_jobs(store, JobFilter(schedule="sweep"))] == [fired]
