"""How much an idle worker asks: counted in the server's own log."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator

import pytest

from drumbeat.app import Drumbeat
from drumbeat.clock import SYSTEM
from drumbeat.settings import Settings
from drumbeat.store.postgres import PostgresStore, schema
from drumbeat.store.protocol.wake import Subscriber
from tests.engines.postgres.conftest import address_of
from tests.servers.postgres import PostgresServer
from tests.waiting import until, within
from tests.worker.worker_harness import run_worker

SECONDS = 6.0
STATEMENT = re.compile(r"^.*LOG:  (?:statement|execute) ", re.MULTILINE)
AS_DELIVERED = {name: getattr(Settings(), name) for name in ("heartbeat", "dead_after", "poll")}


@pytest.fixture
def logging_server() -> Iterator[PostgresServer]:
    """It writes down every statement."""
    with PostgresServer(settings={"log_statement": "all", "fsync": "off"}, in_memory=True) as server:
        yield server


@pytest.fixture
async def app(logging_server: PostgresServer) -> AsyncIterator[Drumbeat]:
    await schema.migrate(address_of(logging_server.url), "drumbeat")
    async with Drumbeat(logging_server.url) as app:
        yield app


async def test_an_idle_worker_sends_less_than_two_statements_a_second(
    app: Drumbeat, logging_server: PostgresServer
) -> None:
    @app.task
    async def noop(number: int) -> None: ...

    def count_notifications() -> int:
        return len(STATEMENT.findall(logging_server.log))

    async with run_worker(app, **AS_DELIVERED):
        # Quick jobs: from then on both lanes have room for a whole batch.
        jobs = await app.enqueue_many([noop.bind(number) for number in range(200)])
        for job in jobs:
            await job.result(timeout=10)
        before = count_notifications()
        began = SYSTEM.monotonic()
        await until(lambda: SYSTEM.monotonic() - began > SECONDS, deadline=2 * SECONDS)
        sent, took = count_notifications() - before, SYSTEM.monotonic() - began
    assert SECONDS / 2 < sent <= 2 * took


async def test_behind_a_pooler_a_worker_polls_often(url: str) -> None:
    """It gets no hints of other processes."""
    notified = asyncio.Event()
    async with await PostgresStore.open(address_of(f"{url}?pooler=transaction")) as store:
        async with store.wake.listen(Subscriber(lambda due: notified.set() if due == 0 else None)):
            with within(3.0):
                for _ in range(3):
                    notified.clear()
                    async with asyncio.timeout(20):
                        await notified.wait()
