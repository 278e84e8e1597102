"""Locks on PostgreSQL: what only a server with many sessions can get wrong."""

import asyncio
from typing import Any

import asyncpg

from drumbeat import Drumbeat
from drumbeat.core.lock import NewTicket, TicketState, TicketStatus
from drumbeat.errors import StoreUnavailable
from drumbeat.store.postgres import PostgresStore, schema
from tests.engines.postgres.conftest import address_of
from tests.servers.postgres import PostgresServer
from tests.waiting import until

SECOND = 1_000_000
DAY = 86_400 * SECOND


async def acquire(store: PostgresStore, id: str, lock: str = "x", **options: Any) -> TicketStatus:
    return await store.locks.acquire(NewTicket(id=id, lock=lock, lease=60 * SECOND, **options))


async def test_racing_sessions_never_hold_together(url: str, postgres: PostgresStore) -> None:
    """Looking in the statement that locks the row gave two to four double holders in 1,700 grants."""
    stores = [await PostgresStore.open(address_of(url)) for _ in range(4)]
    inside, grants = 0, 0

    async def work(store: PostgresStore, name: str) -> None:
        nonlocal inside, grants
        for number in range(60):
            id = f"{name}-{number}"
            seen = await acquire(store, id)
            while seen.state is not TicketState.GRANTED:
                [seen] = await store.locks.ticket_status([id], renew=False)
            inside += 1
            grants += 1
            assert inside == 1
            await postgres.inspect.now()
            inside -= 1
            await store.locks.release([id])

    async with asyncio.TaskGroup() as group:
        for number, store in enumerate(stores):
            group.create_task(work(store, str(number)))
    assert grants == 240
    for store in stores:
        await store.close()


async def test_reading_the_status_of_the_same_locks_does_not_block(url: str, postgres: PostgresStore) -> None:
    stores = [await PostgresStore.open(address_of(url)) for _ in range(2)]
    names = [f"lock-{number}" for number in range(8)]
    tickets = {store: [f"{index}-{name}" for name in names] for index, store in enumerate(stores)}
    for store, ids in tickets.items():
        for id, name in zip(ids, names, strict=True):
            await acquire(store, id, name, limit=2)

    async def look(store: PostgresStore, ids: list[str]) -> None:
        for _ in range(50):
            assert {seen.state for seen in await store.locks.ticket_status(ids, renew=True)} == {TicketState.GRANTED}

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(look(stores[0], tickets[stores[0]]))
        group.create_task(look(stores[1], tickets[stores[1]][::-1]))
    for store in stores:
        await store.close()


