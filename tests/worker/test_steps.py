"""Steps of running jobs, in a real worker: what is on record is not done again."""

import asyncio
import functools
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drumbeat.app import Drumbeat
from drumbeat.context import current_job
from drumbeat.core.job import JobState
from drumbeat.core.step import StepRecord
from drumbeat.errors import InvalidArguments, JobFailed, JobTimedOut, NotTransactional, StepError, WrongContext
from drumbeat.handle import JobHandle
from drumbeat.retry import Snooze
from drumbeat.step_calls import current_step
from drumbeat.tasks import Call
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


class Receipt(msgspec.Struct):
    id: int
    items: tuple[str, ...]


async def steps_of(app: Drumbeat, job: JobHandle[Any]) -> list[StepRecord]:
    store = await app._internals.store()
    return (await store.steps.load([job.id]))[job.id]


async def test_a_step_on_record_is_not_called_again(app: Drumbeat, called: list[Any]) -> None:
    async def charge(amount: int, *, items: tuple[str, ...]) -> Receipt:
        called.append(("charge", current_step().key))
        return Receipt(amount, items)

    def ship(receipt: Receipt) -> str:
        called.append(("ship", threading.current_thread() is threading.main_thread()))
        if len(called) == 2:
            raise ValueError("no van")
        return f"shipped {receipt.id}"

    @app.task(retries=3, backoff=[0.01])
    async def fulfil(amount: int) -> tuple[Receipt, str]:
        job = current_job()
        receipt = await job.step("charge", charge, amount, items=("hat",))
        return receipt, await job.step("ship", ship, receipt)

    async with app, run_worker(app):
        job = await fulfil.enqueue(7)
        assert await job.result(timeout=10) == (Receipt(7, ("hat",)), "shipped 7")
        steps = await steps_of(app, job)
    assert called == [("charge", f"{job.id}:charge"), ("ship", False), ("ship", False)]
    assert [(step.name, step.result) for step in steps] == [
        ("charge", '{"id":7,"items":["hat"]}'),
        ("ship", '"shipped 7"'),
    ]


async def test_a_step_in_a_thread_is_not_called_again(app: Drumbeat, called: list[Any]) -> None:
    def charge(amount: int) -> Receipt:
        called.append(current_step().key)
        return Receipt(amount, ())

    @app.task(retries=3, backoff=[0.01])
    def fulfil(amount: int) -> int:
        receipt = current_job().step_sync("charge", charge, amount)
        if current_job().attempt == 1:
            raise ValueError("no van")
        return receipt.id

    async with app, run_worker(app):
        job = await fulfil.enqueue(7)
        assert await job.result(timeout=10) == 7
    assert called == [f"{job.id}:charge"]


async def test_steps_outlive_a_snooze_and_a_replay(app: Drumbeat, called: list[Any]) -> None:
    def once() -> int:
        called.append("once")
        return len(called)

    @app.task(retries=0)
    async def work() -> int:
        number = await current_job().step("once", once)
        called.append("run")
        if called.count("run") == 1:
            raise Snooze(0)
        if called.count("run") == 2:
            raise ValueError("dies")
        return number

    async with app, run_worker(app):
        job = await work.enqueue()
        with pytest.raises(JobFailed):
            await job.result(timeout=10)
        await app.dead.replay(job.id)
        assert await job.result(timeout=10) == 1
    assert called == ["once", "run", "run", "run"]


async def test_steps_at_once_are_known_by_their_names(app: Drumbeat, called: list[Any]) -> None:
    async def fetch(page: int) -> int:
        called.append(page)
        return page * 10

    @app.task(retries=1, backoff=[0.01])
    async def work(pages: list[int]) -> list[int]:
        job = current_job()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job.step(f"page:{page}", fetch, page)) for page in pages]
        if job.attempt == 1:
            raise ValueError("again")
        return [task.result() for task in reversed(tasks)]

    async with app, run_worker(app):
        job = await work.enqueue(list(range(50)))
        assert await job.result(timeout=10) == [page * 10 for page in reversed(range(50))]
    assert sorted(called) == list(range(50))


