"""What is particular to jobs in Redis: buckets, scores, what is remembered of claims, and that nothing is left over."""

import asyncio

import pytest

from drumbeat.core.claim import ClaimRef
from drumbeat.core.job import JobState, OutcomeKind, Unique
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import InvalidArguments
from drumbeat.ids import new_job_ids, pack_id
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.redis import RedisStore
from tests.contract.making import (
    HOUR,
    add,
    claim,
    claimed_one,
    dead_letter,
    end,
    hold,
    ids,
    new_job,
    outcome,
    report,
    worker,
)
from tests.engines.redis.conftest import address_of, open_redis
from tests.servers.redis import RedisServer


async def test_a_bucket_that_one_call_cannot_look_through_is_listed_in_order(redis: RedisStore) -> None:
    wanted = new_job_ids(7_000)
    await add(redis, *(new_job(id=id, queue="a" if number % 2 else "b") for number, id in enumerate(wanted)))
    seen: list[str] = []
    before = None
    while len(seen) < 900:
        page = ids(await find_jobs(redis, JobFilter(before=before, limit=300)))
        seen += page
        before = page[-1]
    assert seen == wanted[::-1][:900]
    odd = await find_jobs(redis, JobFilter(queue="a", state=JobState.PENDING, before=wanted[3_000], limit=100))
    assert ids(odd) == wanted[2_999:0:-2][:100]
    assert await find_jobs(redis, JobFilter(task="nobody")) == []


async def test_a_token_that_the_server_writes_with_an_exponent_is_the_same_token(redis: RedisStore) -> None:
    instance = await worker(redis)
    job = await claimed_one(redis, instance)
    token = 1_800_000_000_000_000
    await redis._pool.command("ZADD", redis._pool.keys.held(instance), token, pack_id(job.id))
    assert [each.token for each in await redis.jobs.list_running(instance)] == [token]
    await redis.jobs.cancel([job.id])
    assert [each.token for each in (await redis.instances.heartbeat(instance, 1)).cancel_requests] == [token]
    assert (await get_job(redis, job.id)).token == token
    [verdict] = await report(redis, instance, outcome(ClaimRef(job.id, token), OutcomeKind.SUCCEEDED))
    assert verdict == "applied"


async def test_the_token_of_a_replayed_job_goes_on_from_its_last_run_whatever_the_clock_says(redis: RedisStore) -> None:
    instance = await worker(redis)
    job = await claimed_one(redis, instance)
    token = 4_000_000_000_000_000  # of a server whose clock was ahead
    await redis._pool.command("ZADD", redis._pool.keys.held(instance), token, pack_id(job.id))
    assert await report(redis, instance, outcome(ClaimRef(job.id, token), OutcomeKind.DEAD)) == ["applied"]
    await redis.jobs.replay([job.id])
    [again] = await claim(redis, instance)
    assert again.id == job.id and again.token > token


async def test_a_success_told_by_a_store_that_did_not_claim_it_frees_its_key_and_is_counted(
    redis: RedisStore, url: str
) -> None:
    instance = await worker(redis)
    jobs = [await claimed_one(redis, instance, key="k", unique=Unique.LIVE), await claimed_one(redis, instance)]
    async with await RedisStore.open(address_of(url)) as other:
        assert await report(other, instance, *(outcome(job, OutcomeKind.SUCCEEDED) for job in jobs)) == ["applied"] * 2
    [stats] = await redis.inspect.list_tasks()
    assert (stats.pending, stats.running, stats.succeeded) == (0, 0, 2)
    assert (await redis.jobs.add([new_job(key="k", unique=Unique.LIVE)]))[0].created


async def test_many_that_were_claimed_together_end_in_parts(redis: RedisStore) -> None:
    instance = await worker(redis)
    await add(redis, *(new_job() for _ in range(100)))
    jobs = await claim(redis, instance)
    assert len({job.token for job in jobs}) == 1
    outcomes = [outcome(job, OutcomeKind.SUCCEEDED) for job in jobs]
    assert await report(redis, instance, *outcomes[:60]) == ["applied"] * 60
    assert await report(redis, instance, *outcomes[30:]) == ["duplicate"] * 30 + ["applied"] * 40
    assert await redis.jobs.list_running(instance) == []
    [stats] = await redis.inspect.list_tasks()
    assert (stats.pending, stats.running, stats.succeeded) == (0, 0, 100)


