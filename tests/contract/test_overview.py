"""What people see at a glance: groups of dead letters, who leads, how many jobs are before one."""

import random
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.claim import blocked_on_task
from drumbeat.core.job import Failure, NewJob, OutcomeKind
from drumbeat.durations import to_us
from drumbeat.errors import JobNotFound
from drumbeat.ids import InstanceId, JobId, new_job_id
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from tests.contract.making import HOUR, add, claim, claimed_one, end, exchange, new_job, outcome, wanting, worker

SECOND = 1_000_000
MINUTE = 60 * SECOND


async def die(store: Store, instance: InstanceId, task: str, error: Failure | None, at: int) -> JobId:
    job = await claimed_one(store, instance, task=task)
    await end(store, instance, job, OutcomeKind.DEAD, error=error, started_at=at - 10, finished_at=at)
    return job.id


async def test_dead_letters_are_grouped_by_task_and_type_of_error(store: Store) -> None:
    me, now = await worker(store), await store.inspect.now()
    await die(store, me, "a", Failure("ValueError", "first", "trace"), now - 3 * MINUTE)
    newest = await die(store, me, "a", Failure("ValueError", 'last "ü" \\', "trace\n" * 500), now - MINUTE)
    await die(store, me, "a", Failure("ValueError", "middle", ""), now - 2 * MINUTE)
    odd = await die(store, me, "a", Failure('Odd"\\Error', "odd", ""), now - 4 * MINUTE)
    other = await die(store, me, "b", Failure("ValueError", "other", ""), now)
    await end(store, me, await claimed_one(store, me), OutcomeKind.SUCCEEDED)

    groups = await store.inspect.group_dead_letters(10)
    assert [(each.task, each.error, each.count, each.sample, each.message) for each in groups] == [
        ("a", "ValueError", 3, newest, 'last "ü" \\'),
        ("b", "ValueError", 1, other, "other"),
        ("a", 'Odd"\\Error', 1, odd, "odd"),
    ]
    assert (to_us(groups[0].first_at), to_us(groups[0].last_at)) == (now - 3 * MINUTE, now - MINUTE)
    assert await store.inspect.group_dead_letters(1) == groups[:1]
    assert await store.inspect.group_dead_letters(0) == []


async def test_only_the_newest_dead_letters_are_looked_at(store: Store) -> None:
    me, now = await worker(store), await store.inspect.now()
    for number, task in enumerate(("old", "a", "a")):
        await die(store, me, task, Failure("E", "m", ""), now - number * MINUTE)
    assert [(each.task, each.count) for each in await store.inspect.group_dead_letters(10, max_letters=2)] == [("a", 2)]


async def test_many_dead_letters_are_grouped_alike(store: Store) -> None:
    me, now = await worker(store), await store.inspect.now()
    await add(store, *(new_job(f"t{number % 3}") for number in range(1_200)))
    jobs = await claim(store, me, limit=1_200)
    deaths = [
        outcome(
            job, OutcomeKind.DEAD, error=Failure(f"E{place % 2}", f"m{place}"), started_at=now, finished_at=now + place
        )
        for place, job in enumerate(jobs)
    ]
    await exchange(store, me, deaths, wanting(limit=0))
    expected: dict[tuple[str, str], list[int]] = {}
    for place, job in enumerate(jobs):
        expected.setdefault((job.task, f"E{place % 2}"), []).append(place)
    found = {(each.task, each.error): each for each in await store.inspect.group_dead_letters(10)}
    assert {name: each.count for name, each in found.items()} == {name: len(of) for name, of in expected.items()}
    for name, places in expected.items():
        group = found[name]
        assert (to_us(group.first_at) - now, to_us(group.last_at) - now) == (places[0], places[-1])
        assert (group.sample, group.message) == (jobs[places[-1]].id, f"m{places[-1]}")


async def test_a_letter_that_was_replayed_or_discarded_is_in_no_group(store: Store) -> None:
    me, now = await worker(store), await store.inspect.now()
    ids = [await die(store, me, "a", Failure("E", "m", ""), now) for _ in range(3)]
    await store.jobs.replay(ids[:1])
    await store.jobs.discard(ids[1:2])
    assert [(each.count, each.sample) for each in await store.inspect.group_dead_letters(10)] == [(1, ids[2])]


