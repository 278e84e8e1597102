"""What code declares becomes schedules, and stays so in rolling deploys."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from drumbeat.clock import FakeClock
from drumbeat.controller.schedule_declarations import ScheduleDeclarations
from drumbeat.core.schedule import NewSchedule, Origin, RuleKind, Schedule, ScheduleChange, ScheduleState
from drumbeat.errors import StoreFull
from drumbeat.schedules.planner import first_fire_time
from drumbeat.store.protocol import Store
from tests.conftest import fresh_store
from tests.contract.making import worker
from tests.controller.factories import SECOND, make_backoff, make_elector, make_schedule, put_schedule
from tests.faults import FaultyStore
from tests.waiting import until

MINUTE = 60 * SECOND


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Store]:
    async with fresh_store("sqlite", tmp_path, clock=clock) as store:
        yield store


def declared(name: str = "nightly", rule: str = "0 3 * * *", **changes: Any) -> NewSchedule:
    return make_schedule(name, rule, **({"origin": Origin.CODE, "app": "shop", "version": "1"} | changes))


def interval(rule: int, **changes: Any) -> NewSchedule:
    return declared("sweep", str(rule), kind=RuleKind.AFTER, **changes)


def declarer(store: Store, clock: FakeClock, *schedules: NewSchedule, leading: bool = False) -> ScheduleDeclarations:
    return ScheduleDeclarations(store, make_elector(clock, leading=leading), clock, make_backoff(clock), schedules)


def forget_schedule(store: Store, name: str) -> None:
    """Change it in the database itself."""
    with closing(sqlite3.connect(store.url.removeprefix("sqlite:///"))) as database, database:
        assert database.execute("DELETE FROM drumbeat_schedule WHERE name = ?", [name]).rowcount == 1


async def known(store: Store, name: str = "nightly") -> Schedule:
    found = await store.schedules.get(name)
    assert found is not None
    return found


async def test_a_new_one_is_put_and_declared(store: Store, clock: FakeClock) -> None:
    await declarer(store, clock, declared()).declare_all()
    found = await known(store)
    assert found.definition == declared()
    assert (found.state, found.revision) == (ScheduleState.ACTIVE, 1)
    assert found.next_at == first_fire_time(declared(), clock.now_us())
    assert found.declared_at == clock.now_us()


async def test_the_same_again_is_no_change_and_neither_is_another_version_of_the_app(
    store: Store, clock: FakeClock
) -> None:
    await declarer(store, clock, declared()).declare_all()
    await clock.advance(30)
    await declarer(store, clock, declared(version="2")).declare_all()
    found = await known(store)
    assert (found.revision, found.declared_at) == (1, clock.now_us())


async def test_a_changed_rule_counts_from_now(store: Store, clock: FakeClock) -> None:
    await declarer(store, clock, declared()).declare_all()
    hourly = declared(rule="0 * * * *")
    await declarer(store, clock, hourly).declare_all()
    found = await known(store)
    assert (found.definition.rule, found.revision) == ("0 * * * *", 2)
    assert found.next_at == first_fire_time(hourly, clock.now_us())


async def test_a_change_of_anything_else_keeps_the_next_fire_time_even_if_it_is_overdue(
    store: Store, clock: FakeClock
) -> None:
    await declarer(store, clock, declared()).declare_all()
    before = await known(store)
    await clock.advance(2 * 86_400)
    await declarer(store, clock, declared(timeout=MINUTE)).declare_all()
    found = await known(store)
    assert (found.definition.timeout, found.next_at) == (MINUTE, before.next_at)


async def test_a_changed_interval_is_never_later_than_it_was(store: Store, clock: FakeClock) -> None:
    later = clock.now_us() + 10 * MINUTE
    await put_schedule(store, interval(10 * MINUTE), later)
    await declarer(store, clock, interval(60 * MINUTE)).declare_all()
    assert (await known(store, "sweep")).next_at == later
    await declarer(store, clock, interval(MINUTE)).declare_all()
    assert (await known(store, "sweep")).next_at == clock.now_us() + MINUTE


async def test_a_persons_pause_survives_a_change_of_the_code(store: Store, clock: FakeClock) -> None:
    await declarer(store, clock, declared()).declare_all()
    facts: dict[str, Any] = {"cursor": None, "next_at": None, "by": "ada", "reason": "too loud"}
    await store.schedules.set_state(ScheduleChange(name="nightly", revision=1, state=ScheduleState.PAUSED, **facts))
    await declarer(store, clock, declared()).declare_all()
    assert (await known(store)).revision == 2
    await declarer(store, clock, declared(rule="0 4 * * *")).declare_all()
    found = await known(store)
    assert (found.state, found.next_at) == (ScheduleState.PAUSED, None)
    assert (found.definition.rule, found.changed_by, found.reason) == ("0 4 * * *", "ada", "too loud")


@pytest.mark.parametrize(
    ("other", "owner"), [({"app": "billing"}, "app 'billing'"), ({"origin": Origin.STORE, "app": ""}, "a person")]
)
async def test_what_belongs_to_another_app_or_to_a_person_is_not_touched(
    store: Store, clock: FakeClock, other: dict[str, Any], owner: str, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = declared(rule="0 5 * * *", **other)
    await put_schedule(store, theirs, first_fire_time(theirs, clock.now_us()))
    await declarer(store, clock, declared()).declare_all()
    assert (await known(store)).definition == theirs
    [record] = [each for each in caplog.records if "belongs to another app" in each.message]
    assert vars(record)["owner"] == owner


async def test_in_a_full_store_what_is_there_stays_declared(store: Store, clock: FakeClock) -> None:
    await declarer(store, clock, declared()).declare_all()
    await clock.advance(60)
    full = FaultyStore(store)
    full.first = (1, StoreFull("no room for a change"))
    full.calls.update(["schedules.get", "schedules.declare", "inspect.now"])
    with pytest.raises(StoreFull):
        await declarer(full, clock, declared(rule="0 4 * * *")).declare_all()
    found = await known(store)
    assert (found.definition, found.declared_at) == (declared(), clock.now_us())


async def test_a_retired_one_that_code_declares_again_is_active_again(store: Store, clock: FakeClock) -> None:
    await declarer(store, clock, declared()).declare_all()
    facts: dict[str, Any] = {"cursor": None, "next_at": None, "by": "", "reason": ""}
    await store.schedules.set_state(ScheduleChange(name="nightly", revision=1, state=ScheduleState.RETIRED, **facts))
    await declarer(store, clock, declared()).declare_all()
    found = await known(store)
    assert (found.state, found.next_at) == (ScheduleState.ACTIVE, first_fire_time(declared(), clock.now_us()))


async def test_in_a_rolling_deploy_neither_side_retires_what_the_other_declares(store: Store, clock: FakeClock) -> None:
    await worker(store)
    old = declarer(store, clock, declared("both"), declared("old"), leading=True)
    new = declarer(store, clock, declared("both"), declared("new"), leading=True)
    await old.declare_all()
    await new.declare_all()
    for _ in range(30):
        await clock.advance(60)
        await old.redeclare()
        await new.redeclare()
    assert {each.name for each in await store.schedules.list_page()} == {"both", "old", "new"}
    for _ in range(9):  # the last old instance has gone
        await clock.advance(60)
        await new.redeclare()
    assert {each.name for each in await store.schedules.list_page()} == {"both", "old", "new"}
    for _ in range(2):
        await clock.advance(60)
        await new.redeclare()
    assert {each.name for each in await store.schedules.list_page()} == {"both", "new"}
    assert (await known(store, "old")).state is ScheduleState.RETIRED


async def test_a_second_service_on_the_store_retires_nothing_of_the_first(store: Store, clock: FakeClock) -> None:
    await worker(store, app="billing")
    await declarer(store, clock, declared()).declare_all()
    other = declarer(store, clock, declared("invoices", app="billing"), leading=True)
    await other.declare_all()
    for _ in range(60):
        await clock.advance(60)
        await other.redeclare()
    assert (await known(store)).state is ScheduleState.ACTIVE


async def test_the_first_instance_after_a_night_retires_nothing(store: Store, clock: FakeClock) -> None:
    await worker(store)
    await declarer(store, clock, declared("mine"), declared("yours")).declare_all()
    await clock.advance(8 * 3_600)
    first = declarer(store, clock, declared("mine"), leading=True)
    await first.declare_all()
    for _ in range(9):
        await clock.advance(60)
        await first.redeclare()
    assert (await known(store, "yours")).state is ScheduleState.ACTIVE


async def test_a_follower_retires_nothing(store: Store, clock: FakeClock) -> None:
    await worker(store)
    await declarer(store, clock, declared()).declare_all()
    follower = declarer(store, clock)
    await follower.declare_all()
    await clock.advance(3_600)
    await follower.redeclare()
    assert (await known(store)).state is ScheduleState.ACTIVE


async def test_what_has_vanished_from_the_store_is_put_again_and_reported_and_a_deleted_one_is_not(
    store: Store, clock: FakeClock
) -> None:
    told: list[str] = []
    service = ScheduleDeclarations(
        store,
        make_elector(clock),
        clock,
        make_backoff(clock),
        [declared("nightly"), declared("deleted"), declared("kept")],
        on_restored=told.append,
    )
    await service.declare_all()
    facts: dict[str, Any] = {"cursor": None, "next_at": None, "by": "ada", "reason": "not any more"}
    await store.schedules.set_state(ScheduleChange(name="deleted", revision=1, state=ScheduleState.RETIRED, **facts))
    await clock.advance(60)
    await service.redeclare()
    assert told == []
    forget_schedule(store, "nightly")
    await clock.advance(60)
    await service.redeclare()
    assert told == ["nightly"]
    found = await known(store)
    assert (found.definition, found.state, found.revision) == (declared(), ScheduleState.ACTIVE, 1)
    assert found.next_at == first_fire_time(declared(), clock.now_us())
    assert (await known(store, "deleted")).state is ScheduleState.RETIRED


async def test_one_that_is_woken_declares_again_at_once(store: Store, clock: FakeClock) -> None:
    service = declarer(store, clock, declared())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(service.run())
        await until(lambda: clock.sleepers == 1, what="its sleep")
        forget_schedule(store, "nightly")
        service.wake()
        await until(lambda: store.schedules.get("nightly"), what="the declaration")
        running.cancel()


async def test_an_outage_at_the_start_is_waited_out(store: Store, clock: FakeClock) -> None:
    faulty = FaultyStore(store)
    faulty.fail_before["schedules.get"] = 2
    faulty.fail_after["schedules.put"] = 1
    service = declarer(faulty, clock, declared())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(service.run())
        for _ in range(3):
            await until(lambda: clock.sleepers == 1, what="its patience")
            await clock.advance(5)
        await until(lambda: faulty.calls["schedules.declare"], what="the declaration")
        running.cancel()
    assert (await known(store)).definition == declared()
