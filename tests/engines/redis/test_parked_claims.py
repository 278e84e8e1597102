"""A claim that found nothing stands: whoever adds a job answers it, once, if its worker is idle and listens."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from drumbeat.core.claim import ClaimedJob, ClaimRequest, ClaimResult
from drumbeat.core.job import OutcomeKind
from drumbeat.ids import InstanceId
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Subscriber
from drumbeat.store.redis import RedisStore
from tests.contract.making import HOUR, add, claim, claimed_one, end, exchange, ids, new_job, wanting, worker
from tests.engines.redis.conftest import address_of, open_redis
from tests.servers.redis import RedisServer
from tests.waiting import until


class IdleWorker:
    """A worker that is registered, listens, and has asked for jobs."""

    def __init__(self, store: Store, instance: InstanceId) -> None:
        self.store = store
        self.instance = instance
        self.hints: list[int] = []
        self.got: list[tuple[InstanceId, ClaimResult]] = []

    @property
    def jobs(self) -> list[ClaimedJob]:
        return [job for _, answer in self.got for job in answer.jobs]

    def on_handoff(self, instance: InstanceId, answer: ClaimResult) -> None:
        self.got.append((instance, answer))

    async def park_claim(self, wanted: ClaimRequest | None = None) -> bool:
        return (await exchange(self.store, self.instance, [], wanted or wanting())).parked_claim

    async def expect_jobs(self, *wanted: str) -> None:
        await until(lambda: ids(self.jobs) == list(wanted), deadline=5, what=f"{len(wanted)} jobs at the door")

    async def expect_hint(self) -> None:
        await until(lambda: self.hints, deadline=5, what="a hint")


@asynccontextmanager
async def idle_worker(url: str, wanted: ClaimRequest | None = None) -> AsyncIterator[IdleWorker]:
    async with await RedisStore.open(address_of(url)) as store:
        me = IdleWorker(store, await worker(store))
        async with store.wake.listen(Subscriber(me.hints.append, me.on_handoff)):
            assert await me.park_claim(wanted)
            yield me


async def test_an_idle_worker_gets_a_job_with_the_call_that_adds_it(redis: RedisStore, url: str) -> None:
    async with idle_worker(url) as me:
        [id] = await add(redis, new_job(args='{"name":"Zoë\\n"}', key="k"))
        await me.expect_jobs(id)
        [(instance, answer)] = me.got
        [job] = answer.jobs
        assert (instance, job.args, job.key, job.token) == (me.instance, '{"name":"Zoë\\n"}', "k", answer.now)
        assert me.hints == []
        record = await get_job(redis, id)
        assert (record.state, record.instance, record.token) == ("running", me.instance, job.token)
        assert await end(me.store, me.instance, job, OutcomeKind.SUCCEEDED) == "applied"


async def test_a_claim_is_answered_once(redis: RedisStore, url: str) -> None:
    async with idle_worker(url) as me:
        [first] = await add(redis, new_job())
        await me.expect_jobs(first)
        [second] = await add(redis, new_job())
        await me.expect_hint()
        assert ids(me.jobs) == [first]
        assert (await get_job(redis, second)).state == "pending"


async def test_with_its_last_outcome_a_worker_can_ask_again(redis: RedisStore, url: str) -> None:
    async with idle_worker(url) as me:
        [first] = await add(redis, new_job())
        await me.expect_jobs(first)
        outcome = await exchange(me.store, me.instance, [], wanting())
        assert not outcome.parked_claim, "it runs something"
        await end(me.store, me.instance, me.jobs[0], OutcomeKind.SUCCEEDED)
        assert await me.park_claim()
        [second] = await add(redis, new_job())
        await me.expect_jobs(first, second)


async def test_a_later_claim_that_got_something_takes_its_place(redis: RedisStore, url: str) -> None:
    async with idle_worker(url) as me:
        await redis.jobs.pause_queue("default", by="ada", reason="a look")
        await add(redis, new_job())
        await redis.jobs.resume_queue("default")
        assert len(await claim(me.store, me.instance)) == 1
        [id] = await add(redis, new_job())
        assert (await get_job(redis, id)).state == "pending"
        assert me.got == []


async def test_urgent_ones_come_first_and_no_more_than_were_asked_for(redis: RedisStore, url: str) -> None:
    async with idle_worker(url, wanting(limit=2)) as me:
        low, high, middle = await add(redis, *(new_job(priority=priority) for priority in (9, 0, 5)))
        await me.expect_jobs(high, middle)
        await me.expect_hint()
        assert (await get_job(redis, low)).state == "pending"


async def test_a_queue_that_is_paused_or_was_not_asked_for_is_left_alone(redis: RedisStore, url: str) -> None:
    async with idle_worker(url) as me:
        await redis.jobs.pause_queue("default", by="ada", reason="a look")
        added = await add(redis, new_job(), new_job(queue="other"))
        await me.expect_hint()
        assert me.got == []
        assert [(await get_job(redis, id)).state for id in added] == ["pending", "pending"]
        await redis.jobs.resume_queue("default")
        [third] = await add(redis, new_job())
        await me.expect_jobs(third)


async def test_a_job_of_the_future_is_a_hint(redis: RedisStore, url: str) -> None:
    async with idle_worker(url) as me:
        moment = await redis.inspect.now() + HOUR
        await add(redis, new_job(run_at=moment))
        await until(lambda: me.hints == [moment], deadline=5, what="a hint of the moment")
        [now] = await add(redis, new_job())
        await me.expect_jobs(now)
        assert me.hints == [moment]


async def test_a_job_that_is_due_soon_is_not_given_early(redis: RedisStore, url: str) -> None:
    async with idle_worker(url) as me:
        moment = await redis.inspect.now() + 900_000
        [id] = await add(redis, new_job(run_at=moment))
        await until(lambda: me.hints == [moment], deadline=5, what="a hint of the moment")
        assert me.got == []
        assert (await get_job(redis, id)).state == "pending"


async def test_what_is_due_is_given_and_the_rest_of_the_call_is_told(redis: RedisStore, url: str) -> None:
    async with idle_worker(url) as me:
        moment = await redis.inspect.now() + HOUR
        now, _ = await add(redis, new_job(), new_job(run_at=moment))
        await me.expect_jobs(now)
        await until(lambda: me.hints == [moment], deadline=5, what="a hint of the moment")


async def test_many_are_shared_by_all_who_are_idle(redis: RedisStore, url: str) -> None:
    async with idle_worker(url, wanting(limit=2)) as first, idle_worker(url, wanting(limit=3)) as second:
        added = await add(redis, *(new_job() for _ in range(5)))
        await second.expect_jobs(*added[:3])
        await first.expect_jobs(*added[3:])
        assert (first.hints, second.hints) == ([], [])


async def test_what_is_too_large_for_a_message_is_a_hint(redis: RedisStore, url: str) -> None:
    async with idle_worker(url) as me:
        half = '{"name":"' + "x" * 150_000 + '"}'
        first, second = await add(redis, new_job(args=half), new_job(args=half))
        await me.expect_jobs(first)
        await me.expect_hint()
        assert me.jobs[0].args == half
        assert (await get_job(redis, second)).state == "pending"


async def test_workers_that_share_a_store_hear_of_their_own(redis: RedisStore, url: str) -> None:
    async with idle_worker(url) as first:
        second = IdleWorker(first.store, await worker(first.store))
        async with first.store.wake.listen(Subscriber(second.hints.append, second.on_handoff)):
            assert await second.park_claim() and await first.park_claim()
            for _ in range(2):
                await add(redis, new_job())
            for me in (first, second):
                await until(
                    lambda me=me: me.instance in [instance for instance, _ in me.got], deadline=5, what="its own"
                )
        assert await first.park_claim() is False, "it runs something, and is listened to all the same"


async def test_whoever_has_left_or_was_buried_gets_nothing(redis: RedisStore, url: str) -> None:
    async with idle_worker(url) as gone, idle_worker(url) as dead:
        await redis.instances.deregister(gone.instance, "bye")
        await redis.instances.declare_dead(dead.instance, beat=None, started=None, reason="killed")
        [id] = await add(redis, new_job())
        await gone.expect_hint()
        assert (gone.got, dead.got) == ([], [])
        assert (await get_job(redis, id)).state == "pending"


async def test_whoever_does_not_listen_any_more_gets_nothing(redis: RedisStore, url: str) -> None:
    async with idle_worker(url):
        pass
    doors = ("PUBSUB", "CHANNELS", f"{redis._pool.keys.prefix}reply:*")

    async def is_closed() -> bool:
        return await redis._pool.command(*doors) == []  # type: ignore[no-any-return]

    await until(is_closed, deadline=5, what="the end of the connection that listened")
    [id] = await add(redis, new_job())
    assert (await get_job(redis, id)).state == "pending"


async def test_whoever_has_been_silent_for_long_gets_nothing(redis: RedisStore, url: str) -> None:
    async with idle_worker(url) as me:
        # As if it had been stopped: it has not looked for 5 s.
        long_ago = await redis.inspect.now() - 5_000_000
        await redis._pool.command("ZADD", redis._pool.keys.prefix + "parked_claims", long_ago, me.instance)
        [id] = await add(redis, new_job())
        await me.expect_hint()
        assert (await get_job(redis, id)).state == "pending"


async def test_who_does_not_listen_or_is_unknown_or_holds_something_has_no_claim_that_stands(
    redis: RedisStore, url: str
) -> None:
    instance = await worker(redis)
    assert not (await exchange(redis, instance, [], wanting())).parked_claim
    async with redis.wake.listen(Subscriber(lambda _: None, lambda *_: None)):
        assert not (await exchange(redis, InstanceId("f" * 16), [], wanting())).parked_claim
        await claimed_one(redis, instance)
        assert not (await exchange(redis, instance, [], wanting())).parked_claim


async def test_a_full_server_keeps_no_claim_and_refuses_none(kind: str) -> None:
    with RedisServer(kind) as server:
        server.ask("SET", "padding", b"x" * 2_000_000)
        async with await open_redis(server) as store, store.wake.listen(Subscriber(lambda _: None, lambda *_: None)):
            instance = await worker(store)
            server.ask("CONFIG", "SET", "maxmemory", "1mb")
            assert not (await exchange(store, instance, [], wanting())).parked_claim
            server.ask("CONFIG", "SET", "maxmemory", "0")
            assert (await exchange(store, instance, [], wanting())).parked_claim


@pytest.mark.parametrize("text", ["", "look", "f 1 5\n", "f 1 x\n", "f 1 20\n" + "x" * 36])
async def test_what_others_say_at_the_door_means_look(redis: RedisStore, url: str, text: str) -> None:
    async with idle_worker(url) as me:
        prefix = redis._pool.keys.prefix
        [door] = await redis._pool.command("PUBSUB", "CHANNELS", f"{prefix}reply:*")
        await redis._pool.command("PUBLISH", door, text)
        await until(lambda: 0 in me.hints, deadline=5, what="a hint to look")
        [id] = await add(redis, new_job())
        await me.expect_jobs(id)


async def test_after_a_restart_of_the_server_a_claim_stands_again(own_server: RedisServer) -> None:
    async with idle_worker(own_server.url) as me, await open_redis(own_server) as store:
        own_server.kill()
        own_server.start()
        await until(lambda: 0 in me.hints, what="the look that makes up for what was not heard")
        assert await me.park_claim()
        [id] = await add(store, new_job())
        await me.expect_jobs(id)