async def test_a_step_that_raises_leaves_no_record(app: Drumbeat) -> None:
    async def fail() -> None:
        raise ValueError("no")

    @app.task
    async def work() -> str:
        try:
            await current_job().step("fails", fail)
        except ValueError:
            return "went on"
        return "?"

    async with app, run_worker(app):
        job = await work.enqueue()
        assert await job.result(timeout=10) == "went on"
        assert await steps_of(app, job) == []


async def ends_as_dead_letter(app: Drumbeat, work: Any, message: str) -> None:
    async with app, run_worker(app):
        job = await work.enqueue()
        with pytest.raises(JobFailed, match=message):
            await job.result(timeout=10)
        record = await job.job()
        assert (record.state, record.failures) == (JobState.DEAD, 1)


def nothing() -> None: ...


async def test_a_name_twice_in_one_run_is_an_error(app: Drumbeat) -> None:
    @app.task(retries=5)
    async def work() -> None:
        await current_job().step("page", nothing)
        await current_job().step("page", nothing)

    await ends_as_dead_letter(app, work, "step 'page' of job .* is there twice in one run")


async def test_a_step_inside_of_a_step_is_an_error(app: Drumbeat) -> None:
    async def outer() -> None:
        await current_job().step("inner", nothing)

    @app.task(retries=5)
    async def work() -> None:
        await current_job().step("outer", outer)

    await ends_as_dead_letter(app, work, "step 'inner' of job .* is inside of step 'outer'")


async def test_a_result_that_cannot_be_kept_is_an_error(app: Drumbeat) -> None:
    @app.task(retries=5)
    async def work() -> None:
        await current_job().step("big", lambda: "x" * 300_000)

    await ends_as_dead_letter(app, work, "step 'big' of job .* 300,002 bytes of JSON, over the limit of 262,144")