async def test_the_leader_is_seen_with_its_term_and_its_lease(store: Store) -> None:
    assert await store.inspect.get_leader() is None
    first, second = await worker(store), await worker(store)
    before = await store.inspect.now()
    await store.instances.heartbeat(first, 0, lead=HOUR)
    leader = await store.inspect.get_leader()
    after = await store.inspect.now()
    assert leader is not None
    assert (leader.instance, leader.term) == (first, 1)
    assert before <= to_us(leader.since) <= after
    assert leader.until - leader.since == timedelta(hours=1)

    await store.instances.heartbeat(first, 0, lead=HOUR)
    renewed = await store.inspect.get_leader()
    assert renewed is not None and renewed.since == leader.since and renewed.until > leader.until

    await store.instances.deregister(first, "done")
    assert await store.inspect.get_leader() is None
    await store.instances.heartbeat(second, 0, lead=HOUR)
    other = await store.inspect.get_leader()
    assert other is not None and (other.instance, other.term) == (second, 2)
    assert other.since > leader.since


async def test_a_lease_that_has_run_out_makes_no_leader(store: Store) -> None:
    await store.instances.heartbeat(await worker(store), 0, lead=0)
    assert await store.inspect.get_leader() is None


async def ahead(store: Store, id: JobId, **options: Any) -> int:
    return await store.inspect.count_ahead(await get_job(store, id), **options)


async def test_the_number_of_jobs_ahead_is_the_place_in_the_order_of_claims(store: Store) -> None:
    me, now = await worker(store), await store.inspect.now()
    chance = random.Random(7)
    jobs: list[NewJob] = []
    for _ in range(60):
        moment = now + chance.choice((-HOUR, -HOUR, -MINUTE, -1, HOUR))
        jobs.append(new_job(priority=chance.choice((0, 4, 5, 9)), run_at=moment))
    chance.shuffle(jobs)
    others = [new_job(queue="other", priority=priority, run_at=now - 2 * HOUR) for priority in (0, 4, 5, 9)]
    await add(store, *jobs, *others)
    ready = [job.id for job in jobs if job.run_at is not None and job.run_at < now]
    told = {id: await ahead(store, id) for id in ready}
    claimed = [job.id for _ in ready for job in await claim(store, me, limit=1)]
    assert sorted(told, key=lambda id: told[id]) == claimed
    assert sorted(told.values()) == list(range(len(ready)))


async def test_a_job_that_is_not_due_yet_is_placed_as_if_it_were(store: Store) -> None:
    urgent, later, last = (
        new_job(priority=0, delay=HOUR),
        new_job(priority=5, delay=HOUR),
        new_job(priority=9, delay=HOUR),
    )
    await add(store, *(new_job(priority=5) for _ in range(3)), urgent, later, last)
    assert [await ahead(store, job.id) for job in (urgent, later, last)] == [0, 3, 3]


async def test_no_more_are_counted_than_were_asked_for(store: Store) -> None:
    ids = await add(store, *(new_job(priority=number % 10) for number in range(30)))
    last = max([(await ahead(store, id), id) for id in ids])[1]
    assert [await ahead(store, last, limit=limit) for limit in (0, 7, 29, 30)] == [0, 7, 29, 29]


async def test_a_job_that_runs_waits_or_has_ended_is_ahead_of_nobody_and_nobody_of_it(store: Store) -> None:
    me = await worker(store)
    running, done, blocked = [await claimed_one(store, me) for _ in range(3)]
    await end(store, me, done, OutcomeKind.SUCCEEDED)
    await end(
        store, me, blocked, OutcomeKind.BLOCKED, blocked_on=blocked_on_task("greet"), started_at=None, finished_at=None
    )
    await add(store, *(new_job(priority=0) for _ in range(3)))
    assert [await ahead(store, job.id) for job in (running, done, blocked)] == [0, 0, 0]
    assert [await ahead(store, id) for id in await add(store, new_job(), new_job(priority=9))] == [3, 4]


async def test_a_job_that_is_nowhere_has_no_place(store: Store) -> None:
    for id in (new_job_id(), JobId("no such id")):
        with pytest.raises(JobNotFound):
            await ahead(store, id)
