import asyncio
import logging
import sys
import threading
from typing import Any

import pytest

from drumbeat import errors
from drumbeat.app import Drumbeat
from drumbeat.context import current_job
from drumbeat.core.job import Job, JobState, OutcomeKind
from drumbeat.core.stats import Resolution
from drumbeat.durations import from_us
from drumbeat.events import AttemptFailed, JobFinished, JobsDone, JobStarted
from drumbeat.processes.exit_codes import EXIT_RECYCLE
from drumbeat.retry import Backoff, RetryLater, SkipRetry, Snooze
from drumbeat.worker import reporter
from drumbeat.worker import worker as worker_module
from drumbeat.worker.main import serve
from tests.contract.making import claimed_one, end
from tests.contract.making import worker as register
from tests.waiting import Stalls, until
from tests.worker.worker_harness import EventRecorder, run_worker

AT_ONCE = Backoff(base=0.001, cap=0.001)


async def test_async_and_def_handlers_give_their_results(app: Drumbeat) -> None:
    @app.task
    async def add(a: int, b: int = 10) -> int:
        return a + b

    @app.task
    def thread_name(prefix: str) -> str:
        return prefix + threading.current_thread().name

    async with app, run_worker(app):
        assert await (await add.enqueue(1, b=2)).result(timeout=5) == 3
        assert await (await add.enqueue(1)).result(timeout=5) == 11
        assert (await (await thread_name.enqueue("in ")).result(timeout=5)).startswith("in drumbeat-handler")


async def test_current_job_is_known_on_the_loop_and_in_threads_and_nowhere_else(app: Drumbeat) -> None:
    @app.task
    async def on_loop() -> list[Any]:
        job = current_job()
        return [job.id, job.attempt, job.key, job.task]

    @app.task
    def in_thread() -> list[Any]:
        job = current_job()
        return [job.id, job.attempt, job.key, job.task]

    async with app, run_worker(app):
        for task in (on_loop, in_thread):
            job = await task.using(key="k").enqueue()
            assert await job.result(timeout=5) == [job.id, 1, "k", task.name]
    with pytest.raises(errors.NotInJob):
        current_job()


async def test_a_failing_job_is_retried_until_it_succeeds_and_every_attempt_is_on_record(
    app: Drumbeat, recorder: EventRecorder
) -> None:
    @app.task(retries=3, backoff=AT_ONCE)
    async def third_time() -> int:
        if current_job().attempt < 3:
            raise ValueError(f"attempt {current_job().attempt}")
        return current_job().attempt

    async with app, run_worker(app):
        job = await third_time.enqueue()
        assert await job.result(timeout=5) == 3
        attempts = await app.jobs.attempts(job.id)
    assert [attempt.outcome for attempt in attempts] == [OutcomeKind.RETRY, OutcomeKind.RETRY, OutcomeKind.SUCCEEDED]
    assert [attempt.error.message for attempt in attempts if attempt.error] == ["attempt 1", "attempt 2"]
    assert "third_time" in (attempts[0].error.traceback if attempts[0].error else "")
    assert [event.dead for event in recorder.of(AttemptFailed)] == [False, False]
    assert all(attempt.instance and attempt.started_at for attempt in attempts)


async def test_out_of_retries_is_a_dead_letter_with_its_error(app: Drumbeat) -> None:
    @app.task(retries=2, backoff=AT_ONCE)
    async def never() -> None:
        raise KeyError("gone")

    async with app, run_worker(app):
        job = await never.enqueue()
        with pytest.raises(errors.JobFailed, match="gone"):
            await job.result(timeout=5)
        letter = await app.dead.show(job.id)
        assert (letter.state, letter.failures, len(await app.jobs.attempts(job.id))) == (JobState.DEAD, 3, 3)
        assert letter.error is not None and letter.error.type == "KeyError"


async def test_skip_retry_gives_up_at_once(app: Drumbeat) -> None:
    @app.task(retries=5)
    async def hopeless() -> None:
        raise SkipRetry("no such customer")

    async with app, run_worker(app):
        job = await hopeless.enqueue()
        with pytest.raises(errors.JobFailed, match="no such customer"):
            await job.result(timeout=5)
        assert (await app.dead.show(job.id)).failures == 1


