"""Cancellations that were not requested: a job's own, one that it leaves behind, and one that it swallows."""

import asyncio
import threading

import pytest

from drumbeat import errors
from drumbeat.app import Drumbeat
from drumbeat.clock import SYSTEM
from drumbeat.core.job import OutcomeKind
from tests.waiting import until
from tests.worker.worker_harness import run_worker


def _me() -> "asyncio.Task[object]":
    task = asyncio.current_task()
    assert task is not None
    return task


@pytest.mark.parametrize("late", [False, True])
async def test_a_job_that_cancels_itself_has_failed_and_its_slot_goes_on(app: Drumbeat, late: bool) -> None:
    met = asyncio.Barrier(2)

    @app.task(retries=0)
    async def cancels_itself() -> None:
        _me().cancel()
        if not late:
            await SYSTEM.sleep(0)

    @app.task
    async def meets() -> None:
        await met.wait()

    async with app, run_worker(app, concurrency=2):
        for _ in range(4):
            with pytest.raises(errors.JobFailed, match="CancelledError"):
                await (await cancels_itself.enqueue()).result(timeout=5)
        for job in await app.enqueue_many([meets.bind(), meets.bind()]):
            await job.result(timeout=5)


async def test_what_is_left_of_an_absorbed_cancellation_is_not_the_next_jobs(app: Drumbeat) -> None:
    seen: list[int] = []

    @app.task
    async def absorbs() -> str:
        _me().cancel()
        try:
            await SYSTEM.sleep(0)
        except asyncio.CancelledError:
            pass
        return "as if nothing had been"

    @app.task(retries=0)
    async def awaits_a_cancelled_future() -> None:
        seen.append(_me().cancelling())
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async with app, run_worker(app, concurrency=1):
        for _ in range(3):
            assert await (await absorbs.enqueue()).result(timeout=5) == "as if nothing had been"
            with pytest.raises(errors.JobFailed, match="CancelledError"):
                await (await awaits_a_cancelled_future.enqueue()).result(timeout=5)
        assert await (await absorbs.enqueue()).result(timeout=5) == "as if nothing had been"
    assert seen == [0, 0, 0]


async def test_slots_that_are_cancelled_while_they_wait_go_on(app: Drumbeat) -> None:
    met = asyncio.Barrier(3)

    @app.task
    async def cancels_the_others() -> int:
        others = [task for task in asyncio.all_tasks() if task.get_name().startswith("slot ") and task is not _me()]
        for task in others:
            task.cancel()
        return len(others)

    @app.task
    async def meets() -> None:
        await met.wait()

    async with app, run_worker(app, concurrency=3):
        assert await (await cancels_the_others.enqueue()).result(timeout=5) == 2
        for job in await app.enqueue_many([meets.bind() for _ in range(3)]):
            await job.result(timeout=5)


async def test_a_slot_whose_handler_swallows_its_time_out_is_replaced(app: Drumbeat) -> None:
    let_go, met = asyncio.Event(), asyncio.Barrier(2)

    @app.task(timeout=0.05, retries=0)
    async def swallows() -> str:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                pass
        return "too late"

    @app.task
    async def meets() -> None:
        await met.wait()

    async with app, run_worker(app, concurrency=2, drain=0.2) as worker:
        try:
            stubborn = await swallows.enqueue()
            with pytest.raises(errors.JobTimedOut):
                await stubborn.result(timeout=5)
            assert worker.core.stuck.count
            for job in await app.enqueue_many([meets.bind(), meets.bind()]):
                await job.result(timeout=5)
        finally:
            let_go.set()
        await until(lambda: not worker.core.stuck.count)
        assert [each.outcome for each in await app.jobs.attempts(stubborn.id)] == [OutcomeKind.DEAD]


async def test_a_thread_that_ended_in_time_has_not_timed_out_though_the_loop_was_held_up(app: Drumbeat) -> None:
    began, runs = threading.Event(), 0

    @app.task(timeout=0.3, retries=0)
    def quick() -> str:
        nonlocal runs
        runs += 1
        began.set()
        threading.Event().wait(0.05)
        return "in time"

    @app.task(timeout=0.3, retries=0)
    def slow() -> str:
        began.set()
        threading.Event().wait(0.5)
        return "too late"

    @app.task
    async def blocks() -> None:
        await until(began.is_set, what="the other handler")
        threading.Event().wait(0.8)

    async with app, run_worker(app, concurrency=2, dead_after=5):
        job, _ = await app.enqueue_many([quick.bind(), blocks.bind()])
        assert await job.result(timeout=5) == "in time"
        assert runs == 1
        began.clear()
        job, _ = await app.enqueue_many([slow.bind(), blocks.bind()])
        with pytest.raises(errors.JobTimedOut):
            await job.result(timeout=5)
