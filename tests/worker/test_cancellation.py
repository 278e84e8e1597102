"""Cancellations that were not requested: a job's own, one that it leaves behind, and one that it swallows."""

import asyncio
import threading
from typing import Any

import pytest

from drumbeat import errors
from drumbeat.app import Drumbeat
from drumbeat.clock import SYSTEM
from drumbeat.core.job import CancelAnswer, JobState, OutcomeKind
from drumbeat.worker import store_loop
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


@pytest.mark.parametrize("pool", ["loop", "thread"])
async def test_the_time_out_of_a_job_counts_and_not_that_of_its_task(app: Drumbeat, pool: str) -> None:
    let_go = threading.Event()

    async def wait_on_loop() -> str:
        await until(let_go.is_set, deadline=30)
        return "in time"

    def wait_in_thread() -> str:
        let_go.wait(30)
        return "in time"

    handler: Any = wait_on_loop if pool == "loop" else wait_in_thread
    patient = app.task(name="patient", timeout=60, retries=0)(handler)
    hasty = app.task(name="hasty", timeout=0.05, retries=0)(handler)

    async with app, run_worker(app, concurrency=3):
        try:
            shortened, extended = await patient.using(timeout=0.05).enqueue(), await hasty.using(timeout=60).enqueue()
            own = await hasty.enqueue()
            for job in (shortened, own):
                with pytest.raises(errors.JobTimedOut, match="timed out after 50ms"):
                    await job.result(timeout=5)
            # As long as the task's own limit has ended another.
            assert (await app.jobs.show(extended.id)).state is JobState.RUNNING
        finally:
            let_go.set()
        assert await extended.result(timeout=5) == "in time"


async def test_a_job_that_is_cancelled_while_it_waits_in_the_worker_does_not_run(
    app: Drumbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_loop, "TICK_INTERVAL", 60.0)  # what waits here for long is released otherwise
    let_go, ran = asyncio.Event(), list[int]()

    @app.task
    async def work(number: int) -> None:
        ran.append(number)
        if number == 0:
            await let_go.wait()

    async with app, run_worker(app, concurrency=1) as worker:
        try:
            for job in await app.enqueue_many([work.bind(number) for number in range(100, 120)]):
                await job.result(timeout=5)  # they are short: some may be claimed ahead
            first, cancelled, last = await app.enqueue_many([work.bind(number) for number in range(3)])
            await until(lambda: 0 in ran and len(worker._parts.buffer) == 2, what="two that wait in the worker")
            assert await cancelled.cancel() == CancelAnswer.REQUESTED

            async def is_cancelled() -> bool:
                return (await app.jobs.show(cancelled.id)).state is JobState.CANCELLED

            await until(is_cancelled, deadline=2, what="its end, before its turn")
        finally:
            let_go.set()
        await first.result(timeout=5)
        await last.result(timeout=5)
    assert ran[-2:] == [0, 2]


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