async def test_snooze_waits_without_charge_and_retry_later_is_charged(app: Drumbeat) -> None:
    seen: list[int] = []

    @app.task(retries=1)
    async def patient() -> str:
        seen.append(current_job().attempt)
        if len(seen) <= 3:
            raise Snooze(0.01)
        if len(seen) == 4:
            raise RetryLater(0.01)
        return "done"

    async with app, run_worker(app):
        job = await patient.enqueue()
        assert await job.result(timeout=5) == "done"
        record = await app.jobs.show(job.id)
    assert (seen, record.failures) == ([1, 1, 1, 1, 2], 1)


async def test_a_delayed_job_starts_when_it_is_due_and_never_before(app: Drumbeat, recorder: EventRecorder) -> None:
    @app.task
    async def remind() -> float:
        return (from_us(app._internals.clock.now_us()) - current_job().scheduled_for).total_seconds()

    async with app, run_worker(app, poll=30):
        with Stalls() as stalls:
            moment = from_us(app._internals.clock.now_us() + 300_000)
            jobs = [await remind.using(at=moment).enqueue(), await remind.using(delay=0.2).enqueue()]
            for job in jobs:
                lateness = await job.result(timeout=20)
                assert 0 <= lateness < 0.2 + stalls.seconds


async def test_on_dead_is_a_job_of_its_own_with_the_record_and_the_error(app: Drumbeat) -> None:
    told: list[tuple[Job, errors.JobError]] = []

    @app.task(retries=0)
    async def charge(customer: int) -> None:
        raise ValueError("card refused")

    @charge.on_dead
    async def refund(job: Job, error: errors.JobError) -> None:
        told.append((job, error))

    async with app, run_worker(app):
        job = await charge.using(key="c:1").enqueue(1)
        await until(lambda: told, what="the on_dead handler")
    (record, error), *_ = told
    assert (record.id, record.key, record.args, record.state) == (job.id, "c:1", '{"customer":1}', JobState.DEAD)
    assert isinstance(error, errors.JobFailed) and error.message == "card refused"


async def test_progress_is_stored_while_the_job_runs(app: Drumbeat) -> None:
    go_on = asyncio.Event()

    @app.task
    async def long() -> None:
        current_job().progress({"done": 3, "of": 7})
        await go_on.wait()

    async with app, run_worker(app):
        job = await long.enqueue()
        await until(lambda: _progress(app, job.id), what="the progress")
        assert await _progress(app, job.id) == '{"done":3,"of":7}'
        go_on.set()
        await job.result(timeout=5)


async def _progress(app: Drumbeat, id: Any) -> str | None:
    return (await app.jobs.show(id)).progress


async def test_a_result_that_cannot_be_kept_is_a_success_all_the_same(app: Drumbeat) -> None:
    @app.task(retries=0)
    async def odd() -> Any:
        return float("nan")

    async with app, run_worker(app):
        job = await odd.enqueue()
        await until(lambda: _has_state(app, job.id, JobState.SUCCEEDED))
        record = await app.jobs.show(job.id)
    assert record.result is None and "NaN" in (record.result_error or "")


async def _has_state(app: Drumbeat, id: Any, state: JobState) -> bool:
    return (await app.jobs.show(id)).state is state


async def test_a_handler_that_calls_exit_fails_and_harms_no_other(app: Drumbeat) -> None:
    @app.task(retries=0)
    async def leaves() -> None:
        raise SystemExit(3)

    @app.task(retries=0)
    def leaves_in_thread() -> None:
        raise SystemExit(3)

    async with app, run_worker(app):
        for task in (leaves, leaves_in_thread):
            with pytest.raises(errors.JobFailed, match="SystemExit"):
                await (await task.enqueue()).result(timeout=5)


