"""Large batches are copied into the table: what is stored, and what is refused, is the same as with an INSERT."""

from typing import Any

import msgspec
import pytest

from drumbeat.core.job import Job, NewJob, OutcomeKind, Unique
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import StoreError
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.postgres import PostgresStore
from drumbeat.store.postgres.insert import MIN_COPY_JOBS
from tests.contract.making import HOUR, add, claim, claimed_one, end, ids, new_job, worker


def batch(*first: NewJob, **options: Any) -> list[NewJob]:
    """These and so many more that they are copied."""
    return [*first, *(new_job(**options) for _ in range(MIN_COPY_JOBS))]


async def add_and_load(postgres: PostgresStore, *jobs: NewJob) -> list[Job]:
    await add(postgres, *jobs)
    return [await get_job(postgres, job.id) for job in jobs]


def comparable_fields(job: Job) -> dict[str, Any]:
    """What does not depend on the time of the call."""
    return {name: value for name, value in msgspec.structs.asdict(job).items() if name not in {"id", "created_at"}}


async def test_every_column_arrives_as_by_an_insert_whether_jobs_share_it_or_not(postgres: PostgresStore) -> None:
    now = await postgres.inspect.now()
    shared = {"run_at": now + HOUR, "signature": "0123456789ab"}
    several = [
        new_job(**shared),  # type: ignore[arg-type]
        new_job("other", queue="Ä b", args='{"text":"ä€\U0001f600"}', priority=0, key="k ä", retries=7, **shared),
        new_job(timeout=2**62, crash_limit=1, on_dead="greet.on_dead", group="t", trace="00-ab-cd-01", **shared),  # type: ignore[arg-type]
        new_job(args=f'{{"x":"{"y" * 5000}"}}', key="u", unique=Unique.LIVE, run_at=now, signature="s"),
    ]
    again = [msgspec.structs.replace(job, id=new_job().id, key=job.key and job.key + "2") for job in several]

    one_by_one = [(await add_and_load(postgres, job))[0] for job in several]
    await add(postgres, *batch(*again))
    copied = [await get_job(postgres, job.id) for job in again]

    wanted = [msgspec.structs.replace(job, key=job.key and job.key + "2") for job in one_by_one]
    assert list(map(comparable_fields, copied)) == list(map(comparable_fields, wanted))


async def test_delays_count_from_the_stores_now_in_a_batch_of_both_kinds(postgres: PostgresStore) -> None:
    now = await postgres.inspect.now()
    later, at = new_job(delay=HOUR), new_job(run_at=now + 2 * HOUR)

    await add(postgres, *batch(later, at))

    first, second = await get_job(postgres, later.id), await get_job(postgres, at.id)
    assert (first.due_at - first.created_at).total_seconds() == 3600
    assert first.run_at == first.due_at
    assert int(second.due_at.timestamp() * 1_000_000) == now + 2 * HOUR


async def test_of_a_batch_only_the_job_whose_key_is_held_is_not_stored(postgres: PostgresStore) -> None:
    holder = new_job(key="held", unique=Unique.LIVE)
    await add(postgres, holder)

    jobs = [new_job(key=f"key-{number}", unique=Unique.LIVE) for number in range(MIN_COPY_JOBS)]
    answers = await postgres.jobs.add([*jobs, new_job(key="held", unique=Unique.LIVE)])

    assert [answer.created for answer in answers] == [True] * MIN_COPY_JOBS + [False]
    assert answers[-1].id == holder.id


async def test_a_key_twice_in_one_batch_is_stored_once(postgres: PostgresStore) -> None:
    jobs = [new_job(key=f"key-{number % MIN_COPY_JOBS}", unique=Unique.LIVE) for number in range(MIN_COPY_JOBS + 1)]

    answers = await postgres.jobs.add(jobs)

    assert not answers[-1].created
    assert answers[-1].id == answers[0].id


@pytest.mark.parametrize("ending", [None, OutcomeKind.SNOOZED])
async def test_a_key_that_is_held_by_a_job_of_the_other_kind_is_seen(
    postgres: PostgresStore, ending: OutcomeKind | None
) -> None:
    """Running, or pending once more: the unique indexes do not see these."""
    instance = await worker(postgres)
    holder = await claimed_one(postgres, instance, key="held", unique=Unique.PENDING)
    if ending is not None:
        await end(postgres, instance, holder, ending, delay=HOUR)

    jobs = [new_job(key=f"key-{number}", unique=Unique.LIVE) for number in range(MIN_COPY_JOBS)]
    answers = await postgres.jobs.add([*jobs, new_job(key="held", unique=Unique.LIVE)])

    assert [answer.created for answer in answers] == [True] * MIN_COPY_JOBS + [False]
    assert answers[-1].id == holder.id


async def test_a_large_batch_of_pending_keys_sees_a_retrying_job_of_the_other_kind(postgres: PostgresStore) -> None:
    instance = await worker(postgres)
    holder = await claimed_one(postgres, instance, key="held", unique=Unique.LIVE)
    await end(postgres, instance, holder, OutcomeKind.SNOOZED, delay=HOUR)

    jobs = [new_job(key=f"key-{number}", unique=Unique.PENDING) for number in range(MIN_COPY_JOBS)]
    answers = await postgres.jobs.add([*jobs, new_job(key="held", unique=Unique.PENDING)])

    assert answers[-1].id == holder.id
    assert sum(answer.created for answer in answers) == MIN_COPY_JOBS


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.DEAD, OutcomeKind.CANCELLED])
async def test_of_a_batch_the_job_that_has_ended_is_not_stored_again(
    postgres: PostgresStore, kind: OutcomeKind
) -> None:
    instance = await worker(postgres)
    jobs = batch()
    ended = jobs[MIN_COPY_JOBS // 2]
    await add(postgres, ended)
    [claimed] = await claim(postgres, instance)
    await end(postgres, instance, claimed, kind)

    answers = await postgres.jobs.add(jobs)

    assert [answer.id for answer in answers if not answer.created] == [ended.id]
    assert len(await claim(postgres, instance, limit=2 * MIN_COPY_JOBS)) == MIN_COPY_JOBS - 1


async def test_jobs_of_others_that_end_among_the_ids_of_a_batch_are_no_reason_to_store_it_twice(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = await worker(postgres)
    before = batch()
    for kind in (OutcomeKind.SUCCEEDED, OutcomeKind.DEAD):
        await end(postgres, instance, await claimed_one(postgres, instance), kind)

    async def one_by_one(*_: object) -> None:
        pytest.fail("the copy was undone")

    monkeypatch.setattr(postgres._parts.inserter, "_insert_unknown", one_by_one)
    assert all(answer.created for answer in await postgres.jobs.add([*before, *batch()]))


@pytest.mark.parametrize(
    "change",
    [
        {"id": "0199-no-uuid"},
        {"id": "0199a0b1c2d37e4f8a5b6c7d8e9f0a1b2c3d"},
        {"args": '{"x":"\ud800"}'},
        {"run_at": 2**63},
        {"priority": 10},
    ],
)
async def test_a_batch_with_something_that_cannot_be_stored_is_refused_whole(
    postgres: PostgresStore, change: dict[str, Any]
) -> None:
    jobs = [*batch(), msgspec.structs.replace(new_job(), **change)]

    with pytest.raises(StoreError):
        await postgres.jobs.add(jobs)

    assert await find_jobs(postgres, JobFilter(limit=1)) == []
    assert ids(await postgres.jobs.add(batch()[:1])), "the connection is as good as before"
