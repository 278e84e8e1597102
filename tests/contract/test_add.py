"""Jobs.add: all or none, the same job twice, and unique keys."""

from typing import Any

import pytest

from drumbeat.core.job import AddResult, JobState, OutcomeKind, Unique
from drumbeat.core.job_query import JobFilter
from drumbeat.ids import new_job_ids
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from tests.conftest import OpenAgain
from tests.contract.making import HOUR, add, claim, claimed_one, dead_letter, end, ids, new_job, worker


async def test_an_added_job_is_seen_by_every_store_as_it_was_given(store: Store, open_again: OpenAgain) -> None:
    before = await store.inspect.now()
    job = new_job(
        task="charge",
        queue="critical",
        args='{"amount":"9.90","who":"Ä\\u0000\U0001f600"}',
        signature="abc",
        priority=2,
        key="cust:42",
        unique=Unique.LIVE,
        retries=7,
        timeout=1_500_000,
        crash_limit=2,
        on_dead="refund",
        group="t1",
    )
    assert await store.jobs.add([job]) == [AddResult(job.id, True)]
    found = await get_job((await open_again()), job.id)
    after = await store.inspect.now()
    assert (found.id, found.task, found.queue, found.state) == (job.id, "charge", "critical", JobState.PENDING)
    assert (found.args, found.signature, found.priority, found.key) == (job.args, "abc", 2, "cust:42")
    assert (found.unique, found.retries, found.timeout, found.crash_limit) == (Unique.LIVE, 7, 1.5, 2)
    assert (found.on_dead, found.group, found.replays, found.token) == ("refund", "t1", 0, 0)
    assert (found.failures, found.crashes, found.blocked_on, found.error) == (0, 0, None, None)
    assert before <= found.created_at.timestamp() * 1_000_000 <= after
    assert found.created_at == found.due_at == found.run_at


async def test_run_at_is_kept_and_delay_is_counted_from_the_stores_now(store: Store) -> None:
    moment = await store.inspect.now() + HOUR + 7
    at, later = new_job(run_at=moment), new_job(delay=HOUR)
    await store.jobs.add([at, later])
    found = await get_job(store, at.id)
    assert round(found.run_at.timestamp() * 1_000_000) == moment
    assert found.due_at == found.run_at
    found = await get_job(store, later.id)
    assert (found.run_at - found.created_at).total_seconds() == 3600


async def test_a_large_batch_is_stored_in_order(store: Store) -> None:
    jobs = [new_job(id=id) for id in new_job_ids(1_777)]
    assert await store.jobs.add(jobs) == [AddResult(job.id, True) for job in jobs]
    instance = await worker(store)
    assert ids(await claim(store, instance, limit=2_000)) == ids(jobs)


KINDS = [
    {},
    {"task": "charge", "queue": "critical", "priority": 2, "delay": HOUR, "key": "cust:1"},
    {"signature": "abc", "retries": 7, "timeout": 1_500_000, "crash_limit": 2, "on_dead": "refund", "group": "t1"},
    {"task": "mail", "key": "cust:2", "unique": Unique.LIVE},
]


@pytest.mark.parametrize("kinds", [KINDS[:1], KINDS[1:2], KINDS[2:3], KINDS[3:], KINDS[:3], KINDS])
@pytest.mark.parametrize("count", [1, 7, 30])
async def test_jobs_of_a_batch_are_stored_as_they_were_given_however_alike_they_are(
    store: Store, kinds: list[dict[str, Any]], count: int
) -> None:
    jobs = [
        new_job(**kind | ({"key": f"cust:{number}"} if "key" in kind else {}), args=f'{{"number":{number}}}')
        for number in range(count)
        for kind in kinds
    ]
    assert await store.jobs.add(jobs) == [AddResult(job.id, True) for job in jobs]
    for job in jobs:
        found = await get_job(store, job.id)
        for field in ("task", "queue", "args", "signature", "priority", "key", "unique", "retries", "crash_limit"):
            assert getattr(found, field) == getattr(job, field)
        assert (found.on_dead, found.group) == (job.on_dead, job.group)
        assert found.timeout == (None if job.timeout is None else 1.5)
        assert (found.run_at - found.created_at).total_seconds() * 1_000_000 == job.delay
        assert found.due_at == found.run_at


