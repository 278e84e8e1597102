"""Handlers that finish their jobs inside a transaction, in a real worker."""

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from drumbeat.app import Drumbeat
from drumbeat.context import AbortReason, current_job
from drumbeat.core.job import JobState
from drumbeat.errors import InvalidArguments, JobFailed, NotTransactional, TransactionTooLong
from drumbeat.events import AttemptFailed, JobFinished, ResultRefused
from drumbeat.store.sqlite import job_transaction
from drumbeat.worker import Worker
from tests.apps import invoices
from tests.faults import FaultyProgram
from tests.waiting import until
from tests.worker.worker_harness import EventRecorder, run_worker


@pytest.fixture
def app_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The program's own connection, for the loop's thread."""
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as conn:
        conn.execute("CREATE TABLE note (number INTEGER)")
        yield conn


def numbers(db: sqlite3.Connection) -> list[int]:
    return [number for (number,) in db.execute("SELECT number FROM note ORDER BY number")]


def write(conn: sqlite3.Connection, number: int) -> None:
    conn.execute("INSERT INTO note VALUES (?)", (number,))


async def test_a_job_that_its_handler_completed_has_succeeded_with_that_result(
    app: Drumbeat, recorder: EventRecorder, db: sqlite3.Connection
) -> None:
    @app.task
    async def note(number: int) -> None:
        write(db, number)
        await current_job().complete(conn=db, result={"noted": number})
        db.commit()

    async with app, run_worker(app):
        job = await note.enqueue(7)
        assert await job.result(timeout=10) == {"noted": 7}  # type: ignore[func-returns-value]
        await recorder.next(JobFinished)
        record = await job.job()
    assert (record.state, record.failures, numbers(db)) == (JobState.SUCCEEDED, 0, [7])
    assert [event.state for event in recorder.of(JobFinished)] == [JobState.SUCCEEDED]
    assert recorder.of(ResultRefused) == []


async def test_a_transaction_brings_its_own_connection(
    app: Drumbeat, recorder: EventRecorder, db: sqlite3.Connection
) -> None:
    @app.task
    async def note(number: int) -> None:
        async with current_job().transaction() as conn:
            write(conn, number)

    @app.task
    def note_in_thread(number: int) -> None:
        with current_job().transaction() as conn:
            write(conn, number)
            current_job().complete_sync(conn=conn, result=number)

    async with app, run_worker(app):
        first, second = await note.enqueue(1), await note_in_thread.enqueue(2)
        assert (await first.result(timeout=10), await second.result(timeout=10)) == (None, 2)  # type: ignore[comparison-overlap, func-returns-value]
        await until(lambda: len(recorder.of(JobFinished)) == 2)
    assert numbers(db) == [1, 2]


async def test_what_a_handler_enqueues_in_its_transaction_is_stored_with_it(
    app: Drumbeat, db: sqlite3.Connection
) -> None:
    @app.task
    async def after(number: int) -> int:
        return number

    @app.task(retries=0)
    async def note(number: int, fails: bool) -> str:
        async with current_job().transaction() as conn:
            write(conn, number)
            job = await after.using(conn=conn).enqueue(number)
            await current_job().complete(conn=conn, result=job.id)
            if fails:
                raise ValueError("no")
        return ""

    async with app, run_worker(app):
        good, bad = await note.enqueue(1, fails=False), await note.enqueue(2, fails=True)
        id = await good.result(timeout=10)
        with pytest.raises(JobFailed, match="no"):
            await bad.result(timeout=10)
        await until(lambda: _state(app, id, JobState.SUCCEEDED))
        assert [job.task for job in await app.jobs.list()].count("after") == 1
    assert numbers(db) == [1]


async def _state(app: Drumbeat, id: Any, state: JobState) -> bool:
    return (await app.jobs.show(id)).state is state


async def test_an_error_in_the_block_rolls_everything_back_and_is_the_attempts_own(
    app: Drumbeat, db: sqlite3.Connection
) -> None:
    @app.task(retries=0)
    async def note(number: int) -> None:
        async with current_job().transaction() as conn:
            write(conn, number)
            raise ValueError("a mistake")

    async with app, run_worker(app):
        job = await note.enqueue(1)
        with pytest.raises(JobFailed, match="ValueError: a mistake"):
            await job.result(timeout=10)
    assert numbers(db) == []


async def test_a_completion_that_was_not_committed_is_a_failed_attempt(
    app: Drumbeat, recorder: EventRecorder, db: sqlite3.Connection
) -> None:
    @app.task(retries=0)
    async def forgets(number: int) -> None:
        write(db, number)
        await current_job().complete(conn=db)
        db.rollback()

    async with app, run_worker(app):
        job = await forgets.enqueue(1)
        with pytest.raises(JobFailed, match=r"NotCommitted.*was not committed"):
            await job.result(timeout=10)
    assert (numbers(db), len(recorder.of(AttemptFailed))) == ([], 1)


async def test_a_handler_that_fails_after_the_commit_has_succeeded(
    app: Drumbeat, recorder: EventRecorder, db: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(retries=0)
    async def note(number: int) -> None:
        async with current_job().transaction() as conn:
            write(conn, number)
        raise ValueError("too late")

    @app.task(retries=0)
    async def note_by_hand(number: int) -> None:
        write(db, number)
        await current_job().complete(conn=db)
        db.commit()
        raise ValueError("too late")

    async with app, run_worker(app):
        for number, task in enumerate((note, note_by_hand), start=1):
            job = await task.enqueue(number)
            await job.result(timeout=10)
        await until(lambda: len(recorder.of(JobFinished)) == 2)
    assert ([record.message for record in caplog.records].count("a handler failed after its job was completed")) == 2
    assert recorder.of(AttemptFailed) == []
    assert numbers(db) == [1, 2]


async def test_a_result_that_is_returned_too_late_is_logged(
    app: Drumbeat, db: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def note(number: int) -> int:
        async with current_job().transaction() as conn:
            write(conn, number)
        return number

    async with app, run_worker(app):
        job = await note.enqueue(1)
        assert await job.result(timeout=10) is None
        await until(lambda: any("give it to complete()" in record.message for record in caplog.records))


async def test_a_result_that_cannot_be_kept_does_not_keep_the_job_from_succeeding(
    app: Drumbeat, db: sqlite3.Connection
) -> None:
    @app.task
    async def note() -> None:
        async with current_job().transaction() as conn:
            await current_job().complete(conn=conn, result=float("nan"))

    async with app, run_worker(app):
        job = await note.enqueue()
        await until(lambda: _state(app, job.id, JobState.SUCCEEDED))
        assert "nan" in ((await job.job()).result_error or "").lower()


async def test_a_zombies_transaction_is_refused_as_a_whole(
    app: Drumbeat, recorder: EventRecorder, db: sqlite3.Connection
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    reasons: list[Any] = []

    @app.task(retries=0)
    async def note(number: int) -> None:
        if begun.is_set():
            return
        begun.set()
        await asyncio.shield(_patiently(go_on))
        job = current_job()
        try:
            async with job.transaction() as conn:
                write(conn, number)
        finally:
            reasons.append(job.aborted.reason)

    async with app, run_worker(app, heartbeat=60, dead_after=300):
        job = await note.enqueue(1)
        await begun.wait()
        store = await app._internals.store()
        [zombie] = await store.inspect.list_instances()
        await store.instances.declare_dead(zombie.id, beat=None, started=None, reason="test")
        go_on.set()
        await until(lambda: reasons)
        assert (await job.job()).state is JobState.PENDING
    assert (reasons, numbers(db)) == ([AbortReason.LEASE_LOST], [])


async def _patiently(event: asyncio.Event) -> None:
    await event.wait()


async def test_a_job_that_is_cancelled_after_its_commit_has_succeeded(
    app: Drumbeat, recorder: EventRecorder, db: sqlite3.Connection
) -> None:
    committed = asyncio.Event()

    @app.task
    async def note(number: int) -> None:
        write(db, number)
        await current_job().complete(conn=db, result=number)
        # The cancellation is asked for while the transaction is open, and comes when it is not.
        db.commit()
        committed.set()
        await asyncio.Event().wait()

    async with app, run_worker(app) as worker:
        job = await note.enqueue(1)
        await committed.wait()
        worker.core.runs.abort_all(AbortReason.CANCELLED)
        await recorder.next(JobFinished)
        assert await job.result(timeout=10) == 1  # type: ignore[func-returns-value]
    assert [event.state for event in recorder.of(JobFinished)] == [JobState.SUCCEEDED]


async def test_a_cancellation_in_the_block_rolls_it_back(app: Drumbeat, db: sqlite3.Connection) -> None:
    begun = asyncio.Event()

    @app.task
    async def note(number: int) -> None:
        async with current_job().transaction() as conn:
            begun.set()
            await asyncio.Event().wait()
            write(conn, number)

    async with app, run_worker(app) as worker:
        job = await note.enqueue(1)
        await begun.wait()
        worker.core.runs.abort_all(AbortReason.CANCELLED)
        await until(lambda: _state(app, job.id, JobState.CANCELLED))
    assert numbers(db) == []


async def test_a_transaction_that_keeps_all_others_waiting_is_rolled_back_and_reported(
    app: Drumbeat, db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit: float = 0.2
    monkeypatch.setattr(job_transaction.SqliteTransaction.__init__, "__defaults__", (limit,))
    seen: dict[str, Any] = {}

    @app.task(retries=0)
    async def waits(number: int) -> None:
        async with current_job().transaction() as conn:
            write(conn, number)
            await asyncio.Event().wait()

    @app.task(retries=0)
    def works(number: int) -> None:
        with current_job().transaction() as conn:
            write(conn, number)
            ended = threading.Event()
            while not ended.wait(0.01):
                try:
                    conn.execute("SELECT 1")
                except sqlite3.Error as error:
                    seen["error"] = str(error)
                    ended.set()

    async with app, run_worker(app):
        for task in (waits, works):
            job = await task.enqueue(1)
            with pytest.raises(JobFailed, match=r"TransactionTooLong.*more than 0.2 s"):
                await job.result(timeout=10)
    assert (numbers(db), "error" in seen) == ([], True)


async def test_the_limit_of_a_transaction_ends_with_it(
    app: Drumbeat, db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit: float = 0.05
    monkeypatch.setattr(job_transaction.SqliteTransaction.__init__, "__defaults__", (limit,))
    ended: list[int] = []

    @app.task(retries=0)
    async def goes_on(number: int) -> None:
        async with current_job().transaction() as conn:
            write(conn, number)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + 2 * limit
        await until(lambda: loop.time() > ends_at, what="a time beyond the limit")
        ended.append(number)

    async with app, run_worker(app):
        await goes_on.enqueue(1)
        await until(lambda: ended, what="the end of the handler")
    assert numbers(db) == ended == [1]


async def test_a_long_transaction_of_code_that_never_checks_is_rolled_back_all_the_same(tmp_path: Path) -> None:
    app = Drumbeat(f"sqlite:///{tmp_path}/jobs.db")
    async with app:
        transaction = job_transaction.SqliteTransaction(tmp_path / "jobs.db", 0.1)
        conn = await transaction.begin()
        conn.execute("CREATE TABLE mine (number INTEGER)")
        # The loop is free meanwhile, and whoever waits for the turn gets it.
        await app._internals.store()
        await (await app._internals.store()).jobs.pause_queue("q", by="test", reason="")
        with pytest.raises(sqlite3.DatabaseError):
            conn.execute("SELECT 1 FROM mine")
        with pytest.raises(TransactionTooLong):
            await transaction.commit()


async def test_the_blocks_connection_cannot_end_the_transaction(app: Drumbeat, db: sqlite3.Connection) -> None:
    @app.task(retries=0)
    async def commits(how: str) -> None:
        async with current_job().transaction() as conn:
            write(conn, 1)
            if how == "call":
                conn.commit()
            elif how == "sql":
                conn.execute("COMMIT")
            else:
                with conn:
                    write(conn, 2)

    async with app, run_worker(app):
        for how in ("call", "sql", "with"):
            job = await commits.enqueue(how)
            with pytest.raises(JobFailed, match=r"leaving the block|not authorized"):
                await job.result(timeout=10)
    assert numbers(db) == []


async def test_whether_it_was_committed_is_asked_until_the_store_answers(
    app: Drumbeat, recorder: EventRecorder, db: sqlite3.Connection
) -> None:
    program = FaultyProgram(app)

    @app.task(retries=0)
    async def note(number: int) -> None:
        assert program.faults is not None
        write(db, number)
        await current_job().complete(conn=db)
        db.commit()
        program.faults.fail_before["inspect.get_jobs"] = 3

    async with app, run_worker(program):
        await note.enqueue(1)
        finished = await recorder.next(JobFinished)
        assert finished.state is JobState.SUCCEEDED
    assert program.faults is not None and program.faults.calls["inspect.get_jobs"] == 4


async def test_an_unverified_completion_is_checked_before_a_worker_stops(
    app: Drumbeat, recorder: EventRecorder, db: sqlite3.Connection
) -> None:
    program = FaultyProgram(app)
    done = asyncio.Event()

    @app.task(retries=0)
    async def forgets() -> None:
        assert program.faults is not None
        await current_job().complete(conn=db)
        db.rollback()
        program.faults.fail_before["inspect.get_jobs"] = 3
        done.set()

    async with app:
        async with run_worker(program):
            job = await forgets.enqueue()
            await done.wait()
        assert (await job.job()).state is JobState.DEAD


async def test_a_connection_to_another_database_is_refused(app: Drumbeat, tmp_path: Path) -> None:
    @app.task(retries=0)
    async def note() -> None:
        for other in (":memory:", str(tmp_path / "other.db")):
            with contextlib.closing(sqlite3.connect(other)) as conn:
                with pytest.raises(InvalidArguments, match="conn is connected to"):
                    await current_job().complete(conn=conn)
                with pytest.raises(InvalidArguments, match="conn is connected to"):
                    await note.using(conn=conn).enqueue()

    async with app, run_worker(app):
        job = await note.enqueue()
        # complete() was called, but nothing of it happened.
        with pytest.raises(JobFailed, match="NotCommitted"):
            await job.result(timeout=10)


async def test_a_store_without_transactions_is_refused_at_start(app: Drumbeat, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task(transactional=True)
    async def note() -> None: ...

    async with app:
        store = await app._internals.store()

        def transaction() -> None:
            raise NotTransactional("Redis")

        monkeypatch.setattr(store.transactional, "transaction", transaction)
        with pytest.raises(NotTransactional, match="Redis has no transactions"):
            await Worker(app._internals, app.settings).run()


@pytest.fixture
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Drumbeat]:
    """A worker with child processes, and its program in this process."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    monkeypatch.setenv("DRUMBEAT_URL", url)
    app = invoices.app
    settings = app.configure({"url": url, "heartbeat": 0.1, "poll": 0.2})
    async with app:
        assert invoices.invoices() == []
        worker = Worker(app._internals, settings, ref="tests.apps.invoices:app")
        async with asyncio.TaskGroup() as group:
            running = group.create_task(worker.run())
            yield app
            worker.request_stop()
            await asyncio.wait([running])


