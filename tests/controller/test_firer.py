"""Every fire time becomes one job, whichever instance fires it, and the firer loads schedules only when it must."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from drumbeat.clock import FakeClock
from drumbeat.core.schedule import CatchUp, RuleKind
from drumbeat.durations import from_us
from drumbeat.events import Event, Events, ScheduleFired, ScheduleSkipped
from drumbeat.schedules.planner import first_fire_time
from drumbeat.store.protocol import Store
from tests.conftest import fresh_store
from tests.controller.factories import (
    DAY,
    SECOND,
    YOU,
    list_jobs,
    make_daily_schedule,
    make_firer,
    make_reply,
    make_schedule,
    put_schedule,
)
from tests.faults import FaultyStore
from tests.waiting import until

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Store]:
    async with fresh_store("sqlite", tmp_path, clock=clock) as store:
        yield store


async def test_four_months_are_fired_day_by_day_at_the_local_hour_with_one_load_for_each(
    store: Store, clock: FakeClock
) -> None:
    nightly = make_schedule(tz="Europe/Berlin")
    await put_schedule(store, nightly, first_fire_time(nightly, clock.now_us()))
    counted = FaultyStore(store)
    me = make_firer(counted, clock)
    end = clock.now_us() + 120 * DAY
    while clock.now_us() < end:
        await clock.advance(await me.fire_due())
    due = sorted(job.due_at.astimezone(BERLIN) for job in await list_jobs(store))
    first = datetime(2026, 1, 1, 3, tzinfo=BERLIN)
    assert due[:120] == [first + timedelta(days=day) for day in range(120)]
    # An hour is the longest sleep.
    assert counted.calls["schedules.get_due"] <= 120 * 25
    assert counted.calls["schedules.fire"] == len(due)


async def test_all_that_is_due_is_fired_in_batches(store: Store, clock: FakeClock) -> None:
    moment = clock.now_us()
    for number in range(450):
        await put_schedule(store, make_daily_schedule(moment, f"s{number}"), moment)
    counted = FaultyStore(store)
    await make_firer(counted, clock).fire_due()
    assert {job.schedule for job in await list_jobs(store)} == {f"s{number}" for number in range(450)}
    assert counted.calls["schedules.fire"] == 3


async def test_a_fire_time_that_comes_sooner_than_expected_is_not_slept_through(store: Store, clock: FakeClock) -> None:
    me = make_firer(store, clock)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(me.run())
        await until(lambda: clock.sleepers == 1, what="its sleep")
        await put_schedule(store, make_daily_schedule(clock.now_us()), clock.now_us())
        me.on_heartbeat(make_reply(clock.now_us(), next_fire=clock.now_us()))
        await until(lambda: list_jobs(store), what="the job")
        running.cancel()


async def test_a_stepped_clock_of_the_store_is_noticed_at_the_next_beat(store: Store, clock: FakeClock) -> None:
    await put_schedule(store, make_daily_schedule(clock.now_us() + DAY), clock.now_us() + DAY)
    me = make_firer(store, clock)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(me.run())
        await until(lambda: clock.sleepers == 1, what="its sleep")
        clock.jump(86_401)
        me.on_heartbeat(make_reply(clock.now_us(), next_fire=clock.now_us() - SECOND))
        await until(lambda: list_jobs(store), what="the job")
        running.cancel()


async def test_a_follower_fires_only_what_is_overdue_by_a_second(store: Store, clock: FakeClock) -> None:
    moment = clock.now_us()
    await put_schedule(store, make_daily_schedule(moment), moment)
    counted = FaultyStore(store)
    me = make_firer(counted, clock, leading=False)
    me.on_heartbeat(make_reply(moment, leader=YOU, next_fire=moment))
    pause = await me.fire_due()
    assert 1.0 <= pause <= 1.25
    assert counted.calls["schedules.get_due"] == 0
    await clock.advance(1.3)
    await me.fire_due()
    assert len(await list_jobs(store)) == 1


async def test_a_follower_loads_nothing_while_the_leader_fires(store: Store, clock: FakeClock) -> None:
    counted = FaultyStore(store)
    me = make_firer(counted, clock, leading=False)
    for _ in range(600):
        # The leader has fired by the time of each beat: the next moment is always ahead.
        me.on_heartbeat(make_reply(clock.now_us(), leader=YOU, next_fire=clock.now_us() + SECOND // 2))
        await me.fire_due()
        await clock.advance(1)
    assert counted.calls["schedules.get_due"] == 0


async def test_a_follower_that_fired_for_the_leader_stands_in_until_another_fires(
    store: Store, clock: FakeClock
) -> None:
    start = clock.now_us()
    await put_schedule(store, make_schedule("grid", str(SECOND), kind=RuleKind.GRID, start=start), start + SECOND)
    counted = FaultyStore(store)
    me, leader = make_firer(counted, clock, leading=False), make_firer(store, clock)
    me.on_heartbeat(make_reply(start, leader=YOU, next_fire=start + SECOND))
    await clock.advance(2.3)
    await clock.advance(await me.fire_due())  # the first was overdue, and the second is due
    while clock.now_us() < start + 6 * SECOND:
        await clock.advance(await me.fire_due())
    await me.fire_due()
    late = {job.due_at: (job.created_at - job.due_at).total_seconds() for job in await list_jobs(store)}
    assert len(late) == 6
    assert sorted(late.values())[-1] < 1.5
    assert all(seconds < 0.2 for due_at, seconds in late.items() if due_at > from_us(start + 2 * SECOND))
    # A leader that fires in time is left alone again after one look.
    for second in range(7, 13):
        await clock.advance((start + second * SECOND - clock.now_us()) / 1e6)
        await leader.fire_due()
        me.on_heartbeat(make_reply(clock.now_us(), leader=YOU, next_fire=start + (second + 1) * SECOND))
        before = counted.calls["schedules.get_due"]
        await clock.advance(0.5)
        await me.fire_due()
        if second > 7:
            assert counted.calls["schedules.get_due"] == before
    assert len(await list_jobs(store)) == 12


async def test_a_rule_that_cannot_be_read_is_logged_once_and_delays_no_other(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    moment = clock.now_us()
    for number in range(300):
        await put_schedule(store, make_schedule(f"bad{number}", "this is no cron"), moment)
    await put_schedule(store, make_daily_schedule(moment + 1, "good"), moment + 1)
    await clock.advance(1)
    me = make_firer(store, clock)
    with caplog.at_level(logging.ERROR):
        await me.fire_due()
        await me.fire_due()
    assert [job.schedule for job in await list_jobs(store)] == ["good"]
    told = [record for record in caplog.records if "cannot be read" in record.message]
    assert len(told) == 300


async def test_fires_and_skips_are_events(store: Store, clock: FakeClock) -> None:
    events, heard = Events(), list[Event]()
    events.subscribe(Event, heard.append)
    start = clock.now_us()
    await put_schedule(
        store, make_schedule("grid", str(SECOND), kind=RuleKind.GRID, catch_up=CatchUp.LATEST), start + SECOND
    )
    await clock.advance(5)
    await make_firer(store, clock, events=events).fire_due()
    skipped, fired = sorted(heard, key=lambda event: isinstance(event, ScheduleFired))
    assert isinstance(skipped, ScheduleSkipped) and isinstance(fired, ScheduleFired)
    assert (skipped.first, skipped.last, skipped.count) == (start + SECOND, start + 4 * SECOND, 4)
    assert (fired.schedule, fired.at, fired.late) == ("grid", start + 5 * SECOND, 0)
    assert [job.id for job in await list_jobs(store)] == [fired.job]


async def test_a_short_interval_by_completion_is_polled_more_often_than_heartbeats(
    store: Store, clock: FakeClock
) -> None:
    me = make_firer(store, clock)
    await put_schedule(store, make_schedule("long", str(60 * SECOND), kind=RuleKind.AFTER), clock.now_us())
    assert await me.fire_due() > 60
    await put_schedule(store, make_schedule("short", str(SECOND), kind=RuleKind.AFTER), clock.now_us())
    assert await me.fire_due() == 0.25
    assert await me.fire_due() == 0.25


async def test_an_outage_is_waited_out(store: Store, clock: FakeClock) -> None:
    await put_schedule(store, make_daily_schedule(clock.now_us()), clock.now_us())
    faulty = FaultyStore(store)
    faulty.fail_before["schedules.get_due"] = 2
    faulty.fail_after["schedules.fire"] = 1
    me = make_firer(faulty, clock)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(me.run())
        for _ in range(3):
            await until(lambda: clock.sleepers == 1, what="its patience")
            await clock.advance(5)
        await until(lambda: faulty.calls["schedules.get_due"] >= 4, what="a look after the outage")
        running.cancel()
    assert len(await list_jobs(store)) == 1
