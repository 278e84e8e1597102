"""Locks on SQLite: leases are boot time, so a stepped wall clock changes nothing, and a reboot ends every holder."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from drumbeat.clock import FakeClock
from drumbeat.core.lock import NewTicket, TicketState, TicketStatus
from drumbeat.store.sqlite import SqliteStore

SECOND = 1_000_000
DAY = 86_400


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def change(path: Path, statement: str, *values: object) -> None:
    """As somebody else who has the file."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


def names(path: Path, table: str = "drumbeat_lock", column: str = "name") -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return [name for (name,) in db.execute(f"SELECT {column} FROM {table} ORDER BY 1")]


async def acquire(store: SqliteStore, id: str, lock: str = "x", per: int | None = None) -> TicketStatus:
    return await store.locks.acquire(NewTicket(id=id, lock=lock, lease=15 * SECOND, per=per))


async def test_leases_do_not_care_for_the_wall_clock(sqlite: SqliteStore, clock: FakeClock) -> None:
    await acquire(sqlite, "a")
    clock.jump(3_600)
    assert (await acquire(sqlite, "b")).state is TicketState.WAITING
    clock.jump(-7_200)
    assert (await sqlite.locks.ticket_status(["a"], renew=False))[0].state is TicketState.GRANTED
    await clock.advance(15)
    assert (await sqlite.locks.ticket_status(["b"], renew=False))[0].state is TicketState.LOST
    assert (await acquire(sqlite, "c")).state is TicketState.GRANTED


async def test_tokens_grow_when_the_wall_clock_is_set_back(sqlite: SqliteStore, clock: FakeClock) -> None:
    first = await acquire(sqlite, "a")
    await sqlite.locks.release(["a"])
    clock.jump(-3_600)
    assert (await acquire(sqlite, "b")).token > first.token


async def test_windows_do_not_care_for_the_wall_clock(sqlite: SqliteStore, clock: FakeClock) -> None:
    await acquire(sqlite, "a", per=60 * SECOND)
    await sqlite.locks.release(["a"])
    clock.jump(3_600)
    second = await acquire(sqlite, "b", per=60 * SECOND)
    assert (second.state, second.recheck_after_us) == (TicketState.WAITING, 60 * SECOND)


async def test_after_a_reboot_nobody_holds_what_was_held_before(
    sqlite: SqliteStore, path: Path, clock: FakeClock
) -> None:
    first = await acquire(sqlite, "a")
    await acquire(sqlite, "b")
    change(path, "UPDATE drumbeat_lock SET boot = 'the last one'")
    assert await sqlite.locks.list_page() == []
    assert (await sqlite.locks.ticket_status(["a"], renew=False))[0].state is TicketState.LOST
    after = await acquire(sqlite, "c")
    assert after.state is TicketState.GRANTED
    assert after.token > first.token
    assert (await sqlite.locks.ticket_status(["b"], renew=True))[0].state is TicketState.LOST


async def test_a_window_is_kept_over_a_reboot(sqlite: SqliteStore, path: Path, clock: FakeClock) -> None:
    await acquire(sqlite, "a", per=60 * SECOND)
    # Boot time began anew: what was counted lies far in its future, or past.
    change(path, "UPDATE drumbeat_lock SET boot = 'the last one'")
    change(path, "UPDATE drumbeat_lock_grant SET at = at + 123456789012")
    await clock.advance(20)
    second = await acquire(sqlite, "b", per=60 * SECOND)
    assert (second.state, second.recheck_after_us) == (TicketState.WAITING, 40 * SECOND)


async def test_a_clock_that_is_behind_after_a_reboot_does_not_make_a_window_longer(
    sqlite: SqliteStore, path: Path, clock: FakeClock
) -> None:
    await clock.advance(20)
    await acquire(sqlite, "a", per=60 * SECOND)
    change(path, "UPDATE drumbeat_lock SET boot = 'the last one'")
    clock.jump(-DAY)
    second = await acquire(sqlite, "b", per=60 * SECOND)
    assert (second.state, second.recheck_after_us) == (
        TicketState.WAITING,
        40 * SECOND,
    )  # since the machine was started


async def test_an_unused_lock_is_deleted_after_a_day(sqlite: SqliteStore, path: Path, clock: FakeClock) -> None:
    await acquire(sqlite, "held", "held")
    await acquire(sqlite, "a", "idle")
    await sqlite.locks.release(["a"])
    await acquire(sqlite, "b", "window", per=3 * DAY * SECOND)
    await sqlite.locks.release(["b"])
    for _ in range(8):
        await clock.advance(DAY / 6)
        change(path, "UPDATE drumbeat_ticket SET expires_at = expires_at + 15000000000")  # somebody renews it
    await acquire(sqlite, "c", "new")
    assert names(path) == ["held", "new", "window"]
    await clock.advance(4 * DAY)
    await acquire(sqlite, "d", "newer")
    assert names(path) == ["newer"]
    assert names(path, "drumbeat_ticket", "id") == ["d"]
    assert names(path, "drumbeat_lock_grant", "lock") == []