async def test_those_of_a_large_batch_that_were_there_are_told_apart(store: Store) -> None:
    instance = await worker(store)
    jobs = [new_job(id=id) for id in new_job_ids(40)]
    await store.jobs.add(jobs[:10])
    [claimed, *_] = await claim(store, instance, limit=1)
    await end(store, instance, claimed, OutcomeKind.SUCCEEDED)
    assert [added.created for added in await store.jobs.add([*jobs, jobs[-1]])] == [False] * 10 + [True] * 30 + [False]
    assert ids(await claim(store, instance, limit=100)) == ids(jobs[1:])


async def test_nothing_to_add_is_nothing_done(store: Store) -> None:
    assert await store.jobs.add([]) == []
    assert await find_jobs(store, JobFilter()) == []


async def test_a_batch_with_a_job_that_cannot_be_stored_stores_none(store: Store) -> None:
    good, bad = new_job(), new_job(priority=10)
    with pytest.raises(Exception, match=r"(?i)priority|constraint|check"):
        await store.jobs.add([good, bad])
    assert await find_jobs(store, JobFilter()) == []


async def test_an_id_that_is_live_is_not_stored_again(store: Store) -> None:
    job = new_job()
    await store.jobs.add([job])
    other = new_job()
    again = new_job(id=job.id, args='{"name":"Eve"}')
    assert await store.jobs.add([again, other]) == [AddResult(job.id, False), AddResult(other.id, True)]
    assert (await get_job(store, job.id)).args == job.args
    assert len(await find_jobs(store, JobFilter())) == 2


async def test_the_same_id_twice_in_one_call_is_one_job(store: Store) -> None:
    job = new_job()
    assert await store.jobs.add([job, job]) == [AddResult(job.id, True), AddResult(job.id, False)]


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.CANCELLED, OutcomeKind.DEAD])
async def test_adding_again_after_the_job_has_ended_starts_no_second_life(store: Store, kind: OutcomeKind) -> None:
    instance = await worker(store)
    job = new_job()
    await store.jobs.add([job])
    [claimed] = await claim(store, instance)
    await end(store, instance, claimed, kind)
    unique = new_job(id=job.id, key="k", unique=Unique.LIVE)
    assert await store.jobs.add([job]) == [AddResult(job.id, False)]
    assert await store.jobs.add([unique]) == [AddResult(job.id, False)]
    assert await claim(store, instance) == []


@pytest.mark.parametrize("unique", [Unique.LIVE, Unique.PENDING])
async def test_a_pending_unique_job_makes_another_unnecessary(store: Store, unique: Unique) -> None:
    first, second = new_job(key="k", unique=unique), new_job(key="k", unique=unique)
    await store.jobs.add([first])
    assert await store.jobs.add([second]) == [AddResult(first.id, False)]
    assert ids(await find_jobs(store, JobFilter())) == [first.id]


async def test_each_kind_of_unique_sees_the_other_kind(store: Store) -> None:
    live, pending = new_job(key="a", unique=Unique.LIVE), new_job(key="b", unique=Unique.PENDING)
    await store.jobs.add([live, pending])
    answers = await store.jobs.add([new_job(key="a", unique=Unique.PENDING), new_job(key="b", unique=Unique.LIVE)])
    assert answers == [AddResult(live.id, False), AddResult(pending.id, False)]


async def test_a_running_job_holds_its_key_against_live_but_not_against_pending(store: Store) -> None:
    instance = await worker(store)
    first = await claimed_one(store, instance, key="k", unique=Unique.PENDING)
    live, pending = new_job(key="k", unique=Unique.LIVE), new_job(key="k", unique=Unique.PENDING)
    assert await store.jobs.add([live]) == [AddResult(first.id, False)]
    assert await store.jobs.add([pending]) == [AddResult(pending.id, True)]


