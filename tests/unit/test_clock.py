"""The real clock, and the fake one that tests move."""

import asyncio
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumbeat.clock import SYSTEM, Clock, FakeClock, jitter
from tests.waiting import until


def test_the_system_clock_is_that_of_the_machine() -> None:
    before = time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000
    assert before <= SYSTEM.now_us() <= time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000
    assert SYSTEM.monotonic() <= SYSTEM.monotonic()


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no boot-time clock")
def test_monotonic_time_counts_suspension_where_it_can() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SYSTEM.monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)


async def test_the_system_clock_sleeps_at_least_as_long_as_asked() -> None:
    before = SYSTEM.monotonic()
    await SYSTEM.sleep(0.01)
    assert SYSTEM.monotonic() - before >= 0.01


@given(st.floats(0, 1e6))
@settings(deadline=None)
def test_jitter_stays_between_half_and_one_and_a_half(seconds: float) -> None:
    assert seconds * 0.5 <= jitter(seconds) <= seconds * 1.5
    assert jitter(seconds, lambda low, high: high) == 1.5 * seconds


async def test_a_fake_clock_stands_still() -> None:
    clock: Clock = FakeClock(now_us=5)
    await clock.sleep(0)
    await clock.sleep(-1)
    assert (clock.now_us(), clock.monotonic()) == (5, 0.0)


async def test_advance_moves_wall_and_monotonic_time() -> None:
    clock = FakeClock(now_us=0)
    await clock.advance(1.5)
    assert (clock.now_us(), clock.monotonic()) == (1_500_000, 1.5)


async def test_jump_moves_only_the_wall_clock_and_wakes_no_sleeper() -> None:
    clock = FakeClock(now_us=0)
    async with asyncio.TaskGroup() as group:
        sleeper = group.create_task(clock.sleep(10), name="sleeper")
        await clock.advance(1)
        clock.jump(-3_600)
        assert (clock.now_us(), clock.monotonic()) == (1_000_000 - 3_600_000_000, 1.0)
        clock.jump(7_200)
        await clock.advance(8)
        assert not sleeper.done()
        await clock.advance(1)
        assert sleeper.done()


async def test_a_sleeper_wakes_when_it_is_due_and_not_before() -> None:
    clock = FakeClock(now_us=0)
    woken: list[int] = []

    async def sleep() -> None:
        await clock.sleep(5)
        woken.append(clock.now_us())

    async with asyncio.TaskGroup() as group:
        group.create_task(sleep(), name="sleeper")
        await clock.advance(4.999999)
        assert woken == []
        await clock.advance(10)
    assert woken == [5_000_000]


async def test_who_sleeps_again_within_the_span_is_woken_again() -> None:
    clock = FakeClock(now_us=0)
    beats: list[int] = []

    async def beat() -> None:
        while True:
            await clock.sleep(1)
            beats.append(clock.now_us() // 1_000_000)

    async with asyncio.TaskGroup() as group:
        heart = group.create_task(beat(), name="heart")
        await clock.advance(5)
        heart.cancel()
    assert beats == [1, 2, 3, 4, 5]


@given(st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=4), min_size=1, max_size=6), st.integers(0, 120))
@settings(deadline=None, max_examples=60)
def test_all_sleepers_wake_in_order_and_exactly_those_that_are_due(naps: list[list[int]], span: int) -> None:
    woken: list[tuple[int, int]] = []

    async def sleep(number: int, clock: FakeClock) -> None:
        for nap in naps[number]:
            await clock.sleep(nap)
            woken.append((clock.now_us() // 1_000_000, number))

    async def main() -> None:
        clock = FakeClock(now_us=0)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(sleep(number, clock), name=f"{number}") for number in range(len(naps))]
            await clock.advance(span)
            for task in tasks:
                task.cancel()

    asyncio.run(main())
    due = [
        (moment, number)
        for number, own in enumerate(naps)
        for moment in (sum(own[: count + 1]) for count in range(len(own)))
        if moment <= span
    ]
    assert [moment for moment, _ in woken] == sorted(moment for moment, _ in due)
    assert sorted(woken) == sorted(due)


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = FakeClock()
    async with asyncio.TaskGroup() as group:
        sleeper = group.create_task(clock.sleep(5), name="sleeper")
        await clock.advance(1)
        assert clock.sleepers == 1
        sleeper.cancel()
        await clock.advance(10)
    assert clock.sleepers == 0


async def test_a_sleeper_on_another_thread_is_woken_too() -> None:
    clock = FakeClock()
    thread = threading.Thread(target=lambda: asyncio.run(clock.sleep(5)))
    thread.start()
    await until(lambda: clock.sleepers == 1, what="the other thread's sleep")
    await clock.advance(5)
    await until(lambda: not thread.is_alive(), what="the end of the other thread")
    thread.join()


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
async def test_time_does_not_advance_backwards_or_for_ever(seconds: float) -> None:
    with pytest.raises(ValueError, match="cannot advance"):
        await FakeClock().advance(seconds)
