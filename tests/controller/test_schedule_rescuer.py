"""The sweep for what stands still: often where there are schedules, seldom elsewhere."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drumbeat.clock import FakeClock
from drumbeat.controller.schedule_rescuer import ScheduleRescuer
from drumbeat.core.schedule import RuleKind
from drumbeat.store.protocol import Store
from tests.conftest import fresh_store
from tests.controller.factories import (
    SECOND,
    list_jobs,
    make_backoff,
    make_elector,
    make_firer,
    make_schedule,
    put_schedule,
)
from tests.faults import FaultyStore
from tests.waiting import until


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Store]:
    async with fresh_store("sqlite", tmp_path, clock=clock) as store:
        yield store


@pytest.mark.parametrize(
    ("leading", "needed", "least", "most"), [(True, True, 15, 70), (True, False, 4, 6), (False, True, 4, 6)]
)
async def test_the_sweep_is_as_frequent_as_it_is_needed(
    store: Store, clock: FakeClock, leading: bool, needed: bool, least: int, most: int
) -> None:
    counted = FaultyStore(store)
    sweep = ScheduleRescuer(
        counted, make_elector(clock, leading=leading), clock, make_backoff(clock), is_needed=lambda: needed
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(sweep.run())
        for _ in range(300):
            await until(lambda: clock.sleepers == 1, what="its sleep")
            await clock.advance(1)
        running.cancel()
    assert least <= counted.calls["schedules.advance_stalled"] <= most


async def test_an_interval_whose_job_vanished_goes_on(store: Store, clock: FakeClock, tmp_path: Path) -> None:
    await put_schedule(store, make_schedule("sweep", str(SECOND), kind=RuleKind.AFTER), clock.now_us())
    me = make_firer(store, clock)
    await me.fire_due()
    [job] = await list_jobs(store)
    await store.close()
    vanish(tmp_path / "test.db", job.id)
    await clock.advance(1)
    async with fresh_store("sqlite", tmp_path, clock=clock) as again:
        assert await again.schedules.advance_stalled() == 1
        await clock.advance(2)
        await make_firer(again, clock).fire_due()
        assert [each.id != job.id for each in await list_jobs(again)] == [True]


def vanish(file: Path, job: str) -> None:
    """By hand, and without the trigger that sees every other end."""
    db = sqlite3.connect(file)
    db.execute("DROP TRIGGER drumbeat_job_ended")
    db.execute("DELETE FROM drumbeat_job WHERE id = ?", (job,))
    db.commit()
    db.close()


async def test_whether_there_are_schedules_is_known_after_a_load(store: Store, clock: FakeClock) -> None:
    me = make_firer(store, clock)
    await me.fire_due()
    seen = [me.has_schedules]
    await put_schedule(store, make_schedule("sweep", str(SECOND), kind=RuleKind.AFTER), clock.now_us())
    for _ in range(2):  # after the first its job is under way, and it has no next moment
        await me.fire_due()
        seen.append(me.has_schedules)
    assert seen == [False, True, True]
