"""What of a lock is on the disk when its caller is answered, and that a crash of the server never makes two holders of one."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from drumbeat.model.lock import NewTicket, Seen, TicketState
from drumbeat.store.postgres import PostgresStore, schema
from tests.engines.postgres.conftest import at
from tests.servers.postgres import PostgresServer

SECOND = 1_000_000


@pytest.fixture
def late_server() -> Iterator[PostgresServer]:
    """Nothing goes to its disk but what somebody waits for."""
    with PostgresServer(settings={"wal_writer_delay": "10s", "autovacuum": "off"}, in_memory=True) as server:
        yield server


@pytest.fixture
async def late(late_server: PostgresServer) -> AsyncIterator[PostgresStore]:
    await schema.migrate(at(late_server.url), "drumbeat")
    async with await PostgresStore.open(at(late_server.url)) as store:
        yield store


async def enter(store: PostgresStore, id: str, **options: Any) -> Seen:
    return await store.locks.enter(NewTicket(id=id, lock=options.pop("lock", "x"), lease=60 * SECOND, **options))


async def look(store: PostgresStore, id: str) -> Seen:
    [seen] = await store.locks.look([id], renew=False)
    return seen


async def test_entering_and_renewing_wait_for_the_disk_and_leaving_only_where_starts_are_counted(
    late: PostgresStore, late_server: PostgresServer
) -> None:
    raw = await asyncpg.connect(late_server.url)

    async def end() -> Any:
        return await raw.fetchval("SELECT pg_current_wal_insert_lsn()::text")

    async def is_flushed(since: str) -> Any:
        return await raw.fetchval("SELECT pg_current_wal_flush_lsn() > $1::text::pg_lsn", since)

    before = await end()
    await enter(late, "a")
    assert await is_flushed(before)
    before = await end()
    await late.locks.look(["a"], renew=True)
    assert await is_flushed(before)
    before = await end()
    await late.locks.leave(["a"])
    assert not await is_flushed(before)
    await enter(late, "rated", lock="rate", per=SECOND)
    before = await end()
    await late.locks.leave(["rated"])
    assert await is_flushed(before)
    await raw.close()


async def test_a_crash_that_takes_a_leave_makes_no_second_holder_and_no_old_token(
    late: PostgresStore, late_server: PostgresServer
) -> None:
    await enter(late, "first")
    second = await enter(late, "second")
    await late.locks.leave(["first"])
    assert (await look(late, "second")).state is TicketState.GRANTED
    late_server.stop("immediate")
    late_server.start()
    async with await PostgresStore.open(at(late_server.url)) as after:
        await _stands_in_line_again(after, second)


async def _stands_in_line_again(late: PostgresStore, second: Seen) -> None:
    # What it was told is gone, and so it is told: it waits behind the one who left, and before everybody else.
    told = await look(late, "second")
    assert (told.state, told.place) == (TicketState.WAITING, 1)
    third = await enter(late, "third")
    assert (third.state, third.place) == (TicketState.WAITING, 2)
    assert third.token > second.token
    await late.locks.leave(["first"])
    assert (await look(late, "second")).state is TicketState.GRANTED
    assert (await look(late, "third")).state is TicketState.WAITING
