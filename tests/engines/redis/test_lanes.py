"""Limits on Redis, beyond the contract: parked claims, bounded scripts, memory, damage, a full server."""

import time
from typing import Any

import msgspec
import pytest
import redis.asyncio as driver

from drumbeat.core.claim import blocked_on_task
from drumbeat.core.job import OutcomeKind, Unique
from drumbeat.core.lanes import MAX_LANES
from drumbeat.core.limits import Bounds, LineChange
from drumbeat.ids import new_job_id, pack_id
from drumbeat.store.job_reads import get_job
from drumbeat.store.redis import RedisStore
from tests.contract.lanes import add_jobs, ask, asking, declare, finish, groups_of, lane_job, released_into, take
from tests.contract.making import HOUR, add, exchange, ids, new_job, outcome, report, wanting, worker
from tests.engines.redis.conftest import open_redis
from tests.engines.redis.test_full_server import fill, pad
from tests.engines.redis.test_parked_claims import idle_worker
from tests.servers.redis import RedisServer
from tests.waiting import until

ONE = Bounds(1)
LANE = "{drumbeat}:lane:default\0greet"
READY = "{drumbeat}:ready:default\0greet"
LINE = "{drumbeat}:line:default\0greet"


async def test_a_job_of_a_lane_is_handed_over_with_the_call_that_adds_it(redis: RedisStore, url: str) -> None:
    await declare(redis, each=Bounds(2))
    async with idle_worker(url, asking(limit=5)) as me:
        added = await add_jobs(redis, "a", 3)
        await me.expect_jobs(*added[:2])
        assert me.hints == [], "the lane is full: nobody else is woken"
        assert await groups_of(redis) == {"a": (1, 2)}
        answer = await exchange(me.store, me.instance, [outcome(me.jobs[0], OutcomeKind.SUCCEEDED)], asking())
        assert ids(answer.jobs) == [added[2]]


async def test_a_full_lane_wakes_nobody(redis: RedisStore, url: str) -> None:
    await declare(redis, each=ONE)
    other = await worker(redis)
    await add_jobs(redis, "a", 1)
    await take(redis, other)
    async with idle_worker(url) as me:
        await add_jobs(redis, "a", 1)
        [plain] = await add(redis, new_job())
        await me.expect_jobs(plain)
        assert me.hints == []


async def test_no_more_are_handed_over_than_the_claim_has_slots(redis: RedisStore, url: str) -> None:
    await declare(redis, each=Bounds(9))
    async with idle_worker(url, asking(limit=5, slots=2)) as me:
        added = await add_jobs(redis, "a", 4)
        await me.expect_jobs(*added[:2])
        await me.expect_hint()


async def test_a_few_are_handed_over_and_the_rest_is_a_hint(redis: RedisStore, url: str) -> None:
    await declare(redis, fair=True)
    async with idle_worker(url) as me:
        added = await add_jobs(redis, "a", 30)
        await me.expect_jobs(*added[:8])
        await me.expect_hint()


async def test_room_that_an_end_makes_is_handed_over_at_once(redis: RedisStore, url: str) -> None:
    await declare(redis, each=ONE)
    busy = await worker(redis)
    added = await add_jobs(redis, "a", 2)
    [first] = await take(redis, busy)
    async with idle_worker(url) as me:
        await report(redis, busy, outcome(first, OutcomeKind.SUCCEEDED))
        await me.expect_jobs(added[1])
        assert me.hints == []


async def test_a_retried_job_is_handed_over_with_all_that_it_has(redis: RedisStore, url: str) -> None:
    await declare(redis, each=ONE)
    busy = await worker(redis)
    [id] = await add_jobs(redis, "a", 1)
    [first] = await take(redis, busy)
    async with idle_worker(url) as me:
        await report(redis, busy, outcome(first, OutcomeKind.RETRY))
        await me.expect_jobs(id)
        assert (me.jobs[0].failures, me.jobs[0].has_run) == (1, True)
        record = await get_job(redis, id)
        assert (record.instance, record.token) == (me.instance, me.jobs[0].token)
        await finish(me.store, me.instance, me.jobs[0])
        assert await groups_of(redis) == {"a": (0, 0)}


