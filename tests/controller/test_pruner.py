"""The leader prunes; without a leader, every instance does."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drumbeat.admin import new_act
from drumbeat.clock import FakeClock
from drumbeat.controller.elector import Elector
from drumbeat.controller.pruner import Pruner
from drumbeat.core.room import RoomMessage
from drumbeat.core.schedule import RuleKind
from drumbeat.core.stats import Resolution, Rollup
from drumbeat.errors import StoreUnavailable
from drumbeat.ids import new_instance_id
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store
from tests.conftest import fresh_store
from tests.contract.making import worker
from tests.controller.factories import (
    ME,
    SECOND,
    YOU,
    make_backoff,
    make_elector,
    make_firer,
    make_reply,
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


def pruner(store: Store, clock: FakeClock, elector: Elector) -> Pruner:
    return Pruner(store, elector, clock, make_backoff(clock), Settings(retention=3_600.0))


async def rounds(store: Store, clock: FakeClock, elector: Elector, minutes: int) -> int:
    """How often it pruned in these minutes without a heartbeat."""
    counted = FaultyStore(store)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(pruner(counted, clock, elector).run())
        for _ in range(minutes):
            await until(lambda: clock.sleepers == 1, what="its sleep")
            await clock.advance(60)
        await until(lambda: clock.sleepers == 1, what="its sleep")
        running.cancel()
    return counted.calls["jobs.prune"]


async def test_the_leader_prunes_about_every_minute(store: Store, clock: FakeClock) -> None:
    assert 5 <= await rounds(store, clock, make_elector(clock, leading=True), 15) <= 30


async def test_a_follower_that_knows_a_leader_does_not_prune(store: Store, clock: FakeClock) -> None:
    follower = make_elector(clock)
    await clock.advance(400)
    follower.on_heartbeat(ME, make_reply(leader=YOU), clock.monotonic())
    assert await rounds(store, clock, follower, 4) == 0


async def test_without_a_leader_every_instance_prunes_after_five_minutes(store: Store, clock: FakeClock) -> None:
    assert await rounds(store, clock, make_elector(clock, is_candidate=False), 4) == 0
    assert await rounds(store, clock, make_elector(clock, is_candidate=False), 15) >= 4


async def test_old_fires_go_with_the_history(store: Store, clock: FakeClock) -> None:
    await put_schedule(store, make_schedule("grid", str(600 * SECOND), kind=RuleKind.GRID), clock.now_us())
    for _ in range(24):
        await clock.advance(600)
        await make_firer(store, clock).fire_due()
    assert len((await store.schedules.list_fires(["grid"]))["grid"]) == 25
    await pruner(store, clock, make_elector(clock)).prune_all()
    kept = (await store.schedules.list_fires(["grid"]))["grid"]
    assert {fire.at >= clock.now_us() - 3_600 * SECOND for fire in kept} == {True}
    assert len(kept) == 7


async def test_what_people_did_is_kept_for_a_time_of_its_own(store: Store, clock: FakeClock) -> None:
    for who in ("ada", "bob"):
        await store.audit.begin(new_act(who=who, verb="queues.pause", target="mail"))
        await clock.advance(45 * 86_400)
    await pruner(store, clock, make_elector(clock)).prune_all()
    assert [act.who for act in await store.audit.list_page()] == ["bob", "ada"]
    await clock.advance(1)
    await pruner(store, clock, make_elector(clock)).prune_all()
    assert [act.who for act in await store.audit.list_page()] == ["bob"]


async def test_untaken_messages_of_rooms_are_gone_after_a_minute_or_an_hour(store: Store, clock: FakeClock) -> None:
    lives = await worker(store)
    dead = new_instance_id()
    await store.rooms.send([RoomMessage(id="1", room="x", to=to, args="{}", signature="s") for to in (lives, dead)])

    async def left_after(seconds: float) -> list[int]:
        """How many each finds in its inbox, so much later."""
        await clock.advance(seconds)
        await pruner(store, clock, make_elector(clock)).prune_all()
        kept = [await store.rooms.take(each, 10) for each in (lives, dead)]
        return [len(each) for each in kept]

    assert await left_after(61) == [1, 0]
    await store.rooms.send([RoomMessage(id="2", room="x", to=lives, args="{}", signature="s")])
    assert await left_after(3_601) == [0, 0]


async def test_counts_are_kept_for_two_hours_with_history_for_two_weeks_or_for_ever(
    store: Store, clock: FakeClock
) -> None:
    instance, begin = await worker(store), clock.now_us()
    rows = [
        Rollup(resolution=resolution, at=begin if resolution else 0, queue="q", task="t", started=1)
        for resolution in Resolution
    ]
    await store.stats.put(instance, rows)
    await store.instances.deregister(instance, "done")

    async def left_after(seconds: float, retention: float) -> list[int]:
        """How much is left of each resolution, so much later."""
        await clock.advance(seconds)
        settings = Settings(retention=retention)
        await Pruner(store, make_elector(clock), clock, make_backoff(clock), settings).prune_all()
        totals = await store.stats.read(Resolution.TOTAL, 0, 1)
        stretches = [
            await store.stats.read(resolution, 0, 2**60)
            for resolution in (Resolution.TEN_SECONDS, Resolution.MINUTE, Resolution.HOUR)
        ]
        return [sum(each.started for each in found) for found in (totals, *stretches)]

    assert await left_after(7_190, 10_000) == [1, 1, 1, 1]
    assert await left_after(20, 10_000) == [1, 0, 1, 1]
    assert await left_after(10_000, 10_000) == [1, 0, 0, 1]
    assert await left_after(15 * 86_400, 10_000) == [1, 0, 0, 0]


async def test_a_store_of_rooms_that_is_away_stops_nothing(store: Store, clock: FakeClock) -> None:
    faulty = FaultyStore(store)
    faulty.fail_before["rooms.prune"] = 1
    await pruner(faulty, clock, make_elector(clock)).prune_all()
    assert faulty.calls["rooms.prune"] == 1


async def test_who_is_no_longer_the_leader_has_no_outage(store: Store, clock: FakeClock) -> None:
    follower = make_elector(clock)
    follower.on_heartbeat(ME, make_reply(leader=YOU), clock.monotonic())
    part = pruner(store, clock, follower)
    part.backoff.record_failure(StoreUnavailable("away"))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(part.run())
        await until(lambda: clock.sleepers == 1, what="its sleep")
        await clock.advance(60)
        await until(lambda: clock.sleepers == 1, what="its sleep")
        running.cancel()
    assert not part.backoff.is_active
