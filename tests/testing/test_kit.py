"""The testing kit, used as the tests of a program would use it."""

import asyncio
import logging
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat import Drumbeat, current_job
from drumbeat.clock import SYSTEM
from drumbeat.errors import ConfigError, InvalidArguments, JobError
from drumbeat.retry import Backoff
from drumbeat.testing import Kit

START = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)


class Shop:
    """A program under test."""

    def __init__(self) -> None:
        self.app = app = Drumbeat(name="shop")
        self.declines = 0
        self.charged: list[tuple[int, datetime]] = []
        self.reports: list[datetime] = []
        self.kit: Kit | None = None

        @app.task(retries=5, backoff=Backoff(base=60, cap=3600))
        async def charge(order: int) -> str:
            if self.declines:
                self.declines -= 1
                raise RuntimeError("declined")
            assert self.kit is not None
            self.charged.append((order, self.kit.now()))
            return "paid"

        @app.task
        def resize(width: int) -> int:
            return width * 2

        @app.task
        async def chain(left: int) -> None:
            if left:
                await chain.enqueue(left - 1)

        self.charge, self.resize, self.chain = charge, resize, chain


async def test_a_job_runs_is_retried_and_ends_without_waiting(drumbeat: type[Kit]) -> None:
    shop = Shop()
    began = time.monotonic()
    async with drumbeat(shop.app, at=START) as kit:
        shop.kit = kit
        shop.declines = 2
        await shop.charge.using(key="order-7", unique=True).enqueue(7)
        kit.assert_enqueued(shop.charge, args=(7,), key="order-7", at=START)
        await kit.run_until_idle()
        job = await kit.job(shop.charge)
        assert (job.state, job.failures) == ("pending", 1)
        await kit.advance("1h")
        assert await kit.result(shop.charge) == "paid"
        assert kit.ran(shop.charge) == 3
        assert START < shop.charged[0][1] < START + timedelta(hours=1)
        assert abs(kit.now() - START - timedelta(hours=1)) < timedelta(seconds=1)
    assert time.monotonic() - began < 20


async def test_retries_are_run_without_moving_to_what_is_delayed(drumbeat: type[Kit]) -> None:
    shop = Shop()
    async with drumbeat(shop.app, at=START) as kit:
        shop.kit = kit
        shop.declines = 3
        await shop.charge.enqueue(1)
        await shop.charge.using(delay="10d").enqueue(2)
        await kit.run_until_idle(retries=True)
        assert [order for order, _ in shop.charged] == [1]
        kit.assert_enqueued(shop.charge, args=(2,), at=START + timedelta(days=10))
        await kit.advance("10d")
        assert [order for order, _ in shop.charged] == [1, 2]


async def test_def_handlers_and_jobs_that_enqueue_jobs(drumbeat: type[Kit]) -> None:
    shop = Shop()
    async with drumbeat(shop.app) as kit:
        await shop.resize.enqueue(21)
        await shop.chain.enqueue(5)
        await kit.run_until_idle()
        assert await kit.result(shop.resize) == 42
        assert kit.ran(shop.chain) == 6
        kit.refute_enqueued(shop.chain)


async def test_cron_and_intervals_fire_at_their_times(drumbeat: type[Kit]) -> None:
    app, fired = Drumbeat(name="clockwork"), []
    kits: list[Kit] = []

    @app.cron("* * * * *")
    async def minutely() -> None:
        fired.append(kits[0].now())

    @app.every("7m", grid=True)
    async def sevens() -> None: ...

    async with drumbeat(app, at=START) as kit:
        kits.append(kit)
        await kit.advance("1h")
        assert kit.ran("minutely") == 60
        assert kit.ran("sevens") in (8, 9)
        due = [START + timedelta(minutes=n) for n in range(1, 61)]
        assert all(abs(at - wanted) < timedelta(milliseconds=50) for at, wanted in zip(fired, due, strict=True))


