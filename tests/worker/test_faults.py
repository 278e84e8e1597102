"""A worker whose store fails before, after and during its calls."""

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drumbeat.app import Drumbeat
from drumbeat.clock import SYSTEM
from drumbeat.context import AbortReason, current_job
from drumbeat.core.claim import Outcome
from drumbeat.core.instance import InstanceState
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.events import LeaseLost, ResultRefused, StoreDown, StoreUp
from drumbeat.processes.exit_codes import EXIT_NO_STORE
from drumbeat.settings import Settings
from drumbeat.worker import store_loop
from tests.conftest import fresh_url
from tests.contract.making import claimed_one
from tests.contract.making import worker as registered_worker
from tests.faults import FaultyProgram
from tests.waiting import until
from tests.worker.worker_harness import EventRecorder, run_worker


@pytest.fixture
async def program(app: Drumbeat) -> FaultyProgram:
    program = FaultyProgram(app)
    await program.store()
    return program


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims are compared with what the store has many times a second. That it is soon enough without this is shown by the test
    of a job that was lost on its way."""
    monkeypatch.setattr(store_loop, "TICK_INTERVAL", 0.05)
    monkeypatch.setattr(store_loop, "RECONCILE_INTERVAL", 0.1)


async def all_succeeded(app: Drumbeat, count: int) -> bool:
    return len(await app.jobs.list(state="succeeded", limit=count + 1)) == count


async def test_answers_of_finishes_that_are_lost_repeat_nothing(
    app: Drumbeat, program: FaultyProgram, often: None
) -> None:
    runs: Counter[int] = Counter()

    @app.task
    async def work(n: int) -> None:
        runs[n] += 1

    assert program.faults is not None
    async with app:
        await app.enqueue_many([work.bind(n) for n in range(50)])
        async with run_worker(program, concurrency=5):
            for _ in range(5):
                before = program.faults.calls["jobs.report_and_claim"]
                program.faults.fail_after["jobs.report_and_claim"] += 1
                await until(lambda before=before: program.faults.calls["jobs.report_and_claim"] > before + 1)
            await until(lambda: all_succeeded(app, 50), deadline=20)
    assert set(runs) == set(range(50)) and max(runs.values()) == 1


async def test_jobs_of_a_claim_whose_answer_was_lost_are_released_and_run_once(
    app: Drumbeat, program: FaultyProgram, often: None
) -> None:
    runs: Counter[int] = Counter()

    @app.task
    async def work(n: int) -> None:
        runs[n] += 1

    assert program.faults is not None
    async with app:
        program.faults.fail_after["jobs.report_and_claim"] = 1
        await app.enqueue_many([work.bind(n) for n in range(5)])
        async with run_worker(program):
            await until(lambda: all_succeeded(app, 5), deadline=20)
    assert runs == dict.fromkeys(range(5), 1)


async def test_claims_that_the_worker_does_not_know_are_released_at_the_second_comparison(
    app: Drumbeat, program: FaultyProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of a claim that is under way at the first may still come."""
    calls: list[str] = []

    def record(call: str, args: tuple[Any, ...]) -> bool:
        if call == "jobs.list_running":
            calls.append("compare")
        elif call == "jobs.report_and_claim" and any(each.kind is OutcomeKind.RELEASED for each in _outcomes(args)):
            calls.append("release")
        return False

    monkeypatch.setattr(store_loop, "TICK_INTERVAL", 0.02)
    monkeypatch.setattr(store_loop, "RECONCILE_INTERVAL", 0.05)
    assert program.faults is not None
    program.faults.refuse = record
    async with app, run_worker(program):
        [instance] = await until(app.instances.list, what="the worker")
        store = await app._internals.store()
        job = await claimed_one(store, instance.id, queue="elsewhere")

        async def is_released() -> bool:
            return (await app.jobs.show(job.id)).state is JobState.PENDING

        await until(is_released, what="the release")
    assert calls[:3] == ["compare", "compare", "release"]


async def test_a_job_that_was_lost_on_its_way_to_an_idle_worker_is_released_and_runs_once(
    app: Drumbeat, program: FaultyProgram
) -> None:
    runs: Counter[int] = Counter()

    @app.task
    async def work(n: int) -> None:
        runs[n] += 1

    assert program.faults is not None
    program.faults.fail_after["wake.handoff"] = 1
    async with app, run_worker(program):
        for n in range(5):
            await work.enqueue(n)
            await until(lambda n=n: all_succeeded(app, n + 1), deadline=20)
    assert runs == dict.fromkeys(range(5), 1)