@pytest.mark.parametrize("whole", ["line", "queue"])
async def test_room_of_the_whole_is_handed_over_at_once(redis: RedisStore, url: str, whole: str) -> None:
    await declare(redis, whole=ONE)
    if whole == "queue":
        await declare(redis)
        await declare(redis, "", whole=ONE)
    busy = await worker(redis)
    [a, b] = [(await add_jobs(redis, group, 1))[0] for group in ("a", "b")]
    [first] = await take(redis, busy)
    async with idle_worker(url) as me:
        await report(redis, busy, outcome(first, OutcomeKind.SUCCEEDED))
        await me.expect_jobs({a: b, b: a}[first.id])


async def test_a_worker_whose_own_claim_takes_the_room_wakes_nobody(redis: RedisStore, url: str) -> None:
    await declare(redis, each=ONE)
    busy = await worker(redis)
    added = await add_jobs(redis, "a", 3)
    [job] = await take(redis, busy)
    async with idle_worker(url) as me:
        answer = await exchange(redis, busy, [outcome(job, OutcomeKind.SUCCEEDED)], asking(limit=1))
        assert ids(answer.jobs) == [added[1]]
        [plain] = await add(redis, new_job())
        await me.expect_jobs(plain)
        assert me.hints == []


@pytest.mark.parametrize("how", ["death", "leave", "raise", "exception", "run now", "resume"])
async def test_whatever_else_makes_room_wakes_workers(redis: RedisStore, url: str, how: str) -> None:
    await declare(redis, each=ONE)
    busy = await worker(redis)
    added = await add_jobs(redis, "a", 2)
    await take(redis, busy)
    [later] = await add_jobs(redis, "later", 1, delay=HOUR)
    if how == "resume":
        await redis.jobs.pause_queue("default", by="ada", reason="")
        await add_jobs(redis, "b", 1)
    async with idle_worker(url) as me:
        me.hints.clear()
        match how:
            case "death":
                await redis.instances.declare_dead(busy, beat=None, started=None, reason="killed")
            case "leave":
                await redis.instances.deregister(busy, "bye")
            case "raise":
                await redis.limits.change("default", "greet", LineChange(each=Bounds(2)), by="ada", reason="")
            case "exception":
                await redis.limits.change_group("default", "greet", "a", bounds=Bounds(2), weight=None)
            case "run now":
                assert await redis.jobs.run_now([later]) == 1
            case _:
                await redis.jobs.resume_queue("default")
        await until(lambda: any(hint < (1 << 60) for hint in me.hints), deadline=5, what="a hint to look")
        assert len(await take(me.store, me.instance)) == 1
    assert len(added) == 2


async def test_a_paused_queue_hands_nothing_over(redis: RedisStore, url: str) -> None:
    await declare(redis, each=ONE)
    async with idle_worker(url) as me:
        await redis.jobs.pause_queue("default", by="ada", reason="")
        await add_jobs(redis, "a", 1)
        await redis.jobs.resume_queue("default")
        assert me.got == []
        assert len(await take(me.store, me.instance)) == 1


async def test_a_claim_that_meets_very_many_ready_lanes_is_short(redis: RedisStore) -> None:
    instance = await worker(redis)
    await declare(redis, each=ONE)
    await redis.jobs.add([lane_job(f"g{number}") for number in range(2_000)])
    took = []
    for _ in range(3):
        start = time.perf_counter()
        answer = await ask(redis, instance, limit=1_000)
        took.append(time.perf_counter() - start)
        assert len(answer.jobs) == MAX_LANES
        assert answer.next_due_at is not None and answer.next_due_at <= answer.now
    assert min(took) < 0.1


