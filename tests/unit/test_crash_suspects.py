import asyncio

import pytest

from drumbeat.clock import FakeClock
from drumbeat.worker import crash_suspects
from drumbeat.worker.crash_suspects import CrashSuspectLimiter, NoChildFree


@pytest.mark.parametrize(("concurrency", "children"), [(1, 1), (2, 1), (4, 2), (10, 4), (100, 4)])
async def test_few_run_at_once_whatever_the_concurrency(concurrency: int, children: int) -> None:
    room, running, most, go_on = CrashSuspectLimiter(concurrency, FakeClock()), 0, 0, asyncio.Event()

    async def run() -> None:
        nonlocal running, most
        async with room.acquire_child():
            running += 1
            most = max(most, running)
            await go_on.wait()
            running -= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(max(1, concurrency // 2)):
            group.create_task(run())
        while running < children:
            await asyncio.tasks.sleep(0)
        go_on.set()
    assert most == children


async def test_who_finds_too_many_waiting_is_put_off_at_once_and_for_as_long_as_they_run() -> None:
    clock = FakeClock()
    room = CrashSuspectLimiter(1, clock)
    async with room.acquire_child():
        with pytest.raises(NoChildFree) as soon:
            async with room.acquire_child():
                pass
        await clock.advance(3_600)
        with pytest.raises(NoChildFree) as late:
            async with room.acquire_child():
                pass
    assert 0.5e6 <= soon.value.delay_us <= 1.5e6
    assert 30e6 <= late.value.delay_us <= 90e6
    async with room.acquire_child():
        pass


async def test_who_waits_too_long_for_a_child_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_suspects, "MAX_WAIT", 0.01)
    room = CrashSuspectLimiter(4, FakeClock())
    async with room.acquire_child(), room.acquire_child():
        with pytest.raises(NoChildFree):
            async with room.acquire_child():
                pass
    async with room.acquire_child(), room.acquire_child():
        pass