async def test_one_outcome_that_the_store_refuses_does_not_hold_up_the_others(
    app: Drumbeat, program: FaultyProgram
) -> None:
    def is_bad(call: str, args: tuple[Any, ...]) -> bool:
        return call == "jobs.report_and_claim" and any(outcome.result == '"poison"' for outcome in _outcomes(args))

    @app.task
    async def work(n: int) -> str:
        return "poison" if n == 7 else "fine"

    assert program.faults is not None
    program.faults.refuse = is_bad
    async with app:
        jobs = await app.enqueue_many([work.bind(n) for n in range(20)])
        async with run_worker(program):
            await until(lambda: all_succeeded(app, 20))
        records = [await app.jobs.show(job.id) for job in jobs]
    assert [record.result for record in records].count('"fine"') == 19
    assert records[7].result is None and records[7].result_error == "the store refused the result"


async def test_a_job_whose_outcome_the_store_refuses_delays_no_other(app: Drumbeat, program: FaultyProgram) -> None:
    @app.task
    async def work(n: int) -> int:
        return n

    assert program.faults is not None
    async with app:
        jobs = await app.enqueue_many([work.bind(n) for n in range(20)])
        bad = jobs[7].id
        program.faults.refuse = lambda call, args: (
            call == "jobs.report_and_claim" and any(outcome.id == bad for outcome in _outcomes(args))
        )
        async with run_worker(program):
            await until(lambda: all_succeeded(app, 19))
            assert await (await work.enqueue(20)).result(timeout=10) == 20
            assert (await app.jobs.show(bad)).state is JobState.RUNNING


async def test_a_claim_that_the_store_refuses_is_tried_again(
    app: Drumbeat, program: FaultyProgram, recorder: EventRecorder
) -> None:
    @app.task
    async def work(n: int) -> int:
        return n

    assert program.faults is not None
    program.faults.refuse = lambda call, args: call == "jobs.report_and_claim"
    async with app, run_worker(program):
        job = await work.enqueue(1)
        assert "refused on purpose" in (await recorder.next(StoreDown)).reason
        program.faults.refuse = lambda call, args: False
        assert await job.result(timeout=10) == 1


def _outcomes(args: tuple[Any, ...]) -> list[Outcome]:
    return list(args[1])


async def test_work_goes_on_after_an_outage_that_is_reported_once(
    app: Drumbeat, program: FaultyProgram, recorder: EventRecorder
) -> None:
    runs: Counter[int] = Counter()

    @app.task
    async def work(n: int) -> None:
        runs[n] += 1

    assert program.faults is not None
    async with app, run_worker(program):
        await (await work.enqueue(0)).result(timeout=5)
        program.faults.is_down = True
        await recorder.next(StoreDown)
        jobs = await app.enqueue_many([work.bind(n) for n in range(1, 20)])
        await until(lambda: program.faults.calls["jobs.report_and_claim"] > 5)
        assert sum(runs.values()) == 1
        program.faults.is_down = False
        for job in jobs:
            await job.result(timeout=10)
        await recorder.next(StoreUp)
    assert len(recorder.of(StoreDown)) == 1
    assert max(runs.values()) == 1