async def test_handlers_in_child_processes_complete_their_jobs(shop: Drumbeat) -> None:
    first, second = await invoices.in_process.enqueue(1), await invoices.in_process_own.enqueue(2)
    assert await first.result(timeout=30) == "invoice 1"  # type: ignore[func-returns-value]
    assert await second.result(timeout=30) is None  # type: ignore[func-returns-value]
    written = invoices.invoices()
    assert [number for number, _ in written] == [1, 2]
    assert os.getpid() not in [pid for _, pid in written]


async def test_a_child_that_dies_or_is_killed_after_the_commit_has_done_its_job(shop: Drumbeat) -> None:
    recorder = EventRecorder(shop)
    jobs = [await invoices.dies_after_commit.enqueue(1), await invoices.lingers_after_commit.enqueue(2)]
    for job in jobs:
        await job.result(timeout=30)
    await until(lambda: len(recorder.of(JobFinished)) == 2, deadline=30)
    records = [await job.job() for job in jobs]
    assert [(record.state, record.crashes, record.failures) for record in records] == [(JobState.SUCCEEDED, 0, 0)] * 2
    assert [number for number, _ in invoices.invoices()] == [1, 2]
    assert recorder.of(ResultRefused) == []


async def test_a_child_that_dies_before_the_commit_has_crashed(shop: Drumbeat) -> None:
    job = await invoices.dies_before_commit.enqueue(1)
    with pytest.raises(JobFailed):
        await job.result(timeout=60)
    assert ((await job.job()).crashes, invoices.invoices()) == (3, [])