async def test_of_many_jobs_with_one_key_all_are_found_and_none_is_left(redis: RedisStore) -> None:
    instance = await worker(redis)
    added = await add(redis, *(new_job(key="k") for _ in range(5)))
    jobs = await claim(redis, instance)
    for job in (jobs[2], jobs[0], jobs[4]):
        await end(redis, instance, job, OutcomeKind.SUCCEEDED)
    live = await find_jobs(redis, JobFilter(task="greet", key="k", state=JobState.RUNNING))
    assert ids(live) == [added[3], added[1]]
    assert await redis.jobs.cancel_keys("greet", ["k"]) == ["requested"] * 2


async def test_when_everything_has_ended_and_is_pruned_nothing_is_left(redis: RedisStore) -> None:
    instance = await worker(redis)
    for kind in (OutcomeKind.SUCCEEDED, OutcomeKind.CANCELLED):
        for options in ({}, {"key": "k"}, {"key": "k", "unique": Unique.LIVE}, {"key": "k", "unique": Unique.PENDING}):
            job = await claimed_one(redis, instance, **options)
            await redis.jobs.save_progress(instance, [(hold(job), "1")])
            await redis.jobs.cancel([job.id])
            await end(redis, instance, job, kind)
    for kind in (
        OutcomeKind.RETRY,
        OutcomeKind.SNOOZED,
        OutcomeKind.CRASHED,
        OutcomeKind.RELEASED,
        OutcomeKind.BLOCKED,
    ):
        job = await claimed_one(redis, instance, key="k", unique=Unique.PENDING)
        await end(redis, instance, job, kind, blocked_on="task:x")
        jobs = await claim(redis, instance, wants=["task:x"])
        await end(redis, instance, jobs[0], OutcomeKind.SUCCEEDED)
    waiting = await claimed_one(redis, instance)
    await end(redis, instance, waiting, OutcomeKind.BLOCKED, blocked_on="version:x", started_at=None)
    await redis.jobs.expire_blocked("version:", await redis.inspect.now() + 1, 10)
    letters = [await dead_letter(redis, instance, key="k", unique=Unique.LIVE), waiting]
    await redis.jobs.replay([letters[0].id])
    [again] = await claim(redis, instance)
    await end(redis, instance, again, OutcomeKind.DEAD)
    assert await redis.jobs.discard(ids(letters)) == 2
    [future] = await add(redis, new_job(delay=HOUR, key="k"))
    await redis.jobs.run_now([future])
    await redis.jobs.cancel([future])
    assert await redis.jobs.prune(await redis.inspect.now() + HOUR, 1_000) == 16
    left = await redis._pool.command("KEYS", "*")
    names = {key.decode().partition(":")[2].partition(":")[0] for key in left}
    assert names == {"meta", "alive", "inst"}


async def test_calls_that_come_together_are_stored_together(own_server: RedisServer) -> None:
    async with await open_redis(own_server) as store:
        await add(store, new_job())
        own_server.ask("CONFIG", "RESETSTAT")
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(store.jobs.add([new_job(), new_job()])) for _ in range(300)]
        assert all(added.created for call in calls for added in call.result())
        assert own_server.ask("INFO", "commandstats")["cmdstat_evalsha"]["calls"] < 10
        [stats] = await store.inspect.list_tasks()
        assert stats.pending == 601


async def test_a_call_that_cannot_be_stored_does_no_harm_to_those_that_came_with_it(redis: RedisStore) -> None:
    async def bad() -> None:
        with pytest.raises(InvalidArguments, match="priority"):
            await redis.jobs.add([new_job(), new_job(priority=10)])

    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(add(redis, new_job())) for _ in range(5)]
        group.create_task(bad())
        calls += [group.create_task(add(redis, new_job())) for _ in range(5)]
    wanted = sorted((id for call in calls for id in call.result()), reverse=True)
    assert ids(await find_jobs(redis, JobFilter())) == wanted


@pytest.mark.parametrize("ending", OutcomeKind)
async def test_nothing_is_remembered_of_a_claim_whose_outcome_was_reported(
    redis: RedisStore, ending: OutcomeKind
) -> None:
    """A worker lives for months: what a failure leaves behind adds up."""
    instance = await worker(redis)
    job = await claimed_one(redis, instance)
    remembered = redis.jobs._completion._hints
    assert list(remembered) == [job.id]
    await end(redis, instance, job, ending)
    assert remembered == {}


async def test_a_late_report_of_a_forgotten_instance_leaves_nothing(redis: RedisStore) -> None:
    instance = await worker(redis)
    job = await claimed_one(redis, instance)
    await redis.instances.declare_dead(instance, beat=None, started=None, reason="killed")
    await redis.instances.prune(await redis.inspect.now() + HOUR)
    assert await end(redis, instance, job, OutcomeKind.SUCCEEDED) == "stale"
    assert await redis._pool.command("EXISTS", f"{redis._pool.keys.prefix}inst:{instance}") == 0
