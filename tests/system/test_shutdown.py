"""SIGTERM while something runs that is no job: a start-up call, a handler of a room. The drain is the default, 25 s."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps import stopping
from tests.system.workers import Cluster
from tests.waiting import until, within


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, "tests.apps.stopping")
    yield cluster
    cluster.end()


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_start_up_call_does_not_hold_up_a_stop(cluster: Cluster, kind: str) -> None:
    worker = cluster.start(TEST_START=kind)
    cluster.wait_for("begun")
    with within(5.0):
        worker.terminate()
        assert worker.wait(20) == 0, cluster.logs()
    assert [entry.facts["reason"] for entry in cluster.entries("told")] == (["draining"] if kind == "thread" else [])
    assert "Traceback" not in cluster.logs()


def test_a_second_sigterm_does_not_wait_for_a_start_up_call_that_hears_nothing(cluster: Cluster) -> None:
    worker = cluster.start(TEST_START="deaf", DRUMBEAT_LOG_LEVEL="debug")
    cluster.wait_for("begun")
    with within(5.0):
        worker.terminate()
        worker.send_signal(signal.SIGINT)
        assert worker.wait(20) == 0, cluster.logs()


async def test_a_handler_of_a_room_does_not_hold_up_a_stop(cluster: Cluster) -> None:
    worker = cluster.start()
    stopping.app.configure({"url": cluster.url})
    async with stopping.app:
        await until(stopping.linger.broadcast, deadline=30, what="a worker in the room")
        await until(lambda: cluster.entries("begun"), what="the call")
        with within(5.0):
            worker.terminate()
            await until(lambda: worker.poll() is not None, deadline=20, what="its end")
    assert worker.returncode == 0
    assert "Interrupted" in cluster.logs()
