"""What a handler has changed in its process is restored while the worker runs, and not afterwards."""

import asyncio
import sys
from collections.abc import Iterator

import pytest

from drumbeat.worker import process_guard
from drumbeat.worker.process_guard import ProcessGuard
from tests.waiting import until


@pytest.fixture
def interval() -> Iterator[float]:
    before = sys.getswitchinterval()
    yield before
    sys.setswitchinterval(before)


@pytest.fixture(autouse=True)
def frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_guard, "CHECK_INTERVAL", 0.005)


async def test_what_was_changed_is_restored(interval: float) -> None:
    guard = ProcessGuard(asyncio.get_running_loop(), None)
    guard.start()
    sys.setswitchinterval(2 * interval)
    await until(lambda: sys.getswitchinterval() == pytest.approx(interval), what="the interval of before")
    guard.stop()


async def test_the_loops_task_factory_is_restored_after_each_job() -> None:
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()
    guard = ProcessGuard(loop, None)
    guard.arm()
    loop.set_task_factory(lambda loop, coro, **options: asyncio.Task(coro, loop=loop, **options))
    guard.restore_loop()
    assert loop.get_task_factory() is before


async def test_a_guard_that_was_stopped_changes_nothing_any_more(interval: float) -> None:
    loop = asyncio.get_running_loop()
    guard = ProcessGuard(loop, None)
    guard.start()
    guard.stop()
    sys.setswitchinterval(2 * interval)
    watched = loop.time() + 4 * process_guard.CHECK_INTERVAL
    await until(lambda: loop.time() > watched, what="four looks")
    assert sys.getswitchinterval() == pytest.approx(2 * interval)
