"""A database that is flushed, or replaced by an older copy of itself, is noticed at the next heartbeat, and told; results of
runs that it knows nothing of are refused, and work goes on."""

import asyncio
import logging
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from drumbeat import Drumbeat
from drumbeat.core.job import OutcomeKind
from drumbeat.events import LeaseLost, ScheduleRestored, StoreEmptied
from tests.contract.making import add, claim, end, ids, new_job, worker
from tests.engines.redis.conftest import open_redis
from tests.servers.redis import RedisServer
from tests.waiting import until
from tests.worker.worker_harness import EventRecorder, run_worker


@pytest.fixture
def server(kind: str) -> Iterator[RedisServer]:
    with RedisServer(kind) as server:
        yield server


def copy(server: RedisServer) -> None:
    server.ask("SAVE")
    shutil.copy(server.folder / "dump.rdb", server.folder / "copy.rdb")


def restore(server: RedisServer) -> None:
    server.kill()
    shutil.copy(server.folder / "copy.rdb", server.folder / "dump.rdb")
    server.start()


async def test_after_a_flush_nobody_lives_and_no_old_result_is_accepted(server: RedisServer) -> None:
    async with await open_redis(server) as store:
        instance = await worker(store)
        await add(store, new_job())
        [job] = await claim(store, instance)
        server.ask("FLUSHALL")
        assert not (await store.instances.heartbeat(instance, 1)).alive
        assert await end(store, instance, job, OutcomeKind.SUCCEEDED) == "stale"
        assert await claim(store, instance) == []
        another = await worker(store)
        [id] = await add(store, new_job())
        assert ids(await claim(store, another)) == [id]


async def test_an_older_copy_shows_in_the_count_of_beats_and_refuses_later_claims(server: RedisServer) -> None:
    async with await open_redis(server) as store:
        instance = await worker(store)
        await add(store, new_job())
        first = (await store.instances.heartbeat(instance, 0)).beat
        copy(server)
        [job] = await claim(store, instance)
        assert (await store.instances.heartbeat(instance, 1)).beat == first + 1
        await asyncio.to_thread(restore, server)
        assert (await store.instances.heartbeat(instance, 1)).beat == first + 1
        assert await end(store, instance, job, OutcomeKind.SUCCEEDED) == "stale"
        [again] = await claim(store, instance)
        assert again.token > job.token


async def test_a_worker_whose_store_was_flushed_begins_anew(server: RedisServer) -> None:
    app = Drumbeat(server.url)
    recorder = EventRecorder(app)

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async with app, run_worker(app):
        assert await (await double.enqueue(1)).result(timeout=5) == 2
        server.ask("FLUSHALL")
        await recorder.next(LeaseLost)
        assert await (await double.enqueue(2)).result(timeout=5) == 4
        assert len(await app.instances.list()) == 1


@pytest.mark.parametrize("how", ["flushed", "restarted"])
async def test_what_a_program_declares_fires_again_after_its_store_was_emptied(
    server: RedisServer, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Drumbeat(server.url)
    recorder = EventRecorder(app)
    fired: list[int] = []

    @app.every(0.2)
    async def tick() -> None:
        fired.append(1)

    @app.room
    async def news() -> None: ...

    async with app, run_worker(app):
        await until(lambda: fired, what="a run")
        if how == "flushed":
            server.ask("FLUSHALL")
        else:
            await asyncio.to_thread(restart_empty, server)
        await recorder.next(StoreEmptied)
        restored = await recorder.next(ScheduleRestored)
        assert restored.schedule == "tick"
        count = len(fired)
        await until(lambda: len(fired) >= count + 2, what="more runs")
        assert await news.broadcast() == 1
    assert "the store was emptied" in caplog.text
    assert "a declared schedule had vanished from the store" in caplog.text


def restart_empty(server: RedisServer) -> None:
    """As one without persistence."""
    server.kill()
    (server.folder / "dump.rdb").unlink(missing_ok=True)
    server.start()


async def test_a_worker_whose_store_went_back_says_so_and_runs_what_the_copy_knows(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    app = Drumbeat(server.url)
    recorder = EventRecorder(app)
    gate, runs = asyncio.Event(), []

    @app.task
    async def slow() -> int:
        runs.append(1)
        if len(runs) == 1:
            await gate.wait()
        return len(runs)

    async with app, run_worker(app):
        job = await slow.enqueue()
        await until(lambda: runs, what="the first run")
        copy(server)
        count = (await only(app)).beat
        await until(lambda: beaten(app, count + 5), what="some beats")
        await asyncio.to_thread(restore, server)
        await recorder.next(LeaseLost)
        gate.set()
        assert await job.result(timeout=10) == 2
    told = [record for record in caplog.records if "an older copy of the store was restored" in record.message]
    assert [record.levelno for record in told] == [logging.ERROR]


async def only(app: Drumbeat) -> Any:
    [instance] = await app.instances.list()
    return instance


async def beaten(app: Drumbeat, count: int) -> bool:
    return bool((await only(app)).beat >= count)
