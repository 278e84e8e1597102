"""Jobs that are enqueued in a transaction of the user's own database, and run from another store."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from drumbeat import Drumbeat, outbox
from drumbeat.core.job import AddResult, JobState, NewJob
from drumbeat.errors import JobNotFound, StoreUnavailable
from drumbeat.handle import JobHandle
from drumbeat.outbox import Outbox
from tests.conftest import SERVERS
from tests.waiting import until
from tests.worker.worker_harness import run_worker


class Shop:
    """An app whose jobs are in one store, and whose orders and outbox are in a SQLite file."""

    def __init__(self, url: str, file: Path) -> None:
        self.file = file
        self.shipped: list[int] = []
        self.app = Drumbeat(url, outbox=f"sqlite:///{file}", heartbeat=0.1)

        @self.app.task
        async def ship(order: int) -> int:
            self.shipped.append(order)
            return order

        self.ship = ship

    def orders(self) -> "closing[sqlite3.Connection]":
        db = sqlite3.connect(self.file)
        db.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER)")
        return closing(db)

    async def order(self, number: int, **options: Any) -> JobHandle[int]:
        with self.orders() as db, db:
            db.execute("INSERT INTO orders VALUES (?)", (number,))
            return await self.ship.using(conn=db, **options).enqueue(number)

    async def state(self, handle: JobHandle[int]) -> JobState | None:
        try:
            return (await self.app.jobs.show(handle.id)).state
        except JobNotFound:
            return None


@pytest.fixture
async def shop(store_url: str, tmp_path: Path) -> AsyncIterator[Shop]:
    shop = Shop(store_url, tmp_path / "orders.db")
    async with shop.app:
        yield shop


async def test_what_is_committed_runs_and_what_is_rolled_back_never_does(shop: Shop) -> None:
    async with run_worker(shop.app):
        with shop.orders() as db:
            await shop.ship.using(conn=db).enqueue(1)
            db.rollback()
        kept = await shop.order(2)
        await until(lambda: shop.shipped)
        assert await kept.result(timeout=10) == 2
    assert shop.shipped == [2]


async def test_until_the_commit_the_store_knows_nothing_and_afterwards_the_job_has_the_id_that_was_told(
    shop: Shop,
) -> None:
    with shop.orders() as db:
        handle = await shop.ship.using(conn=db, key="order:7").enqueue(7)
        async with run_worker(shop.app):
            other = await shop.ship.enqueue(8)
            assert await other.result(timeout=10) == 8
            assert await shop.state(handle) is None
            db.commit()
            await until(lambda: 7 in shop.shipped)
    job = await shop.app.jobs.show(handle.id)
    assert (job.key, job.task) == ("order:7", "ship")


async def test_a_letter_that_is_carried_twice_is_one_job(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    carried: list[list[AddResult]] = []

    async def lose_the_answer(_: Outbox, jobs: list[NewJob]) -> None:
        """The jobs are stored, and nobody hears of it: what a relay's death between its two steps looks like."""
        carried.append(await (await shop.app._internals.store()).jobs.add(jobs))
        if len(carried) < 3:
            raise StoreUnavailable("the answer was lost")

    monkeypatch.setattr(outbox, "RETRY_DELAY", 0.05)
    monkeypatch.setattr(Outbox, "_deliver", lose_the_answer)
    async with run_worker(shop.app):
        handle = await shop.order(3)
        await until(lambda: len(carried) == 3)
        await until(lambda: shop.shipped)
    assert [added[0].created for added in carried] == [True, False, False]
    assert shop.shipped == [3]
    assert await shop.state(handle) is JobState.SUCCEEDED


async def test_letters_wait_uncharged_while_the_store_is_away(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    deliver = Outbox._deliver

    async def away_at_first(self: Outbox, jobs: list[NewJob]) -> None:
        nonlocal asked
        asked += 1
        if asked < 8:
            raise StoreUnavailable("away")
        await deliver(self, jobs)

    monkeypatch.setattr(outbox, "RETRY_DELAY", 0.02)
    monkeypatch.setattr(Outbox, "_deliver", away_at_first)
    async with run_worker(shop.app):
        await shop.order(4)
        await until(lambda: shop.shipped == [4])
    assert asked == 8, "more often than a task may fail"


async def test_a_delay_counts_from_the_letter(shop: Shop) -> None:
    handle = await shop.order(5, delay=3600)
    with closing(sqlite3.connect(shop.file)) as db, db:
        # The letter has lain there for an hour and a half.
        db.execute("UPDATE drumbeat_job SET due_at = due_at - 5400000000, run_at = run_at - 5400000000")
    async with run_worker(shop.app):
        await until(lambda: shop.shipped == [5])
    assert await shop.state(handle) is JobState.SUCCEEDED


async def test_orders_in_postgresql_have_their_outbox_there(store_url: str) -> None:
    url = SERVERS["postgres"].fresh_url()
    app = Drumbeat(store_url, outbox=url)
    seen: list[int] = []

    @app.task
    async def ship(order: int) -> None:
        seen.append(order)

    connection = await asyncpg.connect(url)
    try:
        async with app, run_worker(app):
            async with connection.transaction():
                await ship.using(conn=connection).enqueue(6)
            await until(lambda: seen == [6])
    finally:
        await connection.close()