async def test_the_jobs_of_a_crashed_worker_run_again_after_dead_after(drumbeat: type[Kit]) -> None:
    app = Drumbeat(name="crashing")
    runs: list[int] = []
    hang = asyncio.Event()

    @app.task
    async def work() -> str:
        runs.append(current_job().attempt)
        if len(runs) == 1:
            await asyncio.shield(hang.wait())
        return "done"

    async with drumbeat(app, patience=0.3) as kit:
        await work.enqueue()
        with pytest.raises(AssertionError, match=r"work .*test_kit.py"):
            await kit.run_until_idle()
        kit.crash()
        await kit.run_until_idle()
        assert (await kit.job(work)).state == "running"
        await kit.advance(app.settings.dead_after + 1)
        assert await kit.result(work) == "done"
        assert len(runs) == 2


async def test_an_outage_is_survived(drumbeat: type[Kit]) -> None:
    shop = Shop()
    async with drumbeat(shop.app) as kit:
        shop.kit = kit
        await shop.charge.using(delay="5s").enqueue(1)
        with kit.outage():
            await kit.advance("20s")
            assert not shop.charged
        await kit.advance("10s")
        assert len(shop.charged) == 1


async def test_perform_passes_arguments_and_result_through_their_encoding(drumbeat: type[Kit]) -> None:
    app = Drumbeat(name="performing")

    @app.task
    async def double(number: int) -> dict[str, int]:
        return {"number": 2 * number, "attempt": current_job().attempt}

    @app.task
    def fail(number: int) -> None:
        raise ValueError(f"no {number}")

    async with drumbeat(app, worker=False) as kit:
        assert await kit.perform(double.bind(4)) == {"number": 8, "attempt": 1}
        with pytest.raises(ValueError, match="no 3"):
            await kit.perform(fail.bind(3))
        kit.refute_enqueued()


def test_the_kit_works_without_a_loop(drumbeat: type[Kit]) -> None:
    shop = Shop()
    kit_of_shop: Any = drumbeat(shop.app, at=START)
    with kit_of_shop as kit:
        shop.kit = kit_of_shop
        shop.declines = 1
        shop.charge.enqueue_sync(3)
        kit.assert_enqueued(shop.charge, count=1)
        kit.run_until_idle()
        kit.advance("2h")
        assert kit.result(shop.charge) == "paid"
        assert shop.app.sync.jobs.list(task="charge")[0].state == "succeeded"


async def test_assertions_say_what_there_is(drumbeat: type[Kit]) -> None:
    shop = Shop()
    async with drumbeat(shop.app, worker=False, at=START) as kit:
        await shop.charge.enqueue(7)
        with pytest.raises(
            AssertionError, match=r"a job of charge \(args=\(8,\)\) should be enqueued, but 0 are; .*charge"
        ):
            kit.assert_enqueued(shop.charge, args=(8,))
        with pytest.raises(AssertionError, match="no job of charge should be enqueued"):
            kit.refute_enqueued(shop.charge)
        with pytest.raises(AssertionError, match="2 jobs"):
            kit.assert_enqueued(shop.charge, count=2)


async def test_failures_can_fail_the_test(drumbeat: type[Kit]) -> None:
    shop = Shop()
    async with drumbeat(shop.app, raise_failures=True) as kit:
        shop.kit = kit
        shop.declines = 1
        await shop.charge.enqueue(1)
        with pytest.raises(AssertionError, match=r"charge .*declined"):
            await kit.run_until_idle()


async def test_bad_input_is_one_clear_line(drumbeat: type[Kit]) -> None:
    shop = Shop()
    async with drumbeat(shop.app, worker=False) as kit:
        with pytest.raises(InvalidArguments, match="advance must not be negative"):
            await kit.advance(-5)
        with pytest.raises(ConfigError, match="worker=False"):
            kit.crash()
    with pytest.raises(InvalidArguments, match="ISO 8601"):
        drumbeat(shop.app, at="tomorrow")


async def test_dead_letters_are_dead(drumbeat: type[Kit]) -> None:
    shop = Shop()
    async with drumbeat(shop.app) as kit:
        shop.declines = 100
        await shop.charge.enqueue(1)
        await kit.run_until_idle(retries=True)
        with pytest.raises(JobError, match="declined"):
            await kit.result(shop.charge)


