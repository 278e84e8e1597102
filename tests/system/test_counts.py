"""The figures of a worker that is killed: what it had done is counted, though it had not written it yet."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumbeat.app import Drumbeat
from tests.apps.counting import noop
from tests.system.workers import Cluster, cluster_of
from tests.waiting import until

Pair = tuple[Cluster, Drumbeat]
JOBS = 300
PROGRAM = "tests.apps.counting"


@pytest.fixture
def pair(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    with cluster_of(tmp_path, PROGRAM, monkeypatch, url=store_url) as pair:
        yield pair


async def _kill_after_work(app: Drumbeat) -> None:
    await app.enqueue_many([noop.bind(number) for number in range(JOBS)])
    await until(lambda: _is_done(app), deadline=30, what="the jobs to be done")
    for each in await app.instances.list():
        os.kill(each.pid, signal.SIGKILL)


async def _is_done(app: Drumbeat) -> bool:
    return not await app.jobs.list(state="pending", limit=1) and not await app.jobs.list(state="running", limit=1)


async def _counted(app: Drumbeat) -> int:
    return sum(each.succeeded for each in await app.stats.totals())


async def _all_counted(app: Drumbeat) -> bool:
    return await _counted(app) >= JOBS


async def test_what_a_killed_worker_did_is_counted_by_who_finds_it_dead(pair: Pair) -> None:
    cluster, app = pair
    async with app:
        cluster.start()
        await _kill_after_work(app)
        cluster.start("--role", "controller")
        await until(lambda: _all_counted(app), deadline=20, what=f"counts equal to history\n{cluster.logs()}")
        assert await _counted(app) == JOBS
        for resolution in ("10s", "1m"):
            assert sum(each.succeeded for each in await app.stats.overall(resolution=resolution)) == JOBS


async def test_what_a_killed_worker_did_is_counted_by_its_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster_of(tmp_path, PROGRAM, monkeypatch) as (cluster, app):
        async with app:
            supervisor = cluster.start("--processes", "2", DRUMBEAT_DEAD_AFTER="60")
            await _kill_after_work(app)
            await until(lambda: _all_counted(app), deadline=20, what=f"counts equal to history\n{cluster.logs()}")
            assert await _counted(app) == JOBS
            supervisor.terminate()
            supervisor.wait(20)
