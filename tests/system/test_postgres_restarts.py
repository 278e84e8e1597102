"""PostgreSQL is restarted under a working cluster: no worker exits, work goes on soon, nothing is lost, nothing runs twice."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumbeat.errors import StoreUnavailable
from drumbeat.store.urls import migrate_store
from tests.apps.counting import app, noop
from tests.cli.command import build_environment
from tests.servers.postgres import PostgresServer
from tests.waiting import until, within

ROOT = Path(__file__).parents[2]
SOON = 5.0
BATCH = 200


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer(in_memory=True) as server:
        yield server


async def ended(server: PostgresServer) -> list[str]:
    return [row[0] for row in await server.execute("SELECT id::text FROM drumbeat.history")]


async def enqueue(is_over: asyncio.Event, accepted: list[str]) -> None:
    async with app:
        while not is_over.is_set():
            calls = [noop.bind(number) for number in range(BATCH)]
            try:
                accepted += [handle.id for handle in await app.enqueue_many(calls)]
            except StoreUnavailable:
                continue  # whether they were accepted is unknown: they may run, and are not counted


async def test_a_worker_outlives_restarts_of_its_server(server: PostgresServer) -> None:
    app.configure({"url": server.url})  # other tests of this process may have used it with another store
    await migrate_store(server.url)
    worker = subprocess.Popen(
        [sys.executable, "-m", "drumbeat", "run", "tests.apps.counting:app", "--log-level", "error"],
        cwd=ROOT,
        env=build_environment() | {"DRUMBEAT_URL": server.url},
    )
    accepted: list[str] = []
    is_over = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(enqueue(is_over, accepted))
            for how in ("fast", "immediate"):
                await until(lambda: ended(server), deadline=30, what="the first jobs")
                await asyncio.to_thread(server.stop, how)
                await asyncio.to_thread(server.start)
                before = len(await ended(server))
                with within(SOON):
                    await until(lambda seen=before: more(server, seen), deadline=30, what="work after the restart")
            is_over.set()
        await until(lambda: all_ended(server, accepted), deadline=60, what="the end of all that was accepted")
        assert worker.poll() is None
        assert set(Counter(await ended(server)).values()) == {1}
    finally:
        worker.terminate()
        worker.wait(30)


async def more(server: PostgresServer, than: int) -> bool:
    return len(await ended(server)) > than


async def all_ended(server: PostgresServer, accepted: list[str]) -> bool:
    return set(accepted) <= set(await ended(server))
