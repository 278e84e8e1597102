"""Redis is restarted, killed, frozen, and cuts off its clients under a working cluster: no worker exits, work goes on soon,
nothing that was accepted is lost, nothing is finished twice."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from drumbeat import Drumbeat
from drumbeat.errors import StoreUnavailable
from drumbeat.store.urls import open_store
from tests.cli.command import build_environment
from tests.engines.redis.conftest import DURABLE, KINDS
from tests.servers.redis import RedisServer
from tests.waiting import until, within

ROOT = Path(__file__).parents[2]
SOON = 5.0
BOTH = "return {redis.call('HGET', KEYS[1], ARGV[1]), redis.call('ZCARD', KEYS[2])}"
HELD_UP_MS = 1500
BATCH = 200


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with RedisServer(request.param, DURABLE) as server:
        yield server


async def restart(server: RedisServer) -> None:
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)


async def crash(server: RedisServer) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


async def cut_off(server: RedisServer) -> None:
    await asyncio.to_thread(server.ask, "CLIENT KILL", "SKIPME", "yes")


async def hold_up(server: RedisServer) -> None:
    """The command itself is answered; everything after it waits."""
    await asyncio.to_thread(server.ask, "CLIENT PAUSE", HELD_UP_MS, "ALL")
    await asyncio.to_thread(server.ask, "PING")


async def freeze(server: RedisServer) -> None:
    """Until a call is given up."""
    async with await open_store(server.url) as store:
        server.pause()
        try:
            with pytest.raises(StoreUnavailable):
                await store.inspect.now()
        finally:
            server.go_on()


TROUBLES: list[Callable[[RedisServer], Awaitable[None]]] = [restart, crash, cut_off, hold_up, freeze]


async def test_a_worker_outlives_whatever_happens_to_its_server(server: RedisServer) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "drumbeat", "run", "tests.apps.counting:app", "--log-level", "error"],
        cwd=ROOT,
        env=build_environment() | {"DRUMBEAT_URL": server.url},
    )
    accepted: list[str] = []
    is_over = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(enqueue(server.url, is_over, accepted))
            await until(lambda: finished(server), deadline=30, what="the first jobs")
            for trouble in TROUBLES:
                await trouble(server)
                before = await finished(server)
                with within(SOON):
                    await until(
                        lambda seen=before: more(server, seen), deadline=30, what=f"work after: {trouble.__name__}"
                    )
            is_over.set()
        await until(lambda: all_ended(server, accepted), deadline=60, what="the end of all that was accepted")
        assert worker.poll() is None
        # The counter counts every success that was taken; history has each job once. Both at one moment: there may be jobs of
        # which nobody was told that they were accepted, and they run.
        keys = ("{drumbeat}:count", "{drumbeat}:history")
        counted, ended = server.ask("EVAL", BOTH, len(keys), *keys, "noop\0succeeded")
        assert int(counted) == ended
    finally:
        worker.terminate()
        worker.wait(30)


async def enqueue(url: str, is_over: asyncio.Event, accepted: list[str]) -> None:
    app = Drumbeat(url)

    @app.task
    async def noop(number: int) -> None: ...

    async with app:
        while not is_over.is_set():
            calls = [noop.bind(number) for number in range(BATCH)]
            try:
                accepted += [handle.id for handle in await app.enqueue_many(calls)]
            except StoreUnavailable:
                continue  # whether they were accepted is unknown: they may run, and are not counted


async def finished(server: RedisServer) -> int:
    return int(await asyncio.to_thread(server.ask, "ZCARD", "{drumbeat}:history"))


async def more(server: RedisServer, than: int) -> bool:
    return await finished(server) > than


async def all_ended(server: RedisServer, accepted: list[str]) -> bool:
    ended = {id.hex() for id in await asyncio.to_thread(server.ask, "ZRANGE", "{drumbeat}:history", 0, -1)}
    return {id.replace("-", "") for id in accepted} <= ended
