"""Handlers that wait for signals, and whoever sends them."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drumbeat.app import Drumbeat
from drumbeat.context import current_job
from drumbeat.core.job import JobState
from drumbeat.errors import AmbiguousKey, InvalidArguments, JobEnded, JobFailed, JobNotFound, SignalTimedOut
from drumbeat.handle import JobHandle
from drumbeat.ids import new_job_id
from tests.conftest import fresh_url
from tests.waiting import until
from tests.worker.worker_harness import run_worker


@pytest.fixture(params=["sqlite", "postgres", "valkey"])
def app_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


class Approval(msgspec.Struct):
    by: str
    amount: int = 0


async def is_suspended(job: JobHandle[Any], on: str = "signal:approved") -> None:
    async def look() -> bool:
        return (await job.job()).suspended == on

    await until(look, what=f"{on} of {job.id}")


async def test_a_handler_gets_its_signal_decoded(app: Drumbeat) -> None:
    runs: list[str] = []

    @app.task(retries=0)
    async def work() -> str:
        runs.append("run")
        approval = await current_job().wait_for("approved", Approval, timeout="7 days")
        return f"{approval.by}: {approval.amount}"

    async with app, run_worker(app):
        job = await work.enqueue()
        await is_suspended(job)
        await app.signal(job.id, "approved", Approval("ann", 7))
        assert await job.result(timeout=10) == "ann: 7"
    assert runs == ["run", "run"]


async def test_a_signal_that_came_before_the_wait_ends_no_run(app: Drumbeat) -> None:
    runs: list[str] = []

    @app.task(retries=0)
    def work() -> Any:
        runs.append("run")
        return current_job().wait_for_sync("approved")

    async with app:
        job = await work.enqueue()
        await app.signal(job, "approved", {"by": "ann"})
        async with run_worker(app):
            assert await job.result(timeout=10) == {"by": "ann"}
    assert runs == ["run"]


async def test_a_wait_times_out_once_and_for_all(app: Drumbeat) -> None:
    @app.task(retries=1, backoff=[0.01])
    async def work() -> str:
        job = current_job()
        try:
            await job.wait_for("approved", timeout=0.1)
        except SignalTimedOut:
            if job.attempt == 1:
                await app.signal(job.id, "approved")
                raise ValueError("again") from None
            return "timed out"
        return "approved"

    async with app, run_worker(app):
        assert await (await work.enqueue()).result(timeout=10) == "timed out"


async def test_two_waits_for_one_signal_need_names(app: Drumbeat) -> None:
    @app.task(retries=0)
    async def work() -> list[int]:
        job = current_job()
        return [await job.wait_for("page", int, name=f"page {number}") for number in range(2)]

    @app.task(retries=0)
    async def same_name() -> None:
        await current_job().wait_for("page")
        await current_job().wait_for("page")

    async with app, run_worker(app):
        job, wrong = await work.enqueue(), await same_name.enqueue()
        for number in (1, 2):
            await app.signal(job, "page", number)
        assert await job.result(timeout=10) == [1, 2]
        await app.signal(wrong, "page")
        with pytest.raises(JobFailed, match="twice in one run: give each its own: wait_for"):
            await wrong.result(timeout=10)


async def test_a_payload_of_another_type_is_a_dead_letter_that_names_it(app: Drumbeat) -> None:
    @app.task(retries=5)
    async def work() -> None:
        await current_job().wait_for("approved", Approval)

    async with app, run_worker(app):
        job = await work.enqueue()
        await app.signal(job, "approved", "yes")
        with pytest.raises(JobFailed, match="got a signal 'approved' whose payload is not of the type"):
            await job.result(timeout=10)


async def test_a_job_is_found_by_task_and_key(app: Drumbeat) -> None:
    @app.task(retries=0)
    async def work() -> Any:
        return await current_job().wait_for("approved")

    async with app, run_worker(app):
        job = await work.using(key="order-1").enqueue()
        await is_suspended(job)
        await app.signal(task=work, key="order-1", name="approved", payload=7, id="s1")
        assert await job.result(timeout=10) == 7
        with pytest.raises(JobEnded, match=r"has ended \(succeeded\)"):
            await app.signal(task="work", key="order-1", name="approved")
        assert await app.signal(task=work, key="order-1", name="approved", payload=7, id="s1") == "s1"  # repeated
        with pytest.raises(JobNotFound, match="no job of task 'work' has the key 'order-2'"):
            await app.signal(task=work, key="order-2", name="approved")
        two = [await work.using(key="order-3").enqueue() for _ in range(2)]
        with pytest.raises(AmbiguousKey) as caught:
            await app.signal(task=work, key="order-3", name="approved")
        assert set(caught.value.ids) == {each.id for each in two}
        store = await app._internals.store()
        assert [*(await store.steps.list_signals([each.id for each in two])).values()] == [[], []]


async def test_a_signal_for_nobody_is_refused(app: Drumbeat) -> None:
    @app.task
    async def work() -> None: ...

    async with app, run_worker(app):
        with pytest.raises(JobNotFound):
            await app.signal(new_job_id(), "approved")
        job = await work.enqueue()
        await job.result(timeout=10)
        with pytest.raises(JobEnded):
            await app.signal(job, "approved")


async def test_what_cannot_be_sent_is_refused(app: Drumbeat) -> None:
    @app.task
    async def work() -> None: ...

    async with app:
        job = await work.enqueue()
        with pytest.raises(InvalidArguments, match="a signal has a name"):
            await app.signal(job, "")
        with pytest.raises(InvalidArguments, match=r"payload is 70,002 bytes of JSON, over the limit of 65,536"):
            await app.signal(job, "approved", "x" * 70_000)
        with pytest.raises(InvalidArguments, match="payload"):
            await app.signal(job, "approved", object())
        with pytest.raises(InvalidArguments, match="say which job"):
            await app.signal(name="approved")
        with pytest.raises(InvalidArguments, match="say which job"):
            await app.signal(job, "approved", task=work, key="k")
        number: Any = 5
        with pytest.raises(InvalidArguments, match="a job is named by its id or handle, not 5"):
            await app.signal(number, "approved")
        for id in ("", "x" * 201, "a\0", number):
            with pytest.raises(InvalidArguments, match="id must be a text of 1 to 200 printable characters"):
                await app.signal(job, "approved", id=id)


async def test_with_an_id_of_ones_own_repeated_calls_send_one_signal(app: Drumbeat) -> None:
    @app.task
    async def work() -> None: ...

    async with app:
        job = await work.enqueue()
        assert [await app.signal(job, "paid", number, id="payment-1") for number in range(2)] == ["payment-1"] * 2
        [sent] = (await (await app._internals.store()).steps.list_signals([job.id]))[job.id]
    assert sent.payload == "0"


async def test_signals_are_sent_without_a_loop_too(app: Drumbeat) -> None:
    @app.task(retries=0)
    async def work() -> Any:
        return await current_job().wait_for("approved")

    async with app, run_worker(app):
        job, other = await work.enqueue(), await work.using(key="k").enqueue()
        await is_suspended(job)
        await asyncio.to_thread(app.sync.signal, job.id, "approved", 7)
        await asyncio.to_thread(lambda: app.sync.signal(task=work, key="k", name="approved", payload=8))
        assert [await each.result(timeout=10) for each in (job, other)] == [7, 8]
        await asyncio.to_thread(app.sync.close)


async def test_a_waiting_job_is_not_run_now(app: Drumbeat) -> None:
    @app.task(retries=0)
    async def work() -> None:
        await current_job().wait_for("approved")

    async with app, run_worker(app):
        job = await work.enqueue()
        await is_suspended(job)
        with pytest.raises(InvalidArguments, match="waits for the signal 'approved': signal it"):
            await app.jobs.run_now(job.id)
        assert (await job.job()).state is JobState.PENDING
