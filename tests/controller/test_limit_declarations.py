"""What a worker declares of limits at its start and again, and how the versions of a program agree on it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from drumbeat.clock import FakeClock
from drumbeat.controller.lane_sweeper import LEADERLESS_TIMEOUT, RUN_INTERVAL, LaneSweeper
from drumbeat.controller.limit_declarations import LimitDeclarations, policy_version
from drumbeat.core.limits import Bounds, LineChange, LineDeclaration, LinePolicy
from drumbeat.store.protocol import Store
from drumbeat.tasks.line_policies import LineView
from tests.conftest import fresh_store
from tests.contract.lanes import add_jobs, declare, finish, groups_of, take
from tests.contract.making import worker
from tests.controller.factories import make_backoff, make_elector
from tests.faults import FaultyStore
from tests.waiting import until

TWO, FIVE = LinePolicy(each=Bounds(2)), LinePolicy(each=Bounds(5))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Store]:
    async with fresh_store("sqlite", tmp_path, clock=clock) as store:
        yield store


def program(
    store: Store, clock: FakeClock, *, version: str = "", tasks: Iterable[str] = (), **lines: LinePolicy
) -> LimitDeclarations:
    """Of a program that declares these lines, and has tasks without a policy."""
    view = LineView(LineDeclaration(queue="default", line=line, policy=policy) for line, policy in lines.items())
    queues = dict.fromkeys(tasks, "default")
    return LimitDeclarations(store, make_elector(clock), clock, make_backoff(clock), view, queues, version)


async def declared(store: Store) -> dict[str, LinePolicy]:
    return {line.line: line.declared for line in await store.limits.list_lines()}


@pytest.mark.parametrize(
    "versions",
    [
        ["", "abc1234", "1234567", "1.2.3-rc1", "2026.11.19-2"],
        ["1.9", "1.9.0", "1.9.0.7", "v1.9"],
        ["20260", "20260.0"],
    ],
)
def test_versions_that_do_not_order_are_alike(versions: list[str]) -> None:
    assert len({policy_version(version) for version in versions}) == 1


def test_versions_of_numbers_are_in_their_order() -> None:
    versions = ["main", "0.1", "1", "1.0.1", "1.9", "1.10", "1.10.2", "2026.11.18", "2026.11.19", "999999.9999.9999"]
    numbers = [policy_version(version) for version in versions]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] < 2**53, "Lua has doubles"


async def test_what_the_code_declares_is_stored_before_the_first_claim(store: Store, clock: FakeClock) -> None:
    await program(store, clock, send=TWO).declare_all()
    assert await declared(store) == {"send": TWO}


async def test_a_task_that_has_no_policy_any_more_loses_that_of_its_line(store: Store, clock: FakeClock) -> None:
    await declare(store, "", each=Bounds(1))
    await declare(store, "others", each=Bounds(1))
    await program(store, clock, send=TWO, call=TWO).declare_all()
    await program(store, clock, call=FIVE, tasks=["send", "third"]).declare_all()
    one = LinePolicy(each=Bounds(1))
    assert await declared(store) == {"": one, "others": one, "send": LinePolicy(), "call": FIVE}


async def test_the_newest_version_holds_whoever_starts_last(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    new, old = program(store, clock, version="1.10", send=TWO), program(store, clock, version="1.9", send=FIVE)
    await new.declare_all()
    with caplog.at_level(logging.WARNING):
        await old.declare_all()
    assert await declared(store) == {"send": TWO}
    assert (new.view.is_outdated("default", "send"), old.view.is_outdated("default", "send")) == (False, True)
    assert [record.message for record in caplog.records] == [
        "limits: another version of this program declares them otherwise, and its policy holds"
    ]


async def test_of_versions_that_are_alike_the_last_to_start_decides(store: Store, clock: FakeClock) -> None:
    await program(store, clock, version="main", send=TWO).declare_all()
    await program(store, clock, version="fix", send=FIVE).declare_all()
    assert await declared(store) == {"send": FIVE}


async def test_what_has_vanished_is_declared_again_and_what_people_changed_is_seen(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    declarations = program(store, clock, version="2", send=LinePolicy(fair=True))
    await declarations.declare_all()
    assert not declarations.view.is_limited("default", "send a")
    assert declarations.view.is_limited("default", "unknown a"), "what is not known is limited"
    (tmp_path / "other").mkdir()
    async with fresh_store("sqlite", tmp_path / "other", clock=clock) as emptied:
        declarations.store = emptied
        async with asyncio.TaskGroup() as group:
            running = group.create_task(declarations.run())
            declarations.wake()
            await until(lambda: declared(emptied), what="its line")
            await emptied.limits.change("default", "send", LineChange(each=Bounds(3)), by="ada", reason="")
            await clock.advance(100)
            await until(lambda: declarations.view.is_limited("default", "send a"), what="the change")
            running.cancel()


async def test_a_start_waits_for_a_store_that_is_away(store: Store, clock: FakeClock) -> None:
    faulty = FaultyStore(store)
    faulty.fail_before["limits.declare"] = 2
    declarations = program(faulty, clock, send=TWO)
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(declarations.declare_all())
        while not starting.done():
            await clock.advance(1)
    assert await declared(store) == {"send": TWO}


def sweeper(store: Store, clock: FakeClock, *, leading: bool) -> LaneSweeper:
    return LaneSweeper(store, make_elector(clock, leading=leading), clock, make_backoff(clock))


async def sweep_for(seconds: float, store: Store, clock: FakeClock, *, leading: bool) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(sweeper(store, clock, leading=leading).run())
        for _ in range(int(seconds)):
            await until(lambda: clock.sleepers == 1, what="its sleep")
            await clock.advance(1)
        await until(lambda: clock.sleepers == 1, what="its sleep")
        running.cancel()


async def test_the_leader_deletes_lanes_that_nobody_uses(store: Store, clock: FakeClock) -> None:
    instance = await worker(store)
    await declare(store, each=Bounds(1))
    await add_jobs(store, "a", 1)
    await finish(store, instance, *await take(store, instance))
    await sweep_for(30, store, clock, leading=True)
    assert set(await groups_of(store)) == {"a"}
    await clock.advance(60)
    await sweeper(store, clock, leading=True).sweep()
    assert await groups_of(store) == {}


async def test_who_does_not_lead_sweeps_only_where_nobody_does(store: Store, clock: FakeClock) -> None:
    await declare(store, each=Bounds(1))
    counted = FaultyStore(store)
    await sweep_for(LEADERLESS_TIMEOUT - 1, counted, clock, leading=False)
    assert counted.calls["limits.sweep"] == 0
    await sweep_for(LEADERLESS_TIMEOUT + 3 * RUN_INTERVAL, counted, clock, leading=False)
    assert counted.calls["limits.sweep"] > 0


async def test_a_store_without_limits_is_not_written_to(store: Store, clock: FakeClock) -> None:
    counted = FaultyStore(store)
    await sweeper(counted, clock, leading=True).sweep()
    assert counted.calls["limits.sweep"] == 0


async def test_counts_that_have_drifted_are_corrected_with_a_warning(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    await declare(store, each=Bounds(1))
    counted = FaultyStore(store)
    counted.__dict__["limits"] = DriftedLimits()
    with caplog.at_level(logging.WARNING):
        await sweeper(counted, clock, leading=True).sweep()
    [record] = caplog.records
    assert (record.message, record.__dict__["lanes"]) == (
        "limits: counts of running jobs had drifted, and were corrected",
        3,
    )


class DriftedLimits:
    async def list_lines(self) -> list[str]:
        return ["one"]

    async def sweep(self, idle_before: int, limit: int) -> tuple[int, int]:
        return 0, 3