async def test_a_handler_that_waits_for_real_things_is_waited_for(drumbeat: type[Kit]) -> None:
    app = Drumbeat(name="real")

    @app.task
    async def wait() -> str:
        await SYSTEM.sleep(0.05)
        return await asyncio.to_thread(lambda: "slept")

    async with drumbeat(app) as kit:
        await wait.enqueue()
        await kit.run_until_idle()
        assert await kit.result(wait) == "slept"


async def test_long_chains_of_jobs_are_run_to_their_end_and_endless_ones_are_an_error(drumbeat: type[Kit]) -> None:
    shop = Shop()
    async with drumbeat(shop.app) as kit:
        await shop.chain.enqueue(400)
        await kit.run_until_idle()
        assert kit.ran(shop.chain) == 401
        await shop.chain.enqueue(400)
        with pytest.raises(AssertionError, match="more than 50 jobs have run"):
            await kit.run_until_idle(max_jobs=50)


async def test_a_def_handler_may_enqueue(drumbeat: type[Kit]) -> None:
    app = Drumbeat(name="threads")

    @app.task
    def first() -> None:
        second.enqueue_sync(7)

    @app.task
    async def second(number: int) -> int:
        return number

    async with drumbeat(app) as kit:
        await first.enqueue()
        await kit.run_until_idle()
        assert await kit.result(second) == 7


async def test_jobs_of_other_threads_are_run_also_in_the_same_instant(drumbeat: type[Kit]) -> None:
    """The hint of a second store within 2 ms waits for time that does not pass: the kit must not wait for the hint."""
    app = Drumbeat(name="threads")

    @app.task
    async def note(number: int) -> int:
        return number

    async with drumbeat(app) as kit:
        for number in range(3):
            job = await asyncio.to_thread(note.enqueue_sync, number)
            await kit.run_until_idle()
            assert await kit.result(job.id) == number


async def test_a_queue_that_rests_does_not_keep_the_kit_busy(drumbeat: type[Kit]) -> None:
    app = Drumbeat(name="resting")

    @app.task
    async def note() -> None: ...

    async with drumbeat(app) as kit:
        await app.queues.pause("default", reason="for the test")
        job = await note.enqueue()
        await kit.run_until_idle()
        assert (await kit.job(job)).state == "pending"
        await app.queues.resume("default")
        await kit.run_until_idle()
        assert (await kit.job(job)).state == "succeeded"


async def test_handlers_see_the_time_of_the_kit(drumbeat: type[Kit]) -> None:
    app = Drumbeat(name="times")

    @app.task
    async def note() -> datetime:
        return current_job().now()

    async with drumbeat(app, at="2026-03-01T08:00Z") as kit:
        await note.using(delay="1d").enqueue()
        await kit.advance("2d")
        assert await kit.perform(note.bind()) == kit.now() == datetime(2026, 3, 3, 8, tzinfo=UTC)
        told = await kit.result(note)
        assert timedelta(0) <= told - datetime(2026, 3, 2, 8, tzinfo=UTC) < timedelta(seconds=1)


async def test_a_handler_that_hangs_is_timed_out_by_advance(drumbeat: type[Kit]) -> None:
    app = Drumbeat(name="hanging")

    @app.task(timeout="1h", retries=0)
    async def hang() -> None:
        await asyncio.Event().wait()

    async with drumbeat(app, patience=0.05) as kit:
        job = await hang.enqueue()
        with pytest.raises(AssertionError, match=r"has not ended: hang .*test_kit.py:\d+$"):
            await kit.advance("59m")
        await kit.advance("61m")
        record = await kit.job(job)
        assert (record.state, record.error and record.error.message) == ("dead", "timed out after 1h")


async def test_a_test_that_fails_adds_no_warnings_of_its_own(
    drumbeat: type[Kit], caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop()
    with pytest.raises(ZeroDivisionError):
        async with drumbeat(shop.app):
            raise ZeroDivisionError
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
