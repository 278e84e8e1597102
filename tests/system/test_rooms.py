"""Rooms between real processes, of which one is killed."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.apps import rooms
from tests.system.workers import Cluster
from tests.waiting import until

LARGE = 200 * 1024


@pytest.fixture(params=["sqlite", "postgres", "valkey", "pair"])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def cluster(store_url: str, coordination: str | None, tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path, "tests.apps.rooms")
    cluster.url = store_url
    rooms.app.configure({"url": store_url, "coordination": coordination})
    async with rooms.app:
        yield cluster
    cluster.end()


async def in_room() -> int:
    store = await rooms.app._internals.store()
    return sum("refresh" in each.rooms for each in await store.inspect.list_instances())


async def test_three_processes_share_the_items_and_all_get_the_broadcast(
    cluster: Cluster, coordination: str | None
) -> None:
    environ = {"DRUMBEAT_DEAD_AFTER": "60"} | ({} if coordination is None else {"DRUMBEAT_COORDINATION": coordination})
    processes = [cluster.start(**environ) for _ in range(3)]
    pids = {process.pid for process in processes}

    async def are(count: int) -> None:
        async def is_so() -> bool:
            return await in_room() == count

        await until(is_so, what=f"{count} workers in the room\n{cluster.logs()}", deadline=60)

    await are(3)
    assert await rooms.refresh.fan_out(list(range(9))) == 3
    shares = cluster.wait_for("refresh", 3)
    assert {entry.pid for entry in shares} == pids
    assert sorted(entry.facts["numbers"] for entry in shares) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]

    assert await rooms.news.broadcast("x" * LARGE) == 3
    heard = cluster.wait_for("news", 3)
    assert {(entry.pid, entry.facts["size"]) for entry in heard} == {(pid, LARGE) for pid in pids}

    processes[0].kill()
    # Nobody knows of its death yet, so a share may be for the dead one: then another has it.
    assert await rooms.refresh.fan_out(list(range(9, 18))) == 2
    shares = cluster.wait_for("refresh", 6)[3:]
    assert {entry.pid for entry in shares} == pids - {processes[0].pid}
    assert sorted(entry.facts["numbers"] for entry in shares) == [[9, 10, 11], [12, 13, 14], [15, 16, 17]]
    # It is silent by now, and gets nothing, though it is not found dead.
    assert await in_room() == 3
    assert await rooms.refresh.fan_out(list(range(9, 19))) == 2
    shares = cluster.wait_for("refresh", 8)[6:]
    assert sorted(entry.facts["numbers"] for entry in shares) == [list(range(9, 14)), list(range(14, 19))]
    assert await rooms.news.broadcast("x") == 2
    cluster.wait_for("news", 5)

    for process in processes[1:]:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(30) for process in processes[1:]] == [0, 0], cluster.logs()
    assert await rooms.news.broadcast("nobody lives") == 0
    assert (len(cluster.entries("refresh")), len(cluster.entries("news"))) == (8, 5)