async def test_a_running_job_unique_as_live_does_not_swallow_news(store: Store) -> None:
    instance = await worker(store)
    await claimed_one(store, instance, key="k", unique=Unique.LIVE)
    news = new_job(key="k", unique=Unique.PENDING)
    assert await store.jobs.add([news]) == [AddResult(news.id, True)]


async def test_only_unique_jobs_of_the_same_task_and_key_collide(store: Store) -> None:
    held = new_job(key="k", unique=Unique.LIVE)
    free = [
        new_job(key="k"),
        new_job(key="other", unique=Unique.LIVE),
        new_job(task="other", key="k", unique=Unique.LIVE),
    ]
    await store.jobs.add([held])
    assert await store.jobs.add(free) == [AddResult(job.id, True) for job in free]
    plain = new_job(key="only plain")
    await store.jobs.add([plain])
    assert (await store.jobs.add([new_job(key="only plain", unique=Unique.LIVE)]))[0].created


async def test_two_of_one_call_collide(store: Store) -> None:
    first, second, third = (new_job(key="k", unique=unique) for unique in (Unique.LIVE, Unique.PENDING, Unique.LIVE))
    answers = await store.jobs.add([first, second, third])
    assert answers == [AddResult(first.id, True), AddResult(first.id, False), AddResult(first.id, False)]


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.CANCELLED, OutcomeKind.DEAD])
async def test_a_key_is_free_once_its_job_has_ended(store: Store, kind: OutcomeKind) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, key="k", unique=Unique.LIVE)
    await end(store, instance, job, kind)
    following = new_job(key="k", unique=Unique.LIVE)
    assert await store.jobs.add([following]) == [AddResult(following.id, True)]


async def test_a_job_that_returns_to_a_taken_key_comes_back_as_not_unique(store: Store) -> None:
    instance = await worker(store)
    first = await claimed_one(store, instance, key="k", unique=Unique.PENDING)
    second = await claimed_one(store, instance, key="k", unique=Unique.PENDING)
    [third] = await add(store, new_job(key="k", unique=Unique.PENDING))
    await end(store, instance, first, OutcomeKind.RETRY)
    await end(store, instance, second, OutcomeKind.SNOOZED)
    uniques = [(await get_job(store, id)).unique for id in (first.id, second.id, third)]
    assert uniques == [Unique.NO, Unique.NO, Unique.PENDING]
    assert (await store.jobs.add([new_job(key="k", unique=Unique.PENDING)]))[0].id == third


async def test_a_job_that_lost_its_key_is_still_found_by_it(store: Store) -> None:
    instance = await worker(store)
    first = await claimed_one(store, instance, key="k", unique=Unique.PENDING)
    [second] = await add(store, new_job(key="k", unique=Unique.PENDING))
    await end(store, instance, first, OutcomeKind.RETRY, delay=HOUR)
    page = await store.inspect.find_page(JobFilter(key="k", state=JobState.PENDING))
    assert ids(page.items) == [second, first.id]


async def test_of_two_that_return_together_to_a_free_key_one_keeps_it(store: Store) -> None:
    instance = await worker(store)
    first = await claimed_one(store, instance, key="k", unique=Unique.PENDING)
    second = await claimed_one(store, instance, key="k", unique=Unique.PENDING)
    await store.instances.deregister(instance, "bye")
    uniques = sorted([(await get_job(store, id)).unique for id in (first.id, second.id)])
    assert uniques == [Unique.NO, Unique.PENDING]


async def test_a_dead_letter_holds_no_key(store: Store) -> None:
    instance = await worker(store)
    await dead_letter(store, instance, key="k", unique=Unique.LIVE)
    assert (await store.jobs.add([new_job(key="k", unique=Unique.LIVE)]))[0].created