async def test_an_unused_lock_is_deleted_after_a_day(
    postgres: PostgresStore, raw: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await acquire(postgres, "held", "held")
    for name, per in (("idle", None), ("window", 3 * DAY)):
        await acquire(postgres, name, name, per=per)
        await postgres.locks.release([name])
    await raw.execute("UPDATE drumbeat.lock SET used_at = used_at - $1", 2 * DAY)
    await acquire(postgres, "new", "new")
    rows = await raw.fetch("SELECT name FROM drumbeat.lock ORDER BY name")
    assert [row["name"] for row in rows] == ["held", "new", "window"]


async def test_a_session_that_waits_for_a_line_sees_what_happened_meanwhile(
    url: str, postgres: PostgresStore, raw: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await acquire(postgres, "a")
    other = await PostgresStore.open(address_of(url))
    async with raw.transaction():
        await raw.execute("SELECT FROM drumbeat.lock WHERE name = 'x' FOR UPDATE")
        entering = asyncio.get_running_loop().create_task(acquire(other, "b"))

        async def is_waiting() -> bool:
            waiting: int = await postgres._parts.connection.call(
                lambda session: session.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
            )
            return waiting > 0

        await until(is_waiting)
        await raw.execute("DELETE FROM drumbeat.ticket WHERE id = 'a'")
    assert (await entering).state is TicketState.GRANTED
    await other.close()


async def test_a_renewal_takes_locks_in_the_order_of_names_so_that_two_cannot_wait_for_each_other(
    url: str, postgres: PostgresStore, raw: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    for name in ("a", "b"):
        await acquire(postgres, f"ticket of {name}", name)
    async with raw.transaction(), asyncio.TaskGroup() as group:
        await raw.execute("SELECT FROM drumbeat.lock WHERE name = 'a' FOR UPDATE")
        group.create_task(postgres.locks.ticket_status(["ticket of b", "ticket of a"], renew=True))

        async def is_waiting() -> bool:
            return bool(await raw.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

        await until(is_waiting)
        await raw.execute("SELECT FROM drumbeat.lock WHERE name = 'b' FOR UPDATE NOWAIT")
        await raw.execute("ROLLBACK; BEGIN")


async def test_an_acquire_that_was_cancelled_under_way_leaves_no_ticket(
    url: str, raw: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    async with Drumbeat(url) as app:
        async with app.lock("x"):
            pass
        async with raw.transaction():
            await raw.execute("SELECT FROM drumbeat.lock WHERE name = 'x' FOR UPDATE")
            entering = asyncio.get_running_loop().create_task(app.lock("x").__aenter__())

            async def is_under_way() -> bool:
                store = await app._internals.open_store()
                async with store:
                    waiting: int = await store._parts.connection.call(  # type: ignore[attr-defined]
                        lambda session: session.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
                    )
                return waiting > 0

            await until(is_under_way)
            entering.cancel()
            await asyncio.wait([entering])
        # The server finishes the statement, and only then finds that its client is gone.

        async def is_empty() -> bool:
            return (
                await raw.fetchval("SELECT count(*) FROM drumbeat.ticket") == 0
                and not app._internals.keeper.table._pending_releases
            )

        await until(is_empty, deadline=10)


async def test_a_crowd_that_enters_at_once_costs_two_commits_and_keeps_its_order(
    postgres: PostgresStore, raw: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    async with asyncio.TaskGroup() as group:
        entering = [group.create_task(acquire(postgres, f"t{number}")) for number in range(100)]
    assert [task.result().position for task in entering] == list(range(100))
    tokens = [task.result().token for task in entering]
    assert tokens == sorted(set(tokens))
    # The first alone, all who came meanwhile together.
    assert await raw.fetchval("SELECT count(DISTINCT xmin::text) FROM drumbeat.ticket") == 2


async def test_a_crowd_may_want_several_locks_each_with_its_own_limit(postgres: PostgresStore) -> None:
    limits = {"two": 2, "one": 1, "rate": 3}
    wanted = [name for _ in range(5) for name in limits]
    async with asyncio.TaskGroup() as group:
        await_others = group.create_task(acquire(postgres, "somebody", "other"))
        entering = [
            group.create_task(
                acquire(postgres, f"t{number}", name, limit=limits[name], per=SECOND if name == "rate" else None)
            )
            for number, name in enumerate(wanted)
        ]
    assert await_others.result().state is TicketState.GRANTED
    for name, limit in limits.items():
        seen = [task.result() for task, lock in zip(entering, wanted, strict=True) if lock == name]
        assert [each.position for each in seen] == [0] * limit + list(range(1, 6 - limit))
        assert [each.lane for each in seen[:limit]] == list(range(limit))
        assert [each.token for each in seen] == sorted({each.token for each in seen})
    # The first in front of the closed window knows when it opens.
    first = entering[wanted.index("rate") + 3 * limits["rate"]].result()
    assert (first.position, first.recheck_after_us is not None and 0 < first.recheck_after_us <= SECOND) == (1, True)


async def test_a_ticket_that_enters_twice_in_a_crowd_is_one_ticket(postgres: PostgresStore) -> None:
    async with asyncio.TaskGroup() as group:
        entering = [group.create_task(acquire(postgres, id)) for id in ("first", "a", "b", "a", "c")]
    places = {task.result().ticket: task.result().position for task in entering}
    assert (len(places), sorted(places.values())) == (4, [0, 1, 2, 3])
    assert entering[1].result() == entering[3].result()


async def test_cancelling_one_of_many_acquires_leaves_the_others(
    postgres: PostgresStore, raw: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await acquire(postgres, "first")
    loop = asyncio.get_running_loop()
    async with raw.transaction():
        await raw.execute("SELECT FROM drumbeat.lock WHERE name = 'x' FOR UPDATE")
        alone = loop.create_task(acquire(postgres, "alone"))
        await until(lambda: postgres._parts.connection._lock.locked())
        crowd = [loop.create_task(acquire(postgres, f"t{number}")) for number in range(5)]
        await until(lambda: len(postgres.locks._batcher._waiting) == 5)
        alone.cancel()
        # Now the first of the others enters for all of them, and is cancelled as well.
        await until(lambda: len(postgres.locks._batcher._waiting) == 0)
        crowd[0].cancel()
        await asyncio.wait([alone, crowd[0]])
    async with asyncio.timeout(10):
        seen = [await task for task in crowd[1:]]
    assert [each.state for each in seen] == [TicketState.WAITING] * 4
    assert [each.token for each in seen] == sorted(each.token for each in seen)
    assert alone.cancelled() and crowd[0].cancelled()


async def test_a_crowd_hears_that_the_server_is_away(own_server: PostgresServer) -> None:
    await schema.migrate(address_of(own_server.url), "drumbeat")
    async with await PostgresStore.open(address_of(own_server.url)) as store:
        own_server.stop("immediate")
        entering = [asyncio.get_running_loop().create_task(acquire(store, f"t{number}")) for number in range(5)]
        await asyncio.wait(entering, timeout=30)
        assert [type(task.exception()) for task in entering] == [StoreUnavailable] * 5
