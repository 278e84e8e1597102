"""Handlers that sleep: the run ends, and a later run goes on behind the sleep."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.app import Drumbeat
from drumbeat.context import current_job
from drumbeat.core.job import JobState
from drumbeat.errors import InvalidArguments, JobFailed
from drumbeat.step_calls import Suspended
from drumbeat.worker import Worker
from tests.apps import stepping
from tests.conftest import fresh_url
from tests.waiting import until
from tests.worker.worker_harness import run_worker


@pytest.fixture(params=["sqlite", "postgres", "valkey"])
def app_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


@pytest.fixture
def called() -> list[Any]:
    return []


async def test_a_handler_goes_on_behind_its_sleep_uncharged(app: Drumbeat, called: list[Any]) -> None:
    @app.task(retries=0)
    async def work() -> str:
        job = current_job()
        called.append("run")
        await job.step("before", called.append, "before")
        await job.sleep(0.3)
        await job.step("after", called.append, "after")
        await job.sleep("200ms", name="second")
        return f"attempt {job.attempt}"

    async with app, run_worker(app):
        job = await work.enqueue()
        assert await job.result(timeout=10) == "attempt 1"
        record = await job.job()
    assert called == ["run", "before", "run", "after", "run"]
    assert (record.failures, record.crashes) == (0, 0)


async def test_a_def_handler_sleeps_too(app: Drumbeat, called: list[Any]) -> None:
    @app.task(retries=0)
    def work() -> int:
        called.append("run")
        current_job().sleep_sync(timedelta(milliseconds=200))
        return len(called)

    async with app, run_worker(app):
        assert await (await work.enqueue()).result(timeout=10) == 2


async def test_a_sleeping_job_holds_no_slot(app: Drumbeat) -> None:
    @app.task
    async def sleeper() -> None:
        await current_job().sleep("1 day")

    @app.task
    async def other() -> int:
        return 7

    async with app, run_worker(app, concurrency=1):
        job = await sleeper.enqueue()

        async def sleeps() -> bool:
            return (await job.job()).suspended == "sleep"

        await until(sleeps, what="the sleep")
        assert await (await other.enqueue()).result(timeout=10) == 7
        await app.jobs.run_now(job.id)
        await job.result(timeout=10)


async def test_a_sleep_in_a_task_group_ends_the_run(app: Drumbeat, called: list[Any]) -> None:
    """Of which the group makes a group of exceptions; a sibling that goes on raises it again."""

    @app.task(retries=0)
    async def work() -> str:
        job = current_job()
        called.append("run")
        async with asyncio.TaskGroup() as group:
            group.create_task(job.sleep(0.1, name="a"))
            group.create_task(job.sleep(0.1, name="b"))
        return "done"

    async with app, run_worker(app):
        assert await (await work.enqueue()).result(timeout=10) == "done"
    assert called == ["run"] * 3


@pytest.mark.parametrize("how", ["returns", "raises", "goes on"])
async def test_a_handler_that_swallows_its_suspension_fails(app: Drumbeat, how: str, called: list[Any]) -> None:
    @app.task(retries=0)
    async def work() -> str:
        job = current_job()
        try:
            await job.sleep("1 day")
        except BaseException as error:
            called.append(type(error))
            if how == "raises":
                raise ValueError("of its own") from None
            if how == "goes on":
                with pytest.raises(Suspended):
                    await job.step("next", int)
                with pytest.raises(Suspended):
                    await job.sleep(1, name="other")
                with pytest.raises(Suspended):
                    await job.complete(conn=None)
        return "went on"

    async with app, run_worker(app):
        job = await work.enqueue()
        with pytest.raises(JobFailed, match="the handler caught the exception by which sleep"):
            await job.result(timeout=10)
        record = await job.job()
    assert (called, record.state, record.failures) == ([Suspended], JobState.DEAD, 1)


async def fails(app: Drumbeat, work: Any, message: str) -> None:
    async with app, run_worker(app):
        job = await work.enqueue()
        with pytest.raises(JobFailed, match=message):
            await job.result(timeout=10)


async def test_a_second_sleep_needs_a_name(app: Drumbeat) -> None:
    @app.task
    async def work() -> None:
        await current_job().sleep(0)
        await current_job().sleep(0)

    await fails(
        app, work, r"step 'sleep' of job .* is there twice in one run: give each its own: sleep\(..., name=...\)"
    )


async def test_a_sleep_beside_a_step_that_runs_is_refused(app: Drumbeat) -> None:
    @app.task
    async def work() -> None:
        job = current_job()
        async with asyncio.TaskGroup() as group:
            group.create_task(job.step("slow", asyncio.Event().wait))
            group.create_task(job.sleep("1 day"))

    await fails(app, work, "cannot be made while step 'slow' runs")


async def test_a_sleep_inside_of_a_step_is_refused(app: Drumbeat) -> None:
    async def sleeper() -> None:
        await current_job().sleep(1)

    @app.task
    async def work() -> None:
        await current_job().step("outer", sleeper)

    await fails(app, work, "is inside of step 'outer'")


async def test_a_duration_that_is_none_is_refused(app: Drumbeat) -> None:
    @app.task
    async def work() -> None:
        with pytest.raises(InvalidArguments, match="duration must be"):
            await current_job().sleep("soon")

    async with app, run_worker(app):
        await (await work.enqueue()).result(timeout=10)


@pytest.fixture
async def shop(app_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    monkeypatch.setenv("DRUMBEAT_URL", app_url)
    monkeypatch.setenv("STEP_CALLS", str(tmp_path / "calls"))
    settings = stepping.app.configure({"url": app_url, "heartbeat": 0.1, "poll": 0.2})
    async with stepping.app:
        worker = Worker(stepping.app._internals, settings, ref="tests.apps.stepping:app")
        async with asyncio.TaskGroup() as group:
            running = group.create_task(worker.run())
            yield tmp_path / "calls"
            worker.request_stop()
            await asyncio.wait([running])


async def test_a_handler_in_a_child_process_sleeps_too(shop: Path) -> None:
    assert await (await stepping.sleeps_in_process.enqueue(1)).result(timeout=30) == 3
    calls = [line.split() for line in shop.read_text().splitlines()]
    assert [call[:2] for call in calls] == [["before", "1"], ["after", "2"]]
    assert str(os.getpid()) not in [call[2] for call in calls]
