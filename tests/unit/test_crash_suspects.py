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
    async with room.acquire_child() as on_started:
        on_started()
        assert await put_off(room) == [0.5e6]
        await clock.advance(3_600)
        assert await put_off(room) == [60e6]
    async with room.acquire_child():
        pass


async def put_off(room: CrashSuspectLimiter, count: int = 1) -> list[float]:
    """The delays of so many suspects that find no child."""
    delays: list[float] = []
    for _ in range(count):
        with pytest.raises(NoChildFree) as error:
            async with room.acquire_child():
                pass
        delays.append(error.value.delay_us)
    return delays


async def test_a_child_that_loads_the_program_puts_nobody_off_for_long() -> None:
    clock = FakeClock()
    room = CrashSuspectLimiter(1, clock)
    async with room.acquire_child():
        await clock.advance(30)
        assert await put_off(room) == [0.5e6]


@pytest.mark.parametrize("run_seconds", [0.03, 0.5])
async def test_those_that_are_put_off_come_back_one_after_another_as_fast_as_they_are_served(
    run_seconds: float,
) -> None:
    clock = FakeClock()
    room = CrashSuspectLimiter(1, clock)
    async with room.acquire_child() as on_started:
        on_started()
        await clock.advance(run_seconds)
    async with room.acquire_child() as on_started:
        on_started()
        delays = await put_off(room, 10)
    seconds = [0.5 + number * run_seconds for number in range(10)]
    assert [delay / 1e6 for delay in delays] == pytest.approx(seconds)


async def test_a_few_long_suspects_do_not_put_off_many_short_ones_for_the_sum_of_all() -> None:
    clock = FakeClock()
    room = CrashSuspectLimiter(1, clock)
    async with room.acquire_child() as on_started:
        on_started()
        await clock.advance(2.0)
    async with room.acquire_child() as on_started:
        on_started()
        delays = [delay / 1e6 for delay in await put_off(room, 1_000)]
    assert min(delays) == pytest.approx(0.5) and max(delays) <= 5.5
    assert len({round(delay, 1) for delay in delays}) == 3


async def test_while_suspects_are_served_quickly_many_wait_for_a_child_and_none_is_put_off() -> None:
    clock = FakeClock()
    room, served = CrashSuspectLimiter(1, clock), 0

    async def run() -> None:
        nonlocal served
        async with room.acquire_child() as on_started:
            on_started()
            await asyncio.tasks.sleep(0)
            served += 1

    await run()
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(run())
    assert served == 51
    async with room.acquire_child() as on_started:
        on_started()
        await clock.advance(1.0)  # this one is not quick
        assert len(await put_off(room, 2)) == 2


async def test_who_waits_too_long_for_a_child_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_suspects, "MAX_WAIT", 0.01)
    room = CrashSuspectLimiter(4, FakeClock())
    async with room.acquire_child(), room.acquire_child():
        with pytest.raises(NoChildFree):
            async with room.acquire_child():
                pass
    async with room.acquire_child(), room.acquire_child():
        pass
