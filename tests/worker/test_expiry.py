"""A job that did not start in time never runs, whoever claims it, and whether anybody does."""

from datetime import timedelta

import pytest

from drumbeat.app import Drumbeat
from drumbeat.clock import SYSTEM
from drumbeat.core.job import JobState
from drumbeat.durations import from_us
from drumbeat.errors import JobError, JobNotStarted
from drumbeat.events import JobFinished
from drumbeat.retry import Snooze
from drumbeat.tasks import Call
from drumbeat.testing import Kit
from tests.worker.worker_harness import EventRecorder, run_worker


async def test_a_job_that_expired_before_its_claim_never_runs_and_everybody_is_told(
    app: Drumbeat, recorder: EventRecorder
) -> None:
    ran: list[str] = []

    @app.task(expires=timedelta(microseconds=1))
    async def on_loop(name: str) -> None:
        ran.append(name)

    @app.task(batch=10)
    def in_batch(calls: list[Call[str]]) -> None:
        ran.extend(call.value for call in calls)

    long_ago = from_us(SYSTEM.now_us()) - timedelta(hours=1)
    async with app:
        late = [await on_loop.enqueue("late"), await in_batch.using(expires=long_ago).enqueue("late")]
        in_time = [await on_loop.using(expires="1h").enqueue("in time"), await in_batch.enqueue("in time")]
        async with run_worker(app):
            for job in in_time:
                assert await job.result(timeout=10) is None  # type: ignore[func-returns-value]
            for job in late:
                with pytest.raises(JobNotStarted, match="expired: it did not start in time") as refused:
                    await job.result(timeout=10)
                assert isinstance(refused.value, JobError)
                record = await job.job()
                assert (record.state, record.attempts, await app.jobs.attempts(job.id)) == (JobState.EXPIRED, 0, [])
            [reason] = (await app.jobs.explain(late[1].id)).reasons
            await recorder.next(JobFinished, lambda event: event.job.id == late[0].id)
            listed = await app.jobs.list(state="expired")
    assert ran == ["in time", "in time"]
    assert reason.text.startswith("it has expired") and f"{long_ago:%H:%M:%S} UTC, and did not" in reason.text
    assert reason.facts["state"] == "expired"
    assert {job.id for job in listed} == {job.id for job in late}
    ends = {event.job.id: event.state for event in recorder.of(JobFinished)}
    assert [ends[job.id] for job in late] == [JobState.EXPIRED] * 2


async def test_only_the_first_attempt_expires() -> None:
    """With virtual time: its retry comes after that time, and runs; a job that only snoozed expires."""
    app, ran = Drumbeat(), list[str]()

    @app.task(retries=1, backoff=["1h"], expires="10m")
    async def flaky(name: str) -> None:
        ran.append(name)
        if name == "snooze":
            raise Snooze("5m")
        if len(ran) == 1:
            raise ValueError("not yet")

    async with Kit(app) as kit:
        failed = await flaky.enqueue("fail")
        await kit.run_until_idle()
        snoozed = await flaky.enqueue("snooze")
        await kit.advance("2h")
        assert [(await job.job()).state for job in (failed, snoozed)] == [JobState.SUCCEEDED, JobState.EXPIRED]
        with pytest.raises(JobNotStarted):
            await snoozed.result(timeout=0)
    assert ran == ["fail", "snooze", "snooze", "fail"]


async def test_what_nobody_claims_is_swept(app: Drumbeat) -> None:
    @app.task
    async def wait() -> None: ...

    async with app:
        await app.queues.pause("default")
        job = await wait.using(expires=timedelta(microseconds=1)).enqueue()
        kept = await wait.using(expires="1h").enqueue()
        store = await app._internals.store()
        assert await store.jobs.expire(10) == 1
        assert [(await each.job()).state for each in (job, kept)] == [JobState.EXPIRED, JobState.PENDING]
        counts = await app.jobs.counts()
        assert (counts.expired, (await app.tasks.show("wait")).expired) == (1, 1)
