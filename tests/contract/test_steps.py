"""Steps: what a run records of itself, fenced by its claim, and what later runs of the job read."""

import asyncio

import pytest

from drumbeat.core.claim import ClaimedJob, ClaimRef, WriteStatus
from drumbeat.core.job import OutcomeKind
from drumbeat.core.step import NewStep, StepKind
from drumbeat.ids import JobId, new_job_id
from drumbeat.store.protocol import Store
from tests.conftest import OpenAgain
from tests.contract.making import claim, claimed_one, end, hold, worker

APPLIED, STALE = WriteStatus.APPLIED, WriteStatus.STALE


def step(job: ClaimedJob, name: str = "charge", result: str = '{"id":7}', at: int = 0) -> NewStep:
    started = job.token + at
    return NewStep(
        claim=ClaimRef(job.id, job.token), name=name, started_at=started, finished_at=started + 5, result=result
    )


async def names(store: Store, id: JobId) -> list[str]:
    return [each.name for each in (await store.steps.load([id]))[id]]


async def test_a_recorded_step_is_read_by_every_store(store: Store, open_again: OpenAgain) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    assert await store.steps.record(instance, [step(job)]) == [APPLIED]
    [found] = (await (await open_again()).steps.load([job.id]))[job.id]
    assert (found.job, found.kind, found.name, found.result) == (job.id, StepKind.STEP, "charge", '{"id":7}')
    assert (found.token, found.until, found.signal) == (job.token, None, None)
    assert round(found.started_at.timestamp() * 1e6) == job.token
    assert found.finished_at is not None and round(found.finished_at.timestamp() * 1e6) == job.token + 5


async def test_steps_are_in_the_order_in_which_they_began(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await store.steps.record(instance, [step(job, name, at=at) for name, at in [("c", 30), ("a", 20), ("b", 10)]])
    assert await names(store, job.id) == ["b", "a", "c"]


async def test_one_call_records_steps_of_many_jobs(store: Store) -> None:
    instance = await worker(store)
    jobs = [await claimed_one(store, instance) for _ in range(3)]
    assert await store.steps.record(instance, [step(job, name) for job in jobs for name in ("a", "b")]) == [APPLIED] * 6
    found = await store.steps.load([job.id for job in jobs])
    assert [[each.name for each in steps] for steps in found.values()] == [["a", "b"]] * 3


async def test_the_first_record_of_a_name_counts(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    assert await store.steps.record(instance, [step(job, result="1")]) == [APPLIED]
    assert await store.steps.record(instance, [step(job, result="2"), step(job, "ship")]) == [APPLIED, APPLIED]
    assert [each.result for each in (await store.steps.load([job.id]))[job.id]] == ["1", '{"id":7}']


async def test_names_and_results_are_kept_exactly(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    odd = 'page:7 "ä"\n\\ {} \U0001f600'
    big = '"' + "x" * 200_000 + '"'
    await store.steps.record(instance, [step(job, odd, "null"), step(job, "big", big)])
    assert {each.name: each.result for each in (await store.steps.load([job.id]))[job.id]} == {odd: "null", "big": big}


async def test_nothing_is_recorded_for_a_claim_of_another(store: Store) -> None:
    instance, other = await worker(store), await worker(store)
    job = await claimed_one(store, instance)
    assert await store.steps.record(other, [step(job)]) == [STALE]
    assert await names(store, job.id) == []


async def test_a_job_that_nobody_knows_has_no_steps(store: Store) -> None:
    instance = await worker(store)
    job, unknown = await claimed_one(store, instance), new_job_id()
    lost = NewStep(claim=ClaimRef(unknown, 1), name="a", started_at=1, finished_at=2, result="1")
    assert await store.steps.record(instance, [lost, step(job)]) == [STALE, APPLIED]
    assert (await store.steps.load([unknown, JobId("nonsense")])) == {unknown: [], "nonsense": []}
    assert await store.steps.record(instance, []) == []


async def test_the_step_of_an_earlier_claim_is_refused(store: Store) -> None:
    """The job was given back and claimed again, by the same instance: only the newest claim counts."""
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, OutcomeKind.RELEASED)
    [again] = await claim(store, instance)
    assert await store.steps.record(instance, [step(job, "old"), step(again, "new")]) == [STALE, APPLIED]
    assert await names(store, job.id) == ["new"]


async def test_the_step_of_a_buried_instance_is_refused(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await store.instances.declare_dead(instance, beat=None, started=[hold(job)], reason="silent")
    assert await store.steps.record(instance, [step(job)]) == [STALE]
    assert await names(store, job.id) == []


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.DEAD, OutcomeKind.CANCELLED])
async def test_the_step_of_a_run_that_has_ended_is_refused(store: Store, kind: OutcomeKind) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, kind)
    assert await store.steps.record(instance, [step(job)]) == [STALE]


async def test_burial_and_steps_at_once_leave_no_step_behind_it(store: Store, open_again: OpenAgain) -> None:
    """Whichever comes first: what is on record was recorded before the burial, and a later run reads it."""
    second = await open_again()
    for _ in range(20):
        instance, heir = await worker(store), await worker(store)
        job = await claimed_one(store, instance)

        async def zombie(instance: str = instance, job: ClaimedJob = job) -> list[WriteStatus]:
            return await second.steps.record(instance, [step(job, "zombie")])  # type: ignore[arg-type]

        async with asyncio.TaskGroup() as group:
            recorded = group.create_task(zombie())
            group.create_task(store.instances.declare_dead(instance, beat=None, started=[], reason="silent"))
        seen = await names(store, job.id)
        assert seen == (["zombie"] if recorded.result() == [APPLIED] else [])
        [again] = await claim(store, heir)
        assert await names(store, job.id) == seen
        await end(store, heir, again, OutcomeKind.SUCCEEDED)


async def test_a_retry_reads_what_runs_before_have_recorded(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await store.steps.record(instance, [step(job, "a")])
    await end(store, instance, job, OutcomeKind.RETRY)
    [again] = await claim(store, instance)
    await store.steps.record(instance, [step(again, "b")])
    assert [(each.name, each.token) for each in (await store.steps.load([job.id]))[job.id]] == [
        ("a", job.token),
        ("b", again.token),
    ]


async def test_steps_stay_with_a_dead_letter_and_its_replay(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await store.steps.record(instance, [step(job)])
    await end(store, instance, job, OutcomeKind.DEAD)
    assert await names(store, job.id) == ["charge"]
    await store.jobs.replay([job.id])
    [again] = await claim(store, instance)
    assert (again.id, await names(store, job.id)) == (job.id, ["charge"])


async def test_steps_are_pruned_with_history(store: Store) -> None:
    instance = await worker(store)
    job, dead = await claimed_one(store, instance), await claimed_one(store, instance)
    await store.steps.record(instance, [step(job), step(dead)])
    await end(store, instance, dead, OutcomeKind.DEAD)
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    assert await names(store, job.id) == ["charge"]
    assert await store.jobs.prune(await store.inspect.now() + 1, 100) == 1
    assert (await names(store, job.id), await names(store, dead.id)) == ([], ["charge"])
