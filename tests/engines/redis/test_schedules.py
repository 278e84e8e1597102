"""Schedules on a server that is full, after a loss, and in many at once."""

from collections.abc import Iterator

import pytest

from drumbeat.core.job import OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.core.schedule import Overlap, ScheduleState
from drumbeat.errors import StoreFull
from drumbeat.ids import pack_id
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.redis import RedisStore
from drumbeat.store.redis.keys import bucket
from tests.contract.making import claim, end, new_job, worker
from tests.contract.scheduling import MINUTE, after, change, fire, firing, got, new_schedule, put
from tests.engines.redis.conftest import open_redis
from tests.engines.redis.test_full_server import fill, pad
from tests.servers.redis import RedisServer

COMMANDS = 60
"""For one fire at most, with the look before it."""


@pytest.fixture
def full_server(kind: str) -> Iterator[RedisServer]:
    with RedisServer(kind) as server:
        yield server


async def test_a_full_server_fires_nothing_and_loses_no_moment(full_server: RedisServer) -> None:
    pad(full_server)
    async with await open_redis(full_server) as store:
        schedules = [await put(store, new_schedule(name)) for name in ("a", "b")]
        fill(full_server)
        with pytest.raises(StoreFull):
            await store.schedules.fire([firing(each, 10) for each in schedules])
        assert await find_jobs(store, JobFilter()) == []
        assert (await store.schedules.get_due(10)).schedules == schedules
        full_server.ask("CONFIG", "SET", "maxmemory", "0")
        fired = await store.schedules.fire([firing(each, 10) for each in schedules])
        assert [len(each.jobs) for each in fired] == [1, 1]


@pytest.mark.parametrize("kind_of_end", [OutcomeKind.SUCCEEDED, OutcomeKind.DEAD, OutcomeKind.CANCELLED])
async def test_a_full_server_lets_series_and_lines_go_on(full_server: RedisServer, kind_of_end: OutcomeKind) -> None:
    pad(full_server)
    async with await open_redis(full_server) as store:
        await put(store, after())
        await put(store, new_schedule(overlap=Overlap.QUEUE))
        await fire(store, "sweep", 10)
        _, queued = (await fire(store, "nightly", 10, 20)).jobs
        me = await worker(store)
        fill(full_server)
        for job in await claim(store, me):
            assert await end(store, me, job, kind_of_end) == "applied"
        found = await got(store, "sweep")
        assert (found.current, found.next_at is not None) == (None, True)
        assert (await got(store)).current == queued
        assert [job.id for job in await claim(store, me)] == [queued]


async def test_a_full_server_pauses_retires_and_forgets(full_server: RedisServer) -> None:
    pad(full_server)
    async with await open_redis(full_server) as store:
        await put(store, new_schedule())
        await fire(store, "nightly", 10)
        fill(full_server)
        assert await change(store, await got(store), ScheduleState.PAUSED)
        assert await store.schedules.prune_fires(MINUTE, 10) == 1
        assert await store.schedules.advance_stalled() == 0


async def test_what_was_lost_is_set_going_by_the_sweep(redis: RedisStore) -> None:
    """As if the server had come back without some of its jobs."""
    await put(redis, after())
    await put(redis, new_schedule(overlap=Overlap.QUEUE))
    lost = [*(await fire(redis, "sweep", 10)).jobs]
    *others, last = (await fire(redis, "nightly", 10, 20, 30)).jobs
    for id in [*lost, *others]:
        await redis._pool.command("HDEL", f"{redis._pool.keys.prefix}job:{bucket(pack_id(id))}", pack_id(id))
    assert await redis.schedules.advance_stalled() == 2
    assert (await got(redis, "sweep")).next_at is not None
    assert (await got(redis)).current == last
    assert await redis.schedules.advance_stalled() == 0


async def test_jobs_of_no_schedule_pay_nothing_for_those_that_have_one(redis: RedisStore, server: RedisServer) -> None:
    """A success of a plain job is written with the same commands, however many schedules there are."""
    me = await worker(redis)
    costs = []
    for turn in range(2):
        await redis.jobs.add([new_job() for _ in range(50)])
        jobs = await claim(redis, me)
        before = commands(server)
        for job in jobs:
            await end(redis, me, job, OutcomeKind.SUCCEEDED)
        costs.append(commands(server) - before)
        if turn == 0:
            for number in range(20):
                await put(redis, new_schedule(f"s{number}"))
    assert costs[1] <= costs[0] + 10


async def test_a_hundred_schedules_fire_in_one_call_with_few_commands_each(
    redis: RedisStore, server: RedisServer
) -> None:
    schedules = [await put(redis, new_schedule(f"s{number:03}")) for number in range(100)]
    before = commands(server)
    fired = await redis.schedules.fire([firing(each, 10) for each in schedules])
    assert all(each.applied for each in fired)
    assert commands(server) - before < 100 * COMMANDS


def commands(server: RedisServer) -> int:
    stats = server.ask("INFO", "commandstats")
    return sum(each["calls"] for each in stats.values())


async def test_a_schedule_whose_record_was_overwritten_leaves_nothing_when_it_is_retired(redis: RedisStore) -> None:
    known = await put(redis, new_schedule())
    key = f"{redis._pool.keys.prefix}schedule:{known.name}"
    await redis._pool.command("SET", key, "nonsense")
    assert await change(redis, known, ScheduleState.RETIRED)
    assert await redis._pool.command("EXISTS", key) == 0
    assert await redis.schedules.list_page(all=True) == []


@pytest.mark.parametrize("damage", [("priority", "high"), ("queue", ""), ("rest", ""), ("head", "nonsense")])
async def test_a_schedule_whose_template_was_damaged_fires_no_job(redis: RedisStore, damage: tuple[str, str]) -> None:
    known = await put(redis, new_schedule())
    await redis._pool.command("HSET", f"{redis._pool.keys.prefix}schedule:{known.name}", *damage)
    [fired] = await redis.schedules.fire([firing(known, 10)])
    assert not fired.applied
    assert await find_jobs(redis, JobFilter()) == []
