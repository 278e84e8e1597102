"""How a run is ended from outside: time-outs, cancellations, drain."""

import asyncio
import threading

import pytest

from drumbeat import errors
from drumbeat.app import Drumbeat
from drumbeat.context import Aborted, AbortReason, current_job
from drumbeat.core.job import CancelAnswer, Cancelled, JobState, OutcomeKind
from drumbeat.events import ThreadAbandoned
from drumbeat.processes.exit_codes import EXIT_REPLACE
from tests.waiting import until
from tests.worker.worker_harness import EventRecorder, run_worker


async def state_of(app: Drumbeat, id: str) -> JobState:
    return (await app.jobs.show(id)).state


async def test_a_time_out_cancels_an_async_handler_and_is_charged(app: Drumbeat) -> None:
    ended: list[str] = []

    @app.task(timeout=0.05, retries=0)
    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    async with app, run_worker(app):
        with pytest.raises(errors.JobTimedOut, match="50ms"):
            await (await hangs.enqueue()).result(timeout=5)
    assert ended == ["cleaned up"]


async def test_a_handler_that_swallows_its_time_out_has_timed_out_all_the_same(app: Drumbeat) -> None:
    @app.task(timeout=0.05, retries=0)
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return "as if nothing had happened"

    @app.task
    async def neighbour() -> str:
        return "fine"

    async with app, run_worker(app, concurrency=1):
        with pytest.raises(errors.JobTimedOut):
            await (await stubborn.enqueue()).result(timeout=5)
        assert await (await neighbour.enqueue()).result(timeout=5) == "fine"


async def test_a_thread_that_times_out_is_abandoned_and_its_slot_goes_on(
    app: Drumbeat, recorder: EventRecorder
) -> None:
    release = threading.Event()

    @app.task(timeout=0.05, retries=0)
    def hangs() -> None:
        release.wait(20)

    @app.task
    def neighbour() -> str:
        return "fine"

    try:
        async with app, run_worker(app, concurrency=2):
            with pytest.raises(errors.JobTimedOut):
                await (await hangs.enqueue()).result(timeout=5)
            assert (await recorder.next(ThreadAbandoned)).abandoned == 1
            for _ in range(5):
                assert await (await neighbour.enqueue()).result(timeout=5) == "fine"
    finally:
        release.set()


async def test_after_as_many_abandoned_threads_as_slots_the_worker_asks_to_be_replaced(app: Drumbeat) -> None:
    release = threading.Event()

    @app.task(timeout=0.05, retries=0)
    def hangs() -> None:
        release.wait(20)

    try:
        async with app, run_worker(app, concurrency=2) as worker:
            await app.enqueue_many([hangs.bind(), hangs.bind()])
            await until(lambda: worker.shutdown.exit_code == EXIT_REPLACE)
    finally:
        release.set()


async def test_cancelling_a_running_async_job_ends_it(app: Drumbeat) -> None:
    started = asyncio.Event()
    reasons: list[AbortReason | None] = []

    @app.task
    async def long() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(current_job().aborted.reason)

    async with app, run_worker(app):
        job = await long.enqueue()
        await started.wait()
        assert await job.cancel() is CancelAnswer.REQUESTED
        with pytest.raises(errors.JobCancelled):
            await job.result(timeout=5)
    assert reasons == [AbortReason.CANCELLED]


async def test_a_thread_sees_its_cancellation_by_checking(app: Drumbeat) -> None:
    started = threading.Event()

    @app.task
    def long() -> None:
        started.set()
        current_job().aborted.wait(10)
        current_job().check()

    async with app, run_worker(app):
        job = await long.enqueue()
        await until(started.is_set)
        await job.cancel()
        with pytest.raises(errors.JobCancelled):
            await job.result(timeout=5)


async def test_a_job_that_waits_for_the_abort_signal_on_the_loop_is_woken_by_it(app: Drumbeat) -> None:
    started = asyncio.Event()

    @app.task
    async def long() -> str:
        started.set()
        return (await current_job().aborted).value

    async with app:
        async with run_worker(app):
            job = await long.enqueue()
            await started.wait()
        assert await job.result(timeout=5) == "draining"


async def test_drain_lets_running_jobs_end_and_releases_buffered_ones_unharmed(app: Drumbeat) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow(n: int) -> int:
        started.set()
        await go_on.wait()
        return n

    async with app:
        jobs = await app.enqueue_many([slow.bind(n) for n in range(5)])
        async with run_worker(app, concurrency=1) as worker:
            await started.wait()
            worker.request_stop()
            go_on.set()
        assert await jobs[0].result(timeout=5) == 0
        for job in jobs[1:]:
            record = await app.jobs.show(job.id)
            assert (record.state, record.failures, record.crashes) == (JobState.PENDING, 0, 0)
            assert await app.jobs.attempts(job.id) == []


async def test_what_outlives_the_drain_is_released_without_charge(app: Drumbeat) -> None:
    started = asyncio.Event()

    @app.task(retries=0)
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    async with app:
        async with run_worker(app, drain=0.1):
            job = await endless.enqueue()
            await started.wait()
        record = await app.jobs.show(job.id)
        (attempt,) = await app.jobs.attempts(job.id)
    assert (record.state, record.failures, record.crashes) == (JobState.PENDING, 0, 0)
    assert attempt.outcome is OutcomeKind.RELEASED


async def test_a_second_request_to_stop_does_not_wait_for_what_runs(app: Drumbeat) -> None:
    started = asyncio.Event()

    @app.task(retries=0)
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    async with app:
        async with run_worker(app, drain="forever") as worker:
            job = await endless.enqueue()
            await started.wait()
            worker.request_stop()
            worker.request_stop()
        assert await state_of(app, job.id) is JobState.PENDING


async def test_check_on_drain_releases_the_job_without_charge(app: Drumbeat) -> None:
    started = threading.Event()
    reasons: list[AbortReason] = []

    @app.task(retries=0)
    def polite() -> None:
        started.set()
        current_job().aborted.wait(10)
        try:
            current_job().check()
        except Exception:  # a handler's own catch-all must not swallow it
            raise AssertionError from None
        except Aborted as aborted:
            reasons.append(aborted.reason)
            raise

    async with app:
        async with run_worker(app, drain=10):
            job = await polite.enqueue()
            await until(started.is_set)
        record = await app.jobs.show(job.id)
    assert (record.state, record.failures, reasons) == (JobState.PENDING, 0, [AbortReason.DRAINING])


async def test_a_pending_job_that_is_cancelled_never_runs(app: Drumbeat) -> None:
    ran: list[int] = []

    @app.task
    async def work(n: int) -> None:
        ran.append(n)

    async with app:
        job = await work.using(key="a").enqueue(1)
        assert await app.cancel(task="work", key="a") == Cancelled(cancelled=1, requested=0)
        other = await work.enqueue(2)
        async with run_worker(app):
            await other.result(timeout=5)
            with pytest.raises(errors.JobCancelled):
                await job.result(timeout=5)
    assert ran == [2]
