"""Runs that end by a sleep: the job is due again at a moment that is on record, uncharged."""

from typing import Any

import pytest

from drumbeat.core.claim import ClaimedJob, ClaimRef, WriteStatus
from drumbeat.core.job import Job, JobState, OutcomeKind
from drumbeat.core.job_query import JobFilter, WaitCounts
from drumbeat.core.step import StepKind, StepRecord
from drumbeat.core.suspension import FOREVER_US, Suspension
from drumbeat.durations import from_us, to_us
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from tests.contract.graphs import add_child
from tests.contract.making import HOUR, add, claim, claimed_one, end, new_job, worker

NAP = Suspension(kind=StepKind.SLEEP, name="nap")


async def sleep(store: Store, instance: InstanceId, job: ClaimedJob, delay: int = HOUR, **options: Any) -> WriteStatus:
    return await end(store, instance, job, OutcomeKind.SUSPENDED, delay=delay, **({"suspension": NAP} | options))


async def steps(store: Store, id: JobId) -> list[StepRecord]:
    return (await store.steps.load([id]))[id]


async def test_a_sleeping_job_is_pending_until_its_moment_which_is_on_record(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    before = await store.inspect.now()
    assert await sleep(store, instance, job) is WriteStatus.APPLIED
    found = await get_job(store, job.id)
    assert (found.state, found.suspended, found.failures, found.crashes) == (JobState.PENDING, "sleep", 0, 0)
    assert before + HOUR <= to_us(found.run_at) <= await store.inspect.now() + HOUR
    [step] = await steps(store, job.id)
    assert (step.kind, step.name, step.until, step.finished_at) == (StepKind.SLEEP, "nap", found.run_at, None)
    assert (step.token, step.signal, step.result) == (job.token, None, None)
    assert await claim(store, instance) == []


async def test_what_jobs_wait_for_is_counted(store: Store) -> None:
    instance = await worker(store)
    assert await store.inspect.count_waits() == WaitCounts()
    parent, *_ = await add(store, *(new_job() for _ in range(5)))
    jobs = {job.id: job for job in await claim(store, instance)}
    await add_child(store, parent)
    await add_child(store, parent)
    running, asleep, awake, *waiting = jobs.values()
    await sleep(store, instance, asleep)
    await sleep(store, instance, awake, 0)
    for each in waiting:
        wait = Suspension(kind=StepKind.WAIT, name="sleep", signal="sleep", until=FOREVER_US)
        await sleep(store, instance, each, suspension=wait)
    assert await store.inspect.count_waits() == WaitCounts(parents=2, signal=2, sleep=1)
    [again] = await claim(store, instance)
    assert again.id == awake.id and running.id == parent
    assert await store.inspect.count_waits() == WaitCounts(parents=2, signal=2, sleep=1)
    assert await store.jobs.cancel([waiting[0].id, asleep.id])
    assert await store.inspect.count_waits() == WaitCounts(parents=2, signal=1, sleep=0)


async def test_one_that_failed_and_sleeps_is_counted_as_it_is_shown(store: Store) -> None:
    instance = await worker(store)
    await end(store, instance, await claimed_one(store, instance), OutcomeKind.RETRY)
    [job] = await claim(store, instance)
    await sleep(store, instance, job)
    [found] = (await store.inspect.find_page(JobFilter())).items
    assert found.view(from_us(await store.inspect.now())) == "retrying"
    counts = await store.inspect.count_jobs(JobFilter())
    assert (counts.retrying, counts.scheduled) == (1, 0)


async def test_a_sleep_is_one_attempt_on_record_and_reported_twice_a_duplicate(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await sleep(store, instance, job)
    assert await sleep(store, instance, job) is WriteStatus.DUPLICATE
    [attempt] = (await store.inspect.get_attempts([job.id]))[job.id]
    assert (attempt.outcome, attempt.token, attempt.error) == (OutcomeKind.SUSPENDED, job.token, None)


async def test_crashes_are_forgotten_and_failures_are_not(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, OutcomeKind.CRASHED)
    [job] = await claim(store, instance)
    await end(store, instance, job, OutcomeKind.RETRY)
    [job] = await claim(store, instance)
    assert (job.crashes, job.failures) == (1, 1)
    await sleep(store, instance, job, 0)
    [again] = await claim(store, instance)
    assert (again.crashes, again.failures) == (0, 1)


async def test_only_a_job_that_has_run_has_steps_to_load(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    assert not job.has_run
    await sleep(store, instance, job, 0)
    [again] = await claim(store, instance)
    assert again.has_run


@pytest.mark.parametrize("how", ["buried", "buried before it said what it started", "left", "released", "failed"])
async def test_whatever_ended_the_run_before_its_steps_are_to_be_loaded(store: Store, how: str) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    if how == "left":
        await store.instances.deregister(instance, "test")
    elif how.startswith("buried"):
        started: list[ClaimRef] | None = None if how == "buried" else []
        await store.instances.declare_dead(instance, beat=None, started=started, reason="test")
    else:
        await end(store, instance, job, OutcomeKind.RELEASED if how == "released" else OutcomeKind.RETRY)
    [again] = await claim(store, await worker(store))
    assert again.id == job.id
    assert again.has_run or again.failures or again.crashes


async def test_the_first_record_of_a_sleep_counts(store: Store) -> None:
    """Woken too early, it sleeps again until the moment on record."""
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await sleep(store, instance, job, 0)
    [first] = await steps(store, job.id)
    [again] = await claim(store, instance)
    later = await store.inspect.now() + HOUR
    await sleep(store, instance, again, suspension=Suspension(kind=StepKind.SLEEP, name="nap", until=later))
    assert await steps(store, job.id) == [first]
    assert to_us((await get_job(store, job.id)).run_at) == later


async def test_a_job_that_has_slept_cannot_expire(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, expires=HOUR)
    assert job.expires_at is not None
    await sleep(store, instance, job, 0)
    [again] = await claim(store, instance)
    assert (again.expires_at, (await get_job(store, job.id)).expires_at) == (None, None)
    await end(store, instance, again, OutcomeKind.SNOOZED)
    assert (await get_job(store, job.id)).expires_at is None


async def test_a_job_that_sleeps_beyond_its_expiry_is_not_swept(store: Store) -> None:
    instance = await worker(store)
    [id] = await add(store, new_job(expires=1))
    [job] = await claim(store, instance)
    await sleep(store, instance, job)
    assert await store.jobs.expire(100) == 0
    assert (await get_job(store, id)).state is JobState.PENDING


async def test_run_now_ends_a_sleep_on_record(store: Store) -> None:
    instance = await worker(store)
    job, other = await claimed_one(store, instance), await claimed_one(store, instance)
    await sleep(store, instance, job)
    await sleep(store, instance, other)
    assert await store.jobs.run_now([job.id]) == 1
    [again] = await claim(store, instance)
    [step] = await steps(store, job.id)
    assert again.id == job.id and step.until is not None and to_us(step.until) <= again.token
    [unchanged] = await steps(store, other.id)
    assert unchanged.until == (await get_job(store, other.id)).run_at


async def test_what_follows_a_sleep_is_not_suspended(store: Store) -> None:
    async def found() -> Job:
        return await get_job(store, job.id)

    instance = await worker(store)
    job = await claimed_one(store, instance)
    await sleep(store, instance, job, 0)
    [again] = await claim(store, instance)
    assert (await found()).suspended is None
    await end(store, instance, again, OutcomeKind.RETRY)
    assert (await found()).suspended is None
    [again] = await claim(store, instance)
    await end(store, instance, again, OutcomeKind.SUCCEEDED)
    assert ((await found()).suspended, (await found()).state) == (None, JobState.SUCCEEDED)


async def test_a_sleeping_job_is_cancelled_like_any_pending_one(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await sleep(store, instance, job)
    await store.jobs.cancel([job.id])
    found = await get_job(store, job.id)
    assert (found.state, found.suspended) == (JobState.CANCELLED, None)
    assert [step.name for step in await steps(store, job.id)] == ["nap"]


async def test_a_job_whose_cancellation_was_requested_does_not_sleep(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await store.jobs.cancel([job.id])
    await sleep(store, instance, job)
    assert (await get_job(store, job.id)).state is JobState.CANCELLED
    assert await steps(store, job.id) == []
