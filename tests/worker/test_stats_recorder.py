"""What a worker counts, and how the store gets it: whatever fails, each run is in the totals once."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from drumbeat.app import Drumbeat
from drumbeat.clock import FakeClock
from drumbeat.core.claim import ClaimedJob, Outcome
from drumbeat.core.job import OutcomeKind
from drumbeat.core.stats import BOUNDS_US, BUCKETS, OVERALL, Resolution, Rollup, bucket_index
from drumbeat.events import Events
from drumbeat.ids import InstanceId, JobId
from drumbeat.outage import FullStoreReporter, OutageReporter
from drumbeat.retry import Backoff, SkipRetry
from drumbeat.service import OutageBackoff
from drumbeat.store.protocol import Store
from drumbeat.worker import stats_recorder
from drumbeat.worker.stats_recorder import SUCCEEDED, StatsRecorder, StatsWriter, to_counter
from tests.conftest import fresh_store
from tests.contract.making import worker
from tests.faults import FaultyStore
from tests.waiting import until
from tests.worker.worker_harness import run_worker

SECOND = 1_000_000
DUE = 1_767_225_600 * SECOND


def claimed(task: str = "greet", queue: str = "default") -> ClaimedJob:
    empty: dict[str, Any] = dict.fromkeys(ClaimedJob.__struct_fields__)
    facts = {"id": JobId("1"), "token": 1, "task": task, "queue": queue, "run_at": DUE, "crashes": 0, "crash_limit": 3}
    return ClaimedJob(**(empty | facts))


def outcome(kind: OutcomeKind = OutcomeKind.SUCCEEDED, *, waited: int | None = 0, took: int = 0) -> Outcome:
    if waited is None:
        return Outcome(id=JobId("1"), token=1, kind=kind)
    return Outcome(id=JobId("1"), token=1, kind=kind, started_at=DUE + waited, finished_at=DUE + waited + took)


def count(recorder: StatsRecorder, how: int = SUCCEEDED, job: ClaimedJob | None = None, **lengths: Any) -> None:
    """A run that finished just now."""
    recorder.begin()
    ended = outcome(**lengths)
    later = recorder.now() - (ended.finished_at or 0)
    if ended.started_at is not None and ended.finished_at is not None:
        ended = replace(ended, started_at=ended.started_at + later, finished_at=ended.finished_at + later)
    recorder.count(replace(job or claimed(), run_at=DUE + later), ended, how)


class Bench:
    """A recorder and its way to a store, on a clock that stands still."""

    def __init__(self, store: Store, clock: FakeClock, identity: InstanceId) -> None:
        self.faulty = FaultyStore(store)
        self.clock = clock
        self.identity = identity
        self.recorder = StatsRecorder(clock.now_us)
        self.recording = StatsWriter(
            self.recorder,
            self.faulty.stats,
            clock,
            identity=lambda: self.identity,
            backoff=OutageBackoff(
                clock, FullStoreReporter(OutageReporter(Events(), clock, "sqlite:///x.db", lambda: self.identity))
            ),
            spread=lambda low, high: 0.5,
        )

    async def totals(self) -> list[Rollup]:
        found: list[Rollup] = await self.faulty.stats.read(Resolution.TOTAL, 0, 1)
        return found

    async def counted(self, resolution: Resolution) -> int:
        """The number of runs in all intervals of this resolution; the OVERALL rows must have as many."""
        rows = (
            await self.totals()
            if resolution is Resolution.TOTAL
            else await self.faulty.stats.read(resolution, 0, 2**60)
        )
        counted = sum(each.succeeded for each in rows)
        if resolution is not Resolution.TOTAL:
            overall = await self.faulty.stats.read(resolution, 0, 2**60, queue=OVERALL, task=OVERALL)
            assert sum(each.succeeded for each in overall) == counted
        return counted

    async def in_each_resolution(self) -> list[int]:
        return [await self.counted(resolution) for resolution in Resolution]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def bench(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Bench]:
    async with fresh_store("sqlite", tmp_path, clock=clock) as store:
        yield Bench(store, clock, await worker(store))


def only(recorder: StatsRecorder) -> Rollup:
    recorder.flush_cells()
    [total] = [each for each in recorder.unwritten() if each.resolution is Resolution.TOTAL]
    return total


@pytest.mark.parametrize(
    "us", [0, 1, 999, 1_000, 1_001, 2_000, 2_001, *BOUNDS_US, *(us + 1 for us in BOUNDS_US), 2**62]
)
def test_a_length_is_in_the_first_bucket_whose_bound_it_does_not_exceed(us: int) -> None:
    expected = next((place for place, bound in enumerate(BOUNDS_US) if us <= bound), BUCKETS - 1)
    recorder = StatsRecorder(lambda: DUE)
    count(recorder, waited=us, took=us)
    total = only(recorder)
    assert bucket_index(us) == expected
    assert [total.wait[expected], total.run[expected], sum(total.wait), sum(total.run)] == [1, 1, 1, 1]
    assert (total.wait_us, total.run_us) == (us, us)


def test_a_clock_that_stepped_back_makes_no_length_negative() -> None:
    recorder = StatsRecorder(lambda: DUE)
    count(recorder, waited=-5 * SECOND, took=-3)
    total = only(recorder)
    assert (total.wait[0], total.wait_us, total.run[0], total.run_us) == (1, 0, 1, 0)


@pytest.mark.parametrize(
    ("kind", "dead", "counts"),
    [
        (OutcomeKind.SUCCEEDED, False, {"succeeded"}),
        (OutcomeKind.RETRY, False, {"failed"}),
        (OutcomeKind.DEAD, True, {"failed", "dead"}),
        (OutcomeKind.CANCELLED, False, {"cancelled"}),
        (OutcomeKind.CRASHED, False, {"crashed"}),
        (OutcomeKind.CRASHED, True, {"crashed", "dead"}),
        (OutcomeKind.SNOOZED, False, set()),
        (OutcomeKind.RELEASED, False, set()),
    ],
)
def test_every_end_of_a_run_is_counted_as_what_it_is(kind: OutcomeKind, dead: bool, counts: set[str]) -> None:
    recorder = StatsRecorder(lambda: DUE)
    count(recorder, to_counter(kind, dead), waited=10)
    total = only(recorder)
    names = ("succeeded", "failed", "dead", "cancelled", "crashed")
    assert {name for name in names if getattr(total, name)} == counts
    assert total.started == 1


def test_a_job_that_never_started_is_in_no_histogram() -> None:
    recorder = StatsRecorder(lambda: DUE)
    count(recorder, to_counter(OutcomeKind.CANCELLED, False), waited=None)
    total = only(recorder)
    assert (total.cancelled, total.started, sum(total.wait), sum(total.run)) == (1, 0, 0, 0)


async def test_each_queue_and_task_has_rows_of_its_own_in_each_interval(bench: Bench, clock: FakeClock) -> None:
    for _ in range(7):
        for queue, task in (("a", "x"), ("a", "y"), ("b", "x")):
            count(bench.recorder, job=claimed(task, queue))
        await clock.advance(10)
    await bench.recording.write()
    begin = clock.now_us() - 70 * SECOND
    tens = await bench.faulty.stats.read(Resolution.TEN_SECONDS, 0, 2**60)
    minutes = await bench.faulty.stats.read(Resolution.MINUTE, 0, 2**60)
    places = [("a", "x"), ("a", "y"), ("b", "x")]
    assert [(each.at, each.queue, each.task, each.succeeded) for each in tens] == [
        (begin + number * 10 * SECOND, *place, 1) for number in range(7) for place in places
    ]
    assert [(each.at, each.succeeded) for each in minutes] == [
        (begin + number * 60 * SECOND, each) for number, each in ((0, 6), (1, 1)) for _ in places
    ]
    assert [(each.queue, each.task, each.succeeded) for each in await bench.totals()] == [(*at, 7) for at in places]


async def test_it_writes_soon_after_an_interval_has_ended_and_nothing_while_nothing_is_counted(
    bench: Bench, clock: FakeClock
) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(bench.recording.run())
        await until(lambda: clock.sleepers == 1, what="its sleep")
        count(bench.recorder)
        await clock.advance(10.4)
        assert bench.faulty.calls["stats.put"] == 0
        await clock.advance(0.2)
        await until(lambda: clock.sleepers == 1, what="its sleep")
        assert await bench.in_each_resolution() == [1] * len(Resolution)
        for _ in range(30):
            await clock.advance(10)
            await until(lambda: clock.sleepers == 1, what="its sleep")
        assert bench.faulty.calls["stats.put"] == 1
        running.cancel()


@pytest.mark.parametrize("how", ["fail_before", "fail_after"])
async def test_what_could_not_be_written_is_written_later_and_counted_once(
    bench: Bench, clock: FakeClock, how: str
) -> None:
    getattr(bench.faulty, how)["stats.put"] = 3
    for number in range(1, 6):
        count(bench.recorder)
        await clock.advance(25)
        await bench.recording.write()
        if number == 3 and how == "fail_before":
            assert await bench.in_each_resolution() == [0] * len(Resolution)
    assert await bench.in_each_resolution() == [5] * len(Resolution)


async def test_a_store_that_refuses_counts_does_not_end_the_worker(
    bench: Bench, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench.faulty.refuse = lambda call, args: call == "stats.put"
    for _ in range(3):
        count(bench.recorder)
        await bench.recording.write()
    assert [record.message for record in caplog.records] == ["the store does not accept counts: they are kept"]
    bench.faulty.refuse = lambda call, args: False
    await bench.recording.write()
    assert await bench.in_each_resolution() == [3] * len(Resolution)


async def test_under_a_new_name_nothing_is_counted_twice_and_nothing_is_lost(bench: Bench, clock: FakeClock) -> None:
    count(bench.recorder)
    await bench.recording.write()
    await bench.faulty.instances.declare_dead(bench.identity, beat=None, started=[], reason="test")
    count(bench.recorder)
    await bench.recording.write()
    assert await bench.in_each_resolution() == [1] * len(Resolution)
    bench.identity = await worker(bench.faulty)
    count(bench.recorder)
    await bench.recording.write()
    assert await bench.in_each_resolution() == [3] * len(Resolution)


async def test_totals_are_the_same_whatever_happens_to_the_store(bench: Bench, clock: FakeClock) -> None:
    dice, expected = random.Random(7), 0
    for _ in range(300):
        for _ in range(dice.randrange(5)):
            expected += 1
            count(bench.recorder, job=claimed(dice.choice("abc"), dice.choice("xy")))
        bench.faulty.fail_before["stats.put"] = int(dice.random() < 0.2)
        bench.faulty.fail_after["stats.put"] = int(dice.random() < 0.2)
        await clock.advance(dice.uniform(0, 12))
        await bench.recording.write()
        if dice.random() < 0.05:
            # By a call that is answered first: what an instance wrote without hearing so, and then died, may be counted twice.
            bench.faulty.fail_before.clear()
            bench.faulty.fail_after.clear()
            await bench.recording.write()
            await bench.faulty.instances.declare_dead(bench.identity, beat=None, started=[], reason="test")
            bench.identity = await worker(bench.faulty)
    bench.faulty.fail_before.clear()
    bench.faulty.fail_after.clear()
    await bench.recording.write()
    assert await bench.in_each_resolution() == [expected] * len(Resolution)


async def test_counts_that_are_too_old_to_be_read_are_not_kept_for_ever(bench: Bench, clock: FakeClock) -> None:
    bench.faulty.is_down = True
    for _ in range(50):
        count(bench.recorder)
        await clock.advance(3_600)
        await bench.recording.write()
    kept = bench.recorder.unwritten()
    assert [sum(each.resolution is resolution for each in kept) for resolution in Resolution] == [
        1,
        2 * 2,
        24 * 2,
        25 * 2,
    ]


async def test_many_tasks_and_a_store_that_takes_no_counts_for_a_day_do_not_fill_the_memory(
    bench: Bench, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats_recorder, "MAX_ENTRIES", 500)
    bench.faulty.refuse = lambda call, args: call == "stats.put"
    for _ in range(60):
        for number in range(20):
            count(bench.recorder, job=claimed(f"task-{number}"))
        await bench.recording.write()
        assert len(bench.recorder.unwritten()) <= 500
        await clock.advance(10)
    bench.faulty.refuse = lambda call, args: False
    await bench.recording.write()
    assert {each.succeeded for each in await bench.totals()} == {60}
    newest = clock.now_us() // (10 * SECOND) * 10 * SECOND - 10 * SECOND
    assert len(await bench.faulty.stats.read(Resolution.TEN_SECONDS, newest, newest + 1)) == 20


async def test_a_worker_has_written_all_counts_when_it_has_stopped(app: Drumbeat) -> None:
    @app.task(queue="mail", retries=2, backoff=Backoff(base=0.001, cap=0.001))
    async def mail(number: int) -> None:
        if number == 1:
            raise SkipRetry("no such address")
        if number == 2:
            raise ValueError("try again")

    async with app:
        async with run_worker(app):
            handles = [await mail.enqueue(number) for number in range(5)]
            states = [await until(lambda handle=handle: ended(app, handle.id)) for handle in handles]
        store = await app._internals.store()
        [total] = await store.stats.read(Resolution.TOTAL, 0, 1)
        assert sorted(states) == ["dead", "dead", "succeeded", "succeeded", "succeeded"]
        assert (total.queue, total.task) == ("mail", "mail")
        counts = (total.started, total.succeeded, total.failed, total.dead, total.cancelled, total.crashed)
        assert counts == (7, 3, 4, 2, 0, 0)
        assert sum(total.wait) == sum(total.run) == 7
        now = await store.inspect.now()
        for resolution in (Resolution.TEN_SECONDS, Resolution.MINUTE):
            rows = await store.stats.read(resolution, now - 120 * SECOND, now + 1)
            assert sum(each.started for each in rows) == 7
            assert {each.at % resolution for each in rows} == {0}


async def ended(app: Drumbeat, id: str) -> str | None:
    job = await app.jobs.show(id)
    return None if job.finished_at is None else job.state.value