async def test_waits_that_end_at_once_count_as_records(app: Drumbeat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their signals were there before: the run is never suspended."""
    monkeypatch.setattr("drumbeat.worker.step_budget.MAX_STEPS", 3)

    @app.task(retries=5)
    async def work() -> None:
        for number in range(4):
            await current_job().wait_for("go", name=f"go:{number}")

    async with app:
        job = await work.enqueue()
        for _ in range(4):
            await app.signal(job, "go")
        async with run_worker(app):
            with pytest.raises(JobFailed, match="one too many: a job keeps at most 3 records"):
                await job.result(timeout=10)
        assert len(await steps_of(app, job)) == 3
        store = await app._internals.store()
        assert [each.read_by for each in (await store.steps.list_signals([job.id]))[job.id]].count(None) == 1


async def test_too_many_steps_are_an_error(app: Drumbeat) -> None:
    @app.task(retries=5, timeout=60)
    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for page in range(1_001):
                group.create_task(current_job().step(f"page:{page}", int))

    await ends_as_dead_letter(app, work, "one too many: a job keeps at most 1,000 records")


async def test_a_record_that_no_longer_decodes_is_a_dead_letter_that_names_it(app: Drumbeat) -> None:
    def old() -> str:
        return "seven"

    def new() -> int:
        return 7

    @app.task(retries=5, backoff=[0.01])
    async def work() -> None:
        if current_job().attempt == 1:
            await current_job().step("count", old)
            raise ValueError("deployed anew")
        await current_job().step("count", new)

    async with app, run_worker(app):
        job = await work.enqueue()
        with pytest.raises(JobFailed, match=r"step 'count' of job .* has a result on record that is not of the type"):
            await job.result(timeout=10)


async def test_steps_that_nobody_asks_for_any_more_are_told(app: Drumbeat, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(retries=1, backoff=[0.01])
    async def work() -> None:
        job = current_job()
        await job.step("new" if job.attempt > 1 else "old", nothing)
        if job.attempt == 1:
            raise ValueError("renamed")

    async with app, run_worker(app):
        await (await work.enqueue()).result(timeout=10)
    [told] = [record for record in caplog.records if "without asking for steps" in record.message]
    assert told.__dict__["steps"] == "old"


async def test_batch_handlers_have_no_steps(app: Drumbeat) -> None:
    @app.task(batch=10, retries=0)
    async def work(calls: list[Call[int]]) -> None:
        await current_job().step("a", nothing)

    async with app, run_worker(app):
        job = await work.enqueue(1)
        with pytest.raises(JobFailed, match="NotInJob"):
            await job.result(timeout=10)


async def test_a_step_after_a_lost_claim_ends_the_run(app: Drumbeat, called: list[Any]) -> None:
    """The instance was declared dead while the step ran: its record is refused, and the handler does not go on."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> int:
        begun.set()
        await go_on.wait()
        return 7

    @app.task(retries=0)
    async def work() -> None:
        attempt = len(called)
        called.append("run")
        await current_job().step("slow", slow) if attempt == 0 else None
        called.append(f"after {attempt}")

    async with app, run_worker(app) as worker:
        job = await work.enqueue()
        await begun.wait()
        store = await app._internals.store()
        await store.instances.declare_dead(worker.core.identity(), beat=None, started=[], reason="silent")
        go_on.set()
        await job.result(timeout=10)
        assert await steps_of(app, job) == []
    assert called == ["run", "run", "after 1"]


async def test_a_timed_out_step_is_not_recorded(app: Drumbeat) -> None:
    release = threading.Event()

    @app.task(retries=0, timeout=0.2)
    async def work() -> None:
        await current_job().step("slow", release.wait)

    async with app, run_worker(app):
        job = await work.enqueue()
        with pytest.raises(JobTimedOut):
            await job.result(timeout=10)
        release.set()
        assert await steps_of(app, job) == []


async def test_a_record_may_be_part_of_the_callers_transaction(tmp_path: Path, called: list[Any]) -> None:
    """Rolled back with it: then the step is done again. Committed with it: then never again."""
    app = Drumbeat(f"sqlite:///{tmp_path}/jobs.db")
    db = sqlite3.connect(tmp_path / "jobs.db")
    db.execute("CREATE TABLE note (number INTEGER)")

    def note(number: int) -> int:
        called.append(number)
        db.execute("INSERT INTO note VALUES (?)", (number,))
        return number

    @app.task(retries=5, backoff=[0.01])
    async def work(number: int) -> int:
        job = current_job()
        if job.attempt < 3:
            db.execute("BEGIN IMMEDIATE")
        got: int = await job.step("note", functools.partial(call_here, note), number, conn=db)
        if job.attempt == 1:
            db.rollback()
            raise ValueError("rolled back")
        if job.attempt == 2:
            db.commit()
            raise ValueError("committed")
        return got

    async with app, run_worker(app):
        assert await (await work.enqueue(7)).result(timeout=10) == 7
    assert (called, db.execute("SELECT number FROM note").fetchall()) == ([7, 7], [(7,)])
    db.close()


async def call_here(function: Any, *args: Any) -> Any:
    """On the loop's thread, where the connection belongs."""
    return function(*args)


async def test_redis_has_no_transaction_that_a_step_can_share(tmp_path: Path, called: list[Any]) -> None:
    app = Drumbeat(fresh_url("valkey", tmp_path))

    @app.task(retries=0)
    async def work() -> None:
        with pytest.raises(NotTransactional):
            await current_job().step("a", called.append, "a", conn=object())
        with pytest.raises(NotTransactional):
            await asyncio.to_thread(current_job().step_sync, "b", called.append, "b", conn=object())

    async with app, run_worker(app):
        await (await work.enqueue()).result(timeout=10)
    assert called == []


async def test_a_connection_that_cannot_be_used_is_refused_before_the_step_is_called(
    tmp_path: Path, called: list[Any]
) -> None:
    app = Drumbeat(fresh_url("sqlite", tmp_path))

    @app.task(retries=0)
    async def work() -> None:
        with pytest.raises(InvalidArguments, match="conn is a "):
            await current_job().step("a", called.append, "a", conn=object())
        with pytest.raises(InvalidArguments, match="conn is a "):
            await asyncio.to_thread(current_job().step_sync, "b", called.append, "b", conn=object())

    async with app, run_worker(app):
        await (await work.enqueue()).result(timeout=10)
    assert called == []


async def test_calls_for_threads_are_refused_on_the_loop(app: Drumbeat, called: list[Any]) -> None:
    """They would wait for the loop that they keep from running, and with it the whole worker."""

    @app.task(retries=0)
    async def work() -> None:
        job = current_job()
        for call in (
            lambda: job.step_sync("a", called.append, 1),
            lambda: job.add_sync("b", [work.bind()]),
            functools.partial(job.sleep_sync, "1s"),
            lambda: job.wait_for_sync("approved"),
        ):
            with pytest.raises(WrongContext, match="use await job"):
                call()

    async with app, run_worker(app):
        await (await work.enqueue()).result(timeout=10)
    assert called == []


async def test_a_def_handler_may_run_a_loop_of_its_own(app: Drumbeat, called: list[Any]) -> None:
    async def steps() -> list[Any]:
        job = current_job()
        made = [await job.step("a", call_here, called.index, 0), await job.step("b", called.index, 0)]
        await job.sleep("10ms")
        [added] = await job.add("c", [other.bind()])
        return [*made, added.created, await job.wait_for("approved", str)]

    @app.task(retries=0)
    def work() -> list[Any]:
        return asyncio.run(steps())

    @app.task
    async def other() -> None: ...

    called.append(0)
    async with app, run_worker(app):
        job = await work.enqueue()
        await app.signal(job.id, "approved", "ann")
        assert await job.result(timeout=10) == [0, 0, True, "ann"]


async def test_a_worker_records_steps_of_many_jobs_in_few_calls(app: Drumbeat) -> None:
    calls: list[int] = []

    @app.task
    async def work() -> None:
        for number in range(5):
            await current_job().step(f"s{number}", int)

    async with app:
        steps = (await app._internals.store()).steps
        record = steps.record

        async def count(instance: Any, batch: Any) -> Any:
            calls.append(len(batch))
            return await record(instance, batch)

        steps.record = count  # type: ignore[method-assign, assignment]
        async with run_worker(app, concurrency=50):
            jobs = await app.enqueue_many([work.bind() for _ in range(50)])
            for job in jobs:
                await job.result(timeout=10)
    assert sum(calls) == 250
    assert len(calls) < 125


async def test_a_drain_ends_at_the_next_step_uncharged(app: Drumbeat, called: list[Any]) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> int:
        begun.set()
        await go_on.wait()
        return 7

    @app.task
    async def work() -> None:
        await current_job().step("first", slow)
        called.append(await current_job().step("second", int))

    async with app:
        async with run_worker(app) as worker:
            job = await work.enqueue()
            await begun.wait()
            worker.request_stop()
            await until(lambda: worker.shutdown.is_stopping, what="the drain")
            go_on.set()
        record = await job.job()
        assert (record.state, record.failures, called) == (JobState.PENDING, 0, [])
        assert [step.name for step in await steps_of(app, job)] == ["first"]


def test_what_a_step_error_says() -> None:
    error = StepError("j1", "", "must have a name")
    assert (str(error), error.id, error.step) == ("a step of job j1 must have a name", "j1", "")


@pytest.fixture
async def shop(app_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """A worker with child processes, and its program in this process. Yields the file of calls."""
    monkeypatch.setenv("DRUMBEAT_URL", app_url)
    monkeypatch.setenv("STEP_CALLS", str(tmp_path / "calls"))
    app = stepping.app
    settings = app.configure({"url": app_url, "heartbeat": 0.1, "poll": 0.2})
    async with app:
        worker = Worker(app._internals, settings, ref="tests.apps.stepping:app")
        async with asyncio.TaskGroup() as group:
            running = group.create_task(worker.run())
            yield tmp_path / "calls"
            worker.request_stop()
            await asyncio.wait([running])


def calls_in(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()]


async def test_steps_of_a_handler_in_a_child_process_are_recorded_by_its_worker(shop: Path) -> None:
    job = await stepping.in_process.enqueue(1)
    assert await job.result(timeout=30) == 3
    calls = calls_in(shop)
    assert [call[:2] for call in calls] == [["first", "1"], ["second", "2"]]
    assert str(os.getpid()) not in [call[2] for call in calls]


async def test_a_crash_suspect_makes_steps_in_its_child(shop: Path) -> None:
    job = await stepping.suspect.enqueue(1)
    store = await stepping.app._internals.store()

    async def has_both_steps() -> bool:
        return len((await store.steps.load([job.id]))[job.id]) == 2

    await until(has_both_steps, what="both steps")
    instance = (await job.job()).instance
    assert instance is not None
    await store.instances.declare_dead(instance, beat=None, started=None, reason="silent")
    assert await job.result(timeout=30) == 3
    assert [call[:2] for call in calls_in(shop)] == [["first", "1"], ["second", "2"]]