async def test_lanes_that_look_ready_by_old_limits_hide_nobody(redis: RedisStore) -> None:
    instance = await worker(redis)
    await declare(redis, each=Bounds(2))
    await redis.jobs.add([lane_job(f"g{number:03}") for number in range(300) for _ in range(2)])
    held = 0
    while held < 300:
        held += len((await ask(redis, instance, limit=150)).jobs)
    await declare(redis, each=ONE, version=2)
    [id] = await add_jobs(redis, "new", 1)
    found = []
    for _ in range(5):
        found += ids(await take(redis, instance))
    assert id in found


async def test_one_more_lane_takes_little_memory(redis: RedisStore) -> None:
    async def used() -> int:
        text: bytes = await redis._pool.command("INFO", "memory")
        return int(text.split(b"used_memory:")[1].split()[0])

    await declare(redis, each=ONE)
    instance = await worker(redis)
    count = 5_000
    jobs = [lane_job(f"tenant-{number:06}") for number in range(count)]
    await redis.jobs.add(jobs)
    with_jobs = await used()
    done = 0
    while done < count:
        claimed = await take(redis, instance, limit=200)
        done += len(claimed)
        await finish(redis, instance, *claimed)
    await redis.jobs.prune(await redis.inspect.now() + HOUR, count)
    await redis.limits.sweep(0, count)
    idle = await used()
    deleted, _ = await redis.limits.sweep(await redis.inspect.now() + HOUR, 2 * count)
    empty = await used()
    assert deleted == count
    assert (idle - empty) / count < 300, "of an idle lane"
    assert (with_jobs - empty) / count < 1_200, "with its job"


@pytest.mark.parametrize("text", ["", "x", "1,2\n\n", "\xff", "1,,0,0,0,32,,,0\nx:y\n5", "9" * 400])
async def test_a_lane_that_cannot_be_read_is_looked_at_and_mended(redis: RedisStore, text: str) -> None:
    instance = await worker(redis)
    await declare(redis, each=Bounds(2))
    first, second, third = await add_jobs(redis, "a", 3)
    [other] = await add_jobs(redis, "b", 1)
    [job] = await take(redis, instance, limit=1)
    await redis._pool.command("HSET", LANE, "a", text.encode("latin-1"))
    await add_jobs(redis, "a", 1)
    await redis.limits.sweep(0, 1_000)
    assert sorted(ids(await take(redis, instance))) == sorted([second, other])
    assert (await groups_of(redis))["a"] == (2, 2)
    await finish(redis, instance, job)
    assert ids(await take(redis, instance)) == [third]
    assert first == job.id


@pytest.mark.parametrize("key", [LANE, READY, LANE.replace("lane:", "lanes:"), "{drumbeat}:lane_pending"])
async def test_a_key_of_another_type_breaks_no_claim(redis: RedisStore, key: str) -> None:
    instance = await worker(redis)
    await declare(redis, each=Bounds(5))
    await add_jobs(redis, "a", 2)
    await redis._pool.command("DEL", key)
    await redis._pool.command("SET", key, "a string")
    await redis.limits.sweep(0, 1_000)
    [plain] = await add(redis, new_job())
    found = ids(await take(redis, instance))
    [late] = await add_jobs(redis, "a", 1)
    found += ids(await take(redis, instance))
    assert {plain, late} <= set(found)


async def test_a_job_that_moves_to_another_lane_keeps_all_else(redis: RedisStore) -> None:
    instance = await worker(redis)
    await declare(redis, each=ONE)
    moved = new_job(
        args='{"name":"a\\n\\"]"}',
        key='k"]\\',
        unique=Unique.LIVE,
        retries=3,
        timeout=7_000_000,
        group='of "old"',
        trace='00-"t"',
        expires=HOUR,
        on_dead="mourn",
    )
    await add(redis, moved, new_job(id=new_job_id(), queue="plain"))
    before = await get_job(redis, moved.id)
    for lane in ('greet of "new", \\é]', "greet ", ""):
        [job] = await take(redis, instance)
        await exchange(redis, instance, [released_into(lane, job)])
        after = await get_job(redis, moved.id)
        assert (after.lane, after.group) == (lane, lane.partition(" ")[2])
        same: dict[str, Any] = {"group": before.group, "lane": "", "token": before.token}
        assert msgspec.structs.replace(after, **same) == before


