"""Whole instances: what each role does, what comes before the first claim, and what a blocked loop cannot delay."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from drumbeat.app import Drumbeat
from drumbeat.core.job import JobState
from drumbeat.core.schedule import ScheduleState
from drumbeat.errors import StartFailed
from drumbeat.events import JobFinished, LeaderChanged, ScheduleFired
from drumbeat.worker import Worker
from tests.cli.command import call
from tests.contract.making import worker as registered
from tests.controller.factories import list_jobs
from tests.waiting import until, until_sync
from tests.worker.worker_harness import EventRecorder, run_worker


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


def program(url: str) -> Drumbeat:
    app = Drumbeat(url, name="shop")

    @app.every(0.1, grid=True, overlap="allow")
    async def tick() -> None:
        pass

    return app


async def test_an_instance_of_both_roles_leads_fires_and_runs(url: str) -> None:
    app = program(url)
    recorder = EventRecorder(app)
    async with app, run_worker(app) as worker:
        await recorder.next(JobFinished)
        fired = await recorder.next(ScheduleFired)
        led = await recorder.next(LeaderChanged)
    assert (led.leader, led.term) == (led.instance, 1)
    assert (fired.schedule, fired.at % 100_000) == ("tick", 0)
    assert worker.shutdown.exit_code == 0


async def test_a_controller_runs_no_jobs_and_a_worker_fires_none(url: str) -> None:
    controller, other = program(url), program(url)
    heard, fired_by_worker = EventRecorder(controller), EventRecorder(other)
    async with controller, other:
        async with run_worker(other, role="worker"):
            store = await other._internals.store()
            found = await until(lambda: store.schedules.get("tick"), what="the declaration of the worker")
            assert found.state is ScheduleState.ACTIVE
            async with run_worker(controller, role="controller"):
                await heard.next(ScheduleFired)
                ran = await fired_by_worker.next(JobFinished)
        assert ran.state is JobState.SUCCEEDED
    assert heard.of(JobFinished) == []
    assert fired_by_worker.of(ScheduleFired) == fired_by_worker.of(LeaderChanged) == []  # type: ignore[comparison-overlap]


async def test_without_a_controller_nothing_is_fired(url: str) -> None:
    app = program(url)
    async with app, run_worker(app, role="worker"):
        store = await app._internals.store()
        await until(lambda: store.schedules.get("tick"), what="the declaration")
        pulses = await beats(app, 5)
        assert pulses[-1].leader is None
        assert await list_jobs(store) == []


async def beats(app: Drumbeat, count: int) -> list[Any]:
    """What an instance that does nothing else hears, beat by beat, while time passes."""
    store = await app._internals.store()
    me = await registered(store, app="observer")
    found = []
    for _ in range(count):
        before = await store.inspect.now()
        await until(lambda before=before: later(app, before + 100_000), what="a moment")
        found.append(await store.instances.heartbeat(me, 0))
    await store.instances.deregister(me, "left")
    return found


async def later(app: Drumbeat, moment: int) -> bool:
    return await (await app._internals.store()).inspect.now() >= moment


async def test_a_handler_that_blocks_the_loop_delays_no_fire(url: str) -> None:
    app = program(url)
    file = url.removeprefix("sqlite:///")

    @app.task
    async def block() -> int:
        """Until this many more are there to be run: nobody can run them meanwhile."""
        with contextlib.closing(sqlite3.connect(file)) as db:
            return int(until_sync(lambda: (found := ready(db)) >= 10 and found, deadline=30, what="ten fires"))

    def ready(db: sqlite3.Connection) -> int:
        [(found,)] = db.execute("SELECT count(*) FROM drumbeat_job WHERE task = 'tick' AND state = 'pending'")
        return int(found)

    recorder = EventRecorder(app)
    async with app, run_worker(app, dead_after=60):
        await recorder.next(JobFinished)
        assert await (await block.enqueue()).result(timeout=60) >= 10


async def test_start_up_tasks_come_before_the_first_claim(url: str) -> None:
    app = Drumbeat(url)
    told: list[str] = []

    @app.task
    async def work() -> None:
        told.append("work")

    @app.on_start
    async def warm() -> None:
        told.append("warm")
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.3)
        told.append("warm still")

    @app.on_start(role="controller")
    def control() -> None:
        told.append("control")

    async with app:
        job = await work.enqueue()
        async with run_worker(app):
            await job.result(timeout=10)
    assert told == ["warm", "warm still", "control", "work"]


async def test_a_start_up_that_fails_ends_the_instance_which_deregisters(url: str) -> None:
    app = Drumbeat(url)

    @app.on_start(retries=0)
    async def broken() -> None:
        raise ValueError("no such table")

    async with app:
        worker = Worker(app._internals, app.settings)
        with pytest.raises(ExceptionGroup) as failed:
            await worker.run()
        assert failed.group_contains(StartFailed, match="start-up task 'broken' failed: ValueError: no such table")
        assert [each.state for each in await app.instances.list(all=True)] == ["left"]


async def test_an_instance_that_is_stopped_while_it_starts_claims_nothing(url: str) -> None:
    app = Drumbeat(url)
    begun = asyncio.Event()

    @app.task
    async def work() -> None:
        pass

    @app.on_start
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with app:
        job = await work.enqueue()
        async with run_worker(app, drain=0.2):
            await begun.wait()
        assert (await job.job()).state is JobState.PENDING


FAILING = """
from drumbeat import Drumbeat
app = Drumbeat("sqlite:///jobs.db")

@app.on_start(retries=0)
async def warm(): raise ValueError("no such table")
"""


def test_the_command_reports_a_failed_start_up_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    done = call("run", "failing:app", "--log-level", "error", folder=tmp_path)
    assert (done.returncode, done.stderr) == (1, "drumbeat: start-up task 'warm' failed: ValueError: no such table\n")
