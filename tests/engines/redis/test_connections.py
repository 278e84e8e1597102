"""How many connections there are, what is sent while nothing happens, and that an abandoned one is not used again."""

import asyncio
import os
from collections import Counter

import pytest

from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.store.protocol.wake import Subscriber
from drumbeat.store.redis import RedisStore
from drumbeat.store.redis.pool import MAX_CONNECTIONS, RedisPool
from tests.contract.making import add, claim, ids, new_job, worker
from tests.engines.redis.conftest import open_redis
from tests.servers.redis import RedisServer
from tests.waiting import until

# What we send; everything else is sent by the scripts, or by the tests.
SENT_COMMANDS = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_ping", "cmdstat_script")


def our_connections(server: RedisServer) -> set[str]:
    """The ids of our connections, as the server sees them."""
    return {client["id"] for client in server.ask("CLIENT LIST") if client["name"] == "drumbeat"}


async def test_calls_one_after_the_other_share_one_connection(own_server: RedisServer) -> None:
    async with await open_redis(own_server) as store:
        instance = await worker(store)
        for _ in range(5):
            await add(store, new_job())
            await claim(store, instance)
            await store.instances.heartbeat(instance, 0)
        assert len(our_connections(own_server)) == 1


async def test_many_at_once_share_a_few_and_whoever_listens_has_one_more(own_server: RedisServer) -> None:
    async with await open_redis(own_server) as store, store.wake.listen(Subscriber(lambda _: None)):
        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(store.jobs.add([new_job()]))
        assert len(our_connections(own_server)) <= MAX_CONNECTIONS + 1
    await until(lambda: not our_connections(own_server), what="the end of all connections")


async def test_whoever_is_cancelled_while_a_line_is_given_back_is_just_cancelled(redis: RedisStore) -> None:
    pool = RedisPool(redis._pool.address, "another", size=1)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(pool.command("BLPOP", "nothing", 0.2))
            await until(lambda: pool._busy, what="the only line to be used")
            waiting = asyncio.Task(pool.command("ECHO", "abandoned"))
            after = group.create_task(pool.command("ECHO", "mine"))
            await until(lambda: len(pool._waiters) == 2, what="two who wait for it")
            waiting.cancel()
            pool._hand_over(None)
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert after.result() == b"mine"
    finally:
        await pool.close()


async def test_a_line_that_is_given_to_somebody_who_is_cancelled_is_given_to_the_next(redis: RedisStore) -> None:
    pool = RedisPool(redis._pool.address, "another", size=1)
    try:
        async with asyncio.timeout(5):
            line = await pool._acquire(asyncio.get_running_loop().time() + 5)
            waiting = asyncio.Task(pool.command("ECHO", "abandoned"))
            await until(lambda: pool._waiters, what="one who waits for it")
            await pool._release(line, True)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await pool.command("ECHO", "mine") == b"mine"
    finally:
        await pool.close()


async def test_a_poll_and_a_beat_are_one_command_each(own_server: RedisServer) -> None:
    async with await open_redis(own_server) as store:
        instance = await worker(store)
        await claim(store, instance)
        await store.instances.heartbeat(instance, 0)
        before = calls(own_server)
        await claim(store, instance)
        await store.instances.heartbeat(instance, 0)
        assert calls(own_server) - before == {"cmdstat_evalsha": 2}


def calls(server: RedisServer) -> Counter[str]:
    """How often each of these was called so far."""
    return Counter(
        {name: facts["calls"] for name, facts in server.ask("INFO", "commandstats").items() if name in SENT_COMMANDS}
    )


async def test_an_answer_that_nobody_waited_for_reaches_nobody_else(own_server: RedisServer) -> None:
    """The server hangs while a call is under way; the call is cancelled; the server then answers it."""
    async with await open_redis(own_server) as store:
        before = our_connections(own_server)
        own_server.pause()
        abandoned = asyncio.Task(store._pool.command("ECHO", "of the abandoned call"))
        await until(lambda: store._pool._busy, what="the call to be under way")
        abandoned.cancel()
        with pytest.raises(asyncio.CancelledError):
            await abandoned
        own_server.go_on()
        assert await store._pool.command("ECHO", "mine") == b"mine"
        await until(lambda: not before & our_connections(own_server), what="the end of the abandoned connection")


async def test_a_call_that_is_cancelled_while_its_answer_arrives_spoils_nothing(redis: RedisStore) -> None:
    """At every point where a call can be cancelled."""
    for steps in range(12):
        abandoned = asyncio.Task(redis._pool.command("ECHO", f"abandoned after {steps}"))
        for _ in range(steps):
            await asyncio.wait([asyncio.Task(nothing())])
        abandoned.cancel()
        await asyncio.wait([abandoned])
        mine = [redis._pool.command("ECHO", str(number)) for number in range(3)]
        assert [await each for each in mine] == [b"0", b"1", b"2"]


async def nothing() -> None: ...


async def test_connections_that_the_server_closed_meanwhile_are_not_tried(own_server: RedisServer) -> None:
    async with await open_redis(own_server) as store:
        await add(store, new_job())
        await asyncio.to_thread(own_server.stop)
        await asyncio.to_thread(own_server.start)
        assert (await store.jobs.add([new_job()]))[0].created


async def test_scripts_that_somebody_flushed_are_there_again(own_server: RedisServer) -> None:
    async with await open_redis(own_server) as store:
        instance = await worker(store)
        job = new_job()
        await add(store, job)
        own_server.ask("SCRIPT", "FLUSH")
        assert ids(await claim(store, instance)) == [job.id]


async def test_a_closed_store_says_so(url: str, redis: RedisStore) -> None:
    await redis.close()
    await redis.close()
    with pytest.raises(StoreUnavailable, match="the store is closed"):
        await redis.jobs.add([new_job()])


async def test_calls_under_way_end_when_the_store_is_closed(own_server: RedisServer) -> None:
    store = await open_redis(own_server)
    own_server.pause()
    try:
        hanging = asyncio.Task(store.jobs.add([new_job()]))
        await until(lambda: store._pool._busy, what="the call to be under way")
        await store.close()
        with pytest.raises(StoreUnavailable):
            await hanging
    finally:
        own_server.go_on()


async def test_a_value_that_cannot_be_sent_refuses_its_own_call_only(redis: RedisStore) -> None:
    with pytest.raises(StoreError):
        await redis._pool.command("ECHO", "\ud800")
    assert await redis._pool.command("ECHO", "fine") == b"fine"


async def test_a_forked_child_is_told_to_open_its_own(redis: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(StoreError, match="forked"):
        await redis.inspect.now()


async def test_the_driver_has_the_attribute_that_is_not_public_and_that_we_use(server: RedisServer) -> None:
    """`_writer`, by which a line takes a connection over from the driver. pyproject.toml bounds the driver's version for it."""
    from redis.asyncio import Connection

    wire = Connection(host="127.0.0.1", port=server.port)
    await wire.connect()  # type: ignore[no-untyped-call]
    try:
        assert isinstance(wire._writer, asyncio.StreamWriter)
    finally:
        await wire.disconnect()
