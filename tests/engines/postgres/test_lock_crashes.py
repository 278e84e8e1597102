"""What of a lock is on the disk when its caller is answered, and that a crash of the server never makes two holders of one."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from drumbeat.core.lock import NewTicket, TicketState, TicketStatus
from drumbeat.store.postgres import PostgresStore, schema
from tests.engines.postgres.conftest import address_of
from tests.servers.postgres import PostgresServer

SECOND = 1_000_000


@pytest.fixture
def late_server() -> Iterator[PostgresServer]:
    """It writes to disk only what a commit waits for."""
    with PostgresServer(settings={"wal_writer_delay": "10s", "autovacuum": "off"}, in_memory=True) as server:
        yield server


@pytest.fixture
async def late(late_server: PostgresServer) -> AsyncIterator[PostgresStore]:
    await schema.migrate(address_of(late_server.url), "drumbeat")
    async with await PostgresStore.open(address_of(late_server.url)) as store:
        yield store


async def acquire(store: PostgresStore, id: str, **options: Any) -> TicketStatus:
    return await store.locks.acquire(NewTicket(id=id, lock=options.pop("lock", "x"), lease=60 * SECOND, **options))


async def ticket_status(store: PostgresStore, id: str) -> TicketStatus:
    [seen] = await store.locks.ticket_status([id], renew=False)
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
    await acquire(late, "a")
    assert await is_flushed(before)
    before = await end()
    await late.locks.ticket_status(["a"], renew=True)
    assert await is_flushed(before)
    before = await end()
    await late.locks.release(["a"])
    assert not await is_flushed(before)
    await acquire(late, "rated", lock="rate", per=SECOND)
    before = await end()
    await late.locks.release(["rated"])
    assert await is_flushed(before)
    await raw.close()


async def test_a_crash_that_takes_a_leave_makes_no_second_holder_and_no_old_token(
    late: PostgresStore, late_server: PostgresServer
) -> None:
    await acquire(late, "first")
    second = await acquire(late, "second")
    await late.locks.release(["first"])
    assert (await ticket_status(late, "second")).state is TicketState.GRANTED
    late_server.stop("immediate")
    late_server.start()
    async with await PostgresStore.open(address_of(late_server.url)) as after:
        await _expect_in_line_again(after, second)


async def _expect_in_line_again(late: PostgresStore, second: TicketStatus) -> None:
    # Its grant is gone: it waits behind the holder that left, and before all others.
    status = await ticket_status(late, "second")
    assert (status.state, status.position) == (TicketState.WAITING, 1)
    third = await acquire(late, "third")
    assert (third.state, third.position) == (TicketState.WAITING, 2)
    assert third.token > second.token
    await late.locks.release(["first"])
    assert (await ticket_status(late, "second")).state is TicketState.GRANTED
    assert (await ticket_status(late, "third")).state is TicketState.WAITING