async def test_the_password_of_the_store_is_in_no_event_and_in_no_log(
    app: Drumbeat,
    program: FaultyProgram,
    recorder: EventRecorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def configure(flags: Any) -> Settings:
        return msgspec.structs.replace(app.configure(flags), url="postgresql://shop:hunter2@db/shop")

    monkeypatch.setattr(program, "configure", configure, raising=False)
    assert program.faults is not None
    async with app, run_worker(program):
        await until(lambda: sum(program.faults.calls.values()) > 10)
        program.faults.is_down = True
        await recorder.next(StoreDown)
        program.faults.is_down = False
        await recorder.next(StoreUp)
    assert {event.url for event in recorder.events if isinstance(event, StoreDown | StoreUp)} == {
        "postgresql://shop:•••@db/shop"
    }
    told = [record for record in caplog.records if hasattr(record, "url")]
    assert told and "hunter2" not in str([record.__dict__ for record in caplog.records])


async def test_a_worker_that_was_declared_dead_aborts_its_handlers_and_goes_on_under_a_new_id(
    app: Drumbeat, recorder: EventRecorder
) -> None:
    started = asyncio.Event()
    reasons: list[AbortReason | None] = []
    attempts: list[int] = []

    @app.task(retries=0)
    async def long() -> str:
        attempts.append(current_job().token)
        started.set()
        if len(attempts) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                reasons.append(current_job().aborted.reason)
        return "second"

    async with app, run_worker(app):
        job = await long.enqueue()
        await started.wait()
        (instance,) = await app.instances.list()
        store = await app._internals.store()
        assert (await store.instances.declare_dead(instance.id, beat=None, started=None, reason="a test")).declared
        await recorder.next(LeaseLost)
        assert await job.result(timeout=5) == "second"
        (reborn,) = await app.instances.list()
        assert reborn.id != instance.id
        gone = next(each for each in await app.instances.list(all=True) if each.id == instance.id)
        assert gone.state is InstanceState.DEAD
    assert reasons == [AbortReason.LEASE_LOST]
    assert attempts[1] > attempts[0]


async def test_the_late_result_of_a_worker_declared_dead_is_refused_and_counted(
    app: Drumbeat, recorder: EventRecorder
) -> None:
    started, go_on = threading.Event(), threading.Event()
    answers = iter(["zombie", "living"])

    @app.task(retries=0)
    def long() -> str:
        answer = next(answers)
        if answer == "zombie":
            started.set()
            go_on.wait(10)
        return answer

    async with app, run_worker(app):
        job = await long.enqueue()
        await until(started.is_set)
        (instance,) = await app.instances.list()
        store = await app._internals.store()
        await store.instances.declare_dead(instance.id, beat=None, started=None, reason="a test")
        await recorder.next(LeaseLost)
        assert await job.result(timeout=5) == "living"
        go_on.set()
        refused = await recorder.next(ResultRefused)
        assert refused.id == job.id
        assert (await app.jobs.show(job.id)).result == '"living"'
        assert sum(each.refused for each in await app.instances.list(all=True)) == 1


async def test_after_a_heartbeat_of_its_own_that_failed_a_worker_declares_nobody_dead(tmp_path: Path) -> None:
    """It has to see the others silent for the whole time again."""
    app = Drumbeat(fresh_url("sqlite", tmp_path))
    program = FaultyProgram(app)
    async with app, run_worker(program, heartbeat=0.05, dead_after=0.5):
        store = await app._internals.store()
        silent = await registered_worker(store)

        async def is_alive() -> bool:
            return any(each.id == silent for each in await app.instances.list())

        heart = await until(lambda: program.heart)
        end = SYSTEM.monotonic() + 0.8
        while SYSTEM.monotonic() < end:
            # One of five fails: the gap is much shorter than what makes the observer start anew by itself.
            heart.fail_before["instances.heartbeat"] = 1
            seen = heart.calls["instances.heartbeat"]
            await until(lambda seen=seen: heart.calls["instances.heartbeat"] >= seen + 5)
        assert await is_alive()

        async def is_dead() -> bool:
            return not await is_alive()

        await until(is_dead, what="the verdict")


async def test_with_nothing_at_hand_a_worker_leaves_a_store_that_stays_away(
    app: Drumbeat, program: FaultyProgram
) -> None:
    @app.task
    async def work() -> None: ...

    async with app, run_worker(program, max_failed_beats=3) as worker:
        await until(lambda: program.heart and program.heart.calls["instances.heartbeat"])
        program.heart.is_down = True  # type: ignore[union-attr]
        await until(lambda: worker.shutdown.exit_code == EXIT_NO_STORE)


async def test_a_worker_does_not_leave_while_a_job_runs(app: Drumbeat, program: FaultyProgram) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> str:
        started.set()
        await go_on.wait()
        return "done"

    async with app:
        async with run_worker(program, max_failed_beats=2) as worker:
            job = await work.enqueue()
            await started.wait()
            program.heart.is_down = True  # type: ignore[union-attr]
            await until(lambda: program.heart.calls["instances.heartbeat"] > 20)  # type: ignore[union-attr]
            assert not worker.shutdown.is_stopping
            program.heart.is_down = False  # type: ignore[union-attr]
            go_on.set()
            assert await job.result(timeout=5) == "done"
        assert (await app.jobs.show(job.id)).state is JobState.SUCCEEDED


async def test_what_ran_when_a_worker_fell_over_a_mistake_of_ours_is_suspect(app: Drumbeat) -> None:
    started = asyncio.Event()

    @app.task
    async def runs() -> None:
        started.set()
        await asyncio.Event().wait()

    async def broken() -> None:
        raise RuntimeError("a mistake of ours")

    async def falls_over() -> None:
        async with run_worker(app) as worker:
            await started.wait()
            worker._parts.store_loop._tick = broken  # type: ignore[method-assign]
            await until(lambda: worker.shutdown.is_stopping, deadline=5)

    async with app:
        job = await runs.enqueue()
        with pytest.raises(BaseExceptionGroup):
            await falls_over()
        record = await app.jobs.show(job.id)
    assert (record.state, record.failures, record.crashes) == (JobState.PENDING, 0, 1)
