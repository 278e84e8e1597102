"""Locks on Redis: a server that has forgotten everything, one that is full, and locks that nobody uses."""

import asyncio
from typing import Any

import pytest

from drumbeat import Drumbeat
from drumbeat.core.lock import NewTicket, TicketState, TicketStatus
from drumbeat.errors import LockLost, StoreFull
from drumbeat.store.redis import RedisStore
from tests.engines.redis.conftest import address_of
from tests.servers.redis import RedisServer

SECOND = 1_000_000
DAY = 86_400 * SECOND


async def enter(store: RedisStore, id: str, lock: str = "x", **options: Any) -> TicketStatus:
    return await store.locks.acquire(NewTicket(id=id, lock=lock, lease=60 * SECOND, **options))


async def test_a_server_that_was_emptied_gives_tokens_that_still_grow_and_its_holders_hear(url: str) -> None:
    app = Drumbeat(url, lock_lease=0.9, lock_renew=0.2)
    entered = asyncio.Event()

    async def hold() -> None:
        async with app.lock("x") as lock:
            tokens.append(lock.token)
            entered.set()
            await asyncio.Event().wait()

    tokens: list[int] = []
    async with app:
        holder = asyncio.get_running_loop().create_task(hold())
        await entered.wait()
        store = await app._internals.store()
        await store._pool.command("FLUSHDB")  # type: ignore[attr-defined]
        with pytest.raises(LockLost, match="its lease ended at the store"):
            await asyncio.wait_for(holder, 10)
        async with app.lock("x") as lock:
            assert lock.token > tokens[0]


async def test_a_full_server_refuses_newcomers_and_keeps_those_who_are_there(own_server: RedisServer) -> None:
    async with await RedisStore.open(address_of(own_server.url)) as store:
        await enter(store, "a")
        await enter(store, "b")
        await store._pool.command("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(StoreFull):
            await enter(store, "c")
        renewed = await store.locks.ticket_status(["a", "b"], renew=True)
        assert [seen.state for seen in renewed] == [TicketState.GRANTED, TicketState.WAITING]
        await store.locks.release(["a"])
        assert (await store.locks.ticket_status(["b"], renew=False))[0].state is TicketState.GRANTED


async def test_an_unused_lock_is_deleted_after_a_day(url: str) -> None:
    async with await RedisStore.open(address_of(url)) as store:
        await enter(store, "held", "held")
        for name, per in (("idle", None), ("window", 3 * DAY)):
            await enter(store, name, name, per=per)
            await store.locks.release([name])
        for name in ("held", "idle", "window"):
            await store._pool.command("ZINCRBY", store._pool.keys.prefix + "locks_used", -2 * DAY, name)
        await enter(store, "new", "new")
        assert [lock.name for lock in await store.locks.list_page(all=True)] == ["held", "new", "window"]
        keys = await store._pool.command("KEYS", store._pool.keys.prefix + "*idle*")
        assert keys == []
