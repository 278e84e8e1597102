"""A claim whose answer comes late, when it is no longer the worker's, is not run."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from drumbeat.app import Drumbeat
from drumbeat.core.job import JobState
from drumbeat.events import LeaseLost
from drumbeat.ids import JobId
from drumbeat.worker import store_loop
from tests.faults import FaultyProgram, FaultyStore
from tests.waiting import until
from tests.worker.worker_harness import EventRecorder, run_worker


@pytest.fixture
async def program(app: Drumbeat) -> FaultyProgram:
    program = FaultyProgram(app)
    await program.store()
    return program


@pytest.fixture
def faults(program: FaultyProgram) -> FaultyStore:
    assert program.faults is not None
    return program.faults


async def test_a_claim_that_is_answered_after_its_instance_was_declared_dead_does_not_run(
    app: Drumbeat, program: FaultyProgram, faults: FaultyStore, recorder: EventRecorder
) -> None:
    runs: list[str] = []

    @app.task
    async def work() -> None:
        runs.append("ran")

    answered = asyncio.Event()
    faults.late_answers["jobs.report_and_claim"] = answered.wait
    async with app:
        job = await work.enqueue()
        async with run_worker(program, heartbeat=0.1):
            await until(lambda: is_running(app, job.id))
            (instance,) = await app.instances.list()
            store = await app._internals.store()
            await store.instances.declare_dead(instance.id, beat=None, started=None, reason="a test")
            await recorder.next(LeaseLost)
            answered.set()
            await job.result(timeout=10)
        shown = await app.jobs.show(job.id)
    assert runs == ["ran"] and shown.crashes == 1


async def is_running(app: Drumbeat, id: JobId) -> bool:
    return (await app.jobs.show(id)).state is JobState.RUNNING


@pytest.mark.parametrize("app_url", ["valkey"], indirect=True)
async def test_a_job_that_was_released_on_its_way_to_an_idle_worker_does_not_run_when_it_arrives(
    app: Drumbeat, program: FaultyProgram, faults: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_loop, "TICK_INTERVAL", 0.02)
    monkeypatch.setattr(store_loop, "RECONCILE_INTERVAL", 0.05)
    runs: Counter[int] = Counter()

    @app.task
    async def work(n: int) -> None:
        runs[n] += 1

    late: list[Callable[[], None]] = []
    faults.late_handoffs = late
    async with app, run_worker(program):
        for n in range(100):  # what was kept back is released, and run by another claim
            await work.enqueue(n)
            await until(lambda n=n: runs[n] == 1, deadline=20)
            if len(late) == 3:
                break
        faults.late_handoffs = None
        assert len(late) == 3
        for deliver in late:
            deliver()
        await (await work.enqueue(-1)).result(timeout=10)
    assert set(runs.values()) == {1}