async def test_lifespans_surround_all_jobs_and_async_subscribers_get_events(app: Drumbeat) -> None:
    story: list[str] = []

    @app.lifespan
    async def resources():  # type: ignore[no-untyped-def]
        story.append("open")
        yield
        story.append("close")

    @app.on_event(JobStarted)
    def started(event: JobStarted) -> None:
        story.append("started")

    @app.on_event(JobFinished)
    async def finished(event: JobFinished) -> None:
        story.append(f"finished {event.state}")

    @app.task
    async def work() -> None:
        story.append("work")

    async with app:
        async with run_worker(app):
            await (await work.enqueue()).result(timeout=5)
            await until(lambda: len(story) == 4)
    assert story == ["open", "started", "work", "finished succeeded", "close"]


async def test_replaying_a_dead_letter_starts_a_new_life(app: Drumbeat) -> None:
    broken = True

    @app.task(retries=0)
    async def sometimes() -> str:
        if broken:
            raise ValueError("broken")
        return "mended"

    async with app, run_worker(app):
        job = await sometimes.enqueue()
        with pytest.raises(errors.JobFailed):
            await job.result(timeout=5)
        broken = False
        await app.dead.replay(job.id)
        await until(lambda: _has_state(app, job.id, JobState.SUCCEEDED))
        record = await app.jobs.show(job.id)
        assert (record.replays, record.failures, record.result) == (1, 0, '"mended"')


async def test_a_worker_that_has_begun_as_many_jobs_as_it_may_asks_to_be_replaced(app: Drumbeat) -> None:
    @app.task
    async def noop() -> None: ...

    async with app, run_worker(app, max_jobs=2) as worker:
        await (await noop.enqueue()).result(timeout=5)
        assert not worker.shutdown.is_stopping
        await (await noop.enqueue()).result(timeout=5)
        await until(lambda: worker.shutdown.is_stopping, what="its end")
    assert worker.shutdown.exit_code == EXIT_RECYCLE


async def test_what_a_handler_changes_in_its_process_is_restored(app: Drumbeat) -> None:
    before = sys.getswitchinterval()

    @app.task
    async def hurries() -> None:
        sys.setswitchinterval(before / 2)

    try:
        async with app, run_worker(app):
            await (await hurries.enqueue()).result(timeout=5)
            await until(lambda: sys.getswitchinterval() == pytest.approx(before), what="the interval of before")
    finally:
        sys.setswitchinterval(before)


async def test_a_worker_that_does_not_lead_stops_without_a_successor(
    app: Drumbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "SUCCESSOR_TIMEOUT", 3_600.0)
    async with asyncio.timeout(20), app, run_worker(app, role="worker") as worker:
        await until(lambda: worker.is_started, what="its start")


async def test_the_runs_of_an_instance_that_died_are_counted_by_whoever_declares_it_dead(app: Drumbeat) -> None:
    async with app:
        store = await app._internals.store()
        gone = await register(store)
        await end(store, gone, await claimed_one(store, gone), OutcomeKind.SUCCEEDED)

        async def count() -> int:
            return sum(each.succeeded for each in await store.stats.read(Resolution.TOTAL, 0, 1))

        assert await count() == 0
        async with run_worker(app):
            await until(count, what="its run")


async def test_jobs_that_are_done_are_told_together(
    app: Drumbeat, recorder: EventRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "SUMMARY_INTERVAL", 0.01)

    @app.task
    async def noop() -> None: ...

    async with app, run_worker(app):
        await noop.enqueue()
        told = await recorder.next(JobsDone)
    assert (told.succeeded, told.failed, told.dead, told.cancelled) == (1, 0, 0, 0)


async def test_logging_that_fails_does_not_harm_a_worker(app: Drumbeat) -> None:
    logger = logging.getLogger("drumbeat.a_part_of_the_worker")

    def fail(record: logging.LogRecord) -> bool:
        raise RuntimeError("no disk for logs")

    async with app, run_worker(app):
        logger.addFilter(fail)
        logger.error("is lost")


async def test_a_worker_on_the_loop_of_a_program_drains_when_it_is_cancelled(app: Drumbeat) -> None:
    begun = asyncio.Event()

    @app.task
    async def runs_until_told() -> str:
        begun.set()
        return str(await current_job().aborted)

    async with app:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(serve(app._internals, app.configure({"drain": 5})))
            job = await runs_until_told.enqueue()
            await begun.wait()
            serving.cancel()
        assert await job.result(timeout=5) == "draining"