async def test_an_id_without_a_job_leaves_no_room_taken(redis: RedisStore) -> None:
    instance = await worker(redis)
    await declare(redis, each=ONE)
    await add_jobs(redis, "a", 1)
    await redis._pool.command("ZADD", "{drumbeat}:lane_due:default\0greet a:5", 1, b"\x01" * 16)
    found = []
    for _ in range(3):
        found += await take(redis, instance)
    assert len(found) == 1
    assert await groups_of(redis) == {"a": (0, 1)}


@pytest.mark.parametrize(
    "kind_of_end", [OutcomeKind.SUCCEEDED, OutcomeKind.RETRY, OutcomeKind.DEAD, OutcomeKind.RELEASED]
)
async def test_on_a_full_server_room_comes_back(kind: str, kind_of_end: OutcomeKind) -> None:
    with RedisServer(kind) as server:
        pad(server)
        async with await open_redis(server) as store:
            instance = await worker(store)
            await declare(store, each=Bounds(2), whole=Bounds(2))
            await add_jobs(store, "a", 4)
            fill(server)
            for _ in range(2):
                jobs = await take(store, instance)
                assert len(jobs) == 2
                await finish(store, instance, *jobs, kind=kind_of_end)
            await declare(store, each=Bounds(2), whole=Bounds(1), version=2)
            await declare(store, each=Bounds(2), whole=Bounds(2), version=2)
            held = await take(store, instance)
            await store.jobs.cancel([job.id for job in held])
            await store.instances.declare_dead(instance, beat=None, started=None, reason="killed")
            waiting, running = (await groups_of(store))["a"]
            assert running == 0 and waiting <= 4
            assert await store.limits.sweep(0, 100) == (0, 0)


async def test_jobs_of_lanes_are_seen_as_others_are(redis: RedisStore) -> None:
    await declare(redis, each=ONE)
    await declare(redis, "held", order="hold")
    now, later = lane_job("a"), lane_job("b", delay=HOUR, priority=7)
    held = lane_job("a", line="held", delay=HOUR)
    await add(redis, now, later, held)
    [queue] = await redis.inspect.list_queues()
    assert (queue.ready, queue.scheduled) == (1, 2)
    assert queue.oldest_due == (await get_job(redis, now.id)).run_at
    assert await redis._pool.command("ZCARD", "{drumbeat}:lane_later:default") == 2
    assert await redis.jobs.run_now([held.id]) == 1
    [queue] = await redis.inspect.list_queues()
    assert (queue.ready, queue.scheduled) == (2, 1)
    assert await redis.jobs.cancel([later.id, now.id]) == ["cancelled", "cancelled"]
    [queue] = await redis.inspect.list_queues()
    assert (queue.ready, queue.scheduled) == (1, 0)


async def test_an_unblocked_job_of_a_lane_that_was_damaged_is_still_claimed(redis: RedisStore) -> None:
    instance = await worker(redis)
    await declare(redis, each=ONE)
    [id] = await add_jobs(redis, "a", 1)
    [job] = await take(redis, instance)
    reason = blocked_on_task("greet")
    await finish(redis, instance, job, kind=OutcomeKind.BLOCKED, blocked_on=reason)
    await redis._pool.command("HDEL", "{drumbeat}:live_state", pack_id(id))
    assert ids(await take(redis, instance, unblocks=(reason,))) == [id]


async def test_queues_without_lines_ask_one_thing_more(redis: RedisStore, url: str) -> None:
    """For plain jobs, nothing is asked of lanes but whether there are any: once in each call that ends or claims jobs."""
    client = driver.from_url(url)
    async with client.monitor() as monitor:
        instance = await worker(redis)
        await add(redis, new_job(), new_job())
        [job] = (await exchange(redis, instance, [], wanting(limit=1))).jobs
        [job] = (await exchange(redis, instance, [outcome(job, OutcomeKind.SUCCEEDED)], wanting(limit=1))).jobs
        await report(redis, instance, outcome(job, OutcomeKind.RETRY))
        await redis._pool.command("ECHO", "the end")
        asked: list[str] = []
        while "the end" not in (asked or [""])[-1]:
            command = await monitor.next_command()
            asked += [command["command"]] if command["client_type"] == "lua" or "ECHO" in command["command"] else []
    await client.aclose()
    of_lanes = [command for command in asked if any(word in command for word in (":lane", ":line", ":ready"))]
    assert of_lanes == ["EXISTS {drumbeat}:lane_queues"] * 3


async def test_an_order_that_was_left_half_made_is_finished_by_the_sweep(redis: RedisStore) -> None:
    instance = await worker(redis)
    await declare(redis, order="hold")
    wanted = [(await add_jobs(redis, "a", 1, priority=9 - number))[0] for number in range(3)]
    await redis._pool.command("HSET", LINE, "reordering", 1)
    for priority in (7, 8, 9):  # as if their scores were of another order
        await redis._pool.command(
            "ZADD", f"{{drumbeat}}:lane_due:default\0greet a:{priority}", 10 - priority, pack_id(wanted[9 - priority])
        )
    answer = await ask(redis, instance)
    assert answer.jobs == [] and answer.next_due_at is not None and answer.next_due_at > answer.now
    await redis.limits.sweep(0, 10)
    for id in wanted:
        [job] = await take(redis, instance)
        assert job.id == id
        await finish(redis, instance, job)


async def test_a_line_of_very_many_jobs_gets_and_loses_its_order(redis: RedisStore) -> None:
    instance = await worker(redis)
    await declare(redis, each=ONE)
    early, late = lane_job("a", priority=9), lane_job("b", priority=9)
    await add(redis, early, late)
    await redis.jobs.add([lane_job(group, priority=5) for group in ("a", "b") for _ in range(2_500)])
    [later] = await add_jobs(redis, "a", 1, delay=HOUR, priority=0)
    await declare(redis, order="skip", version=2)
    first = await take(redis, instance)
    assert ids(first) == [early.id, late.id]
    await finish(redis, instance, *first, kind=OutcomeKind.RELEASED)
    await declare(redis, each=Bounds(2_600), version=3)
    claimed = ids(await take(redis, instance, limit=6_000))
    assert len(claimed) == 5_002 and later not in claimed
    assert claimed.index(early.id) == 2_500, "its priority counts again"


async def test_limits_of_very_many_full_lanes_are_raised_in_pieces(redis: RedisStore) -> None:
    instance = await worker(redis)
    await declare(redis, each=ONE)
    await redis.jobs.add([lane_job(f"g{number}") for number in range(2_100) for _ in range(2)])
    held = 0
    while jobs := await take(redis, instance, limit=200):
        held += len(jobs)
    assert held == 2_100
    await declare(redis, each=Bounds(2), version=2)
    assert await redis._pool.command("ZCARD", READY) == 2_100


async def test_a_line_that_was_damaged_is_declared_anew(redis: RedisStore) -> None:
    instance = await worker(redis)
    await declare(redis, each=ONE)
    [id] = await add_jobs(redis, "a", 1)
    for field in ("rule", "policy"):
        await redis._pool.command("HSET", LINE, field, "{nonsense")
        await declare(redis, each=ONE)
        [line] = await redis.limits.list_lines()
        assert line.policy.each == ONE
        [job] = await take(redis, instance)
        await finish(redis, instance, job, kind=OutcomeKind.RELEASED)
        assert job.id == id
