"""Handlers that finish their jobs inside a transaction, in a real worker on PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import psycopg
import pytest

from drumbeat.app import Drumbeat
from drumbeat.context import AbortReason, current_job
from drumbeat.core.job import JobState
from drumbeat.errors import JobFailed, StoreUnavailable
from drumbeat.events import JobFinished, ResultRefused
from drumbeat.store.postgres import job_transaction
from drumbeat.store.postgres.job_transaction import PostgresTransaction
from drumbeat.worker import Worker
from tests.apps import ledger
from tests.waiting import until
from tests.worker.worker_harness import EventRecorder, run_worker


@pytest.fixture
async def app(url: str, raw: Any) -> Drumbeat:
    await raw.execute("CREATE TABLE note (number integer)")
    return Drumbeat(url)


@pytest.fixture
def recorder(app: Drumbeat) -> EventRecorder:
    return EventRecorder(app)


async def write(conn: Any, number: int) -> None:
    await conn.execute("INSERT INTO note VALUES ($1)", number)


async def numbers(raw: Any) -> list[int]:
    return [row["number"] for row in await raw.fetch("SELECT number FROM note ORDER BY number")]


async def test_the_writes_and_the_jobs_end_are_committed_together(
    app: Drumbeat, recorder: EventRecorder, raw: Any, url: str
) -> None:
    @app.task
    async def by_hand(number: int) -> None:
        conn = await asyncpg.connect(url)
        async with conn.transaction():
            await write(conn, number)
            await current_job().complete(conn=conn, result={"noted": number})
        await conn.close()

    @app.task
    async def short(number: int) -> None:
        async with current_job().transaction() as conn:
            await write(conn, number)
            await current_job().complete(conn=conn, result={"noted": number})

    @app.task
    def in_thread(number: int) -> None:
        with current_job().transaction() as conn:
            conn.execute("INSERT INTO note VALUES (%s)", (number,))
            current_job().complete_sync(conn=conn, result={"noted": number})

    @app.task
    def in_thread_by_hand(number: int) -> None:
        with psycopg.connect(url) as conn:
            conn.execute("INSERT INTO note VALUES (%s)", (number,))
            current_job().complete_sync(conn=conn, result={"noted": number})

    tasks = (by_hand, short, in_thread, in_thread_by_hand)
    async with app, run_worker(app):
        jobs = [await task.enqueue(number) for number, task in enumerate(tasks)]
        assert [await job.result(timeout=10) for job in jobs] == [{"noted": n} for n in range(4)]  # type: ignore[func-returns-value]
        await until(lambda: len(recorder.of(JobFinished)) == 4)
    assert await numbers(raw) == [0, 1, 2, 3]
    assert {event.state for event in recorder.of(JobFinished)} == {JobState.SUCCEEDED}
    assert recorder.of(ResultRefused) == []


async def test_an_error_rolls_everything_back(app: Drumbeat, raw: Any) -> None:
    @app.task(retries=0)
    async def fails(number: int) -> None:
        async with current_job().transaction() as conn:
            await write(conn, number)
            raise ValueError("a mistake")

    @app.task(retries=0)
    async def breaks(number: int) -> None:
        async with current_job().transaction() as conn:
            await write(conn, number)
            await conn.execute("SELECT 1 / 0")

    async with app, run_worker(app):
        for task, told in ((fails, "a mistake"), (breaks, "DivisionByZero")):
            job = await task.enqueue(1)
            with pytest.raises(JobFailed, match=told):
                await job.result(timeout=10)
    assert await numbers(raw) == []


async def test_a_zombies_transaction_is_refused_as_a_whole(app: Drumbeat, raw: Any) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    reasons: list[Any] = []

    @app.task(retries=0)
    async def note(number: int) -> None:
        if begun.is_set():
            return
        begun.set()
        await go_on.wait()
        job = current_job()
        try:
            async with job.transaction() as conn:
                await write(conn, number)
        finally:
            reasons.append(job.aborted.reason)

    async with app, run_worker(app, heartbeat=60, dead_after=300, leader_lease=300):
        job = await note.enqueue(1)
        await begun.wait()
        store = await app._internals.store()
        [zombie] = await store.inspect.list_instances()
        await store.instances.declare_dead(zombie.id, beat=None, started=None, reason="test")
        go_on.set()
        await until(lambda: reasons)
        assert (await job.job()).state is JobState.PENDING
    assert (reasons, await numbers(raw)) == ([AbortReason.LEASE_LOST], [])


async def test_a_commit_without_an_answer_is_verified(
    app: Drumbeat, recorder: EventRecorder, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = PostgresTransaction.commit
    went_on: list[int] = []

    async def loses_the_answer(self: PostgresTransaction) -> None:
        await commit(self)
        raise StoreUnavailable("the answer was lost on purpose")

    async def never_arrives(self: PostgresTransaction) -> None:
        await self.rollback()
        raise StoreUnavailable("the question was lost on purpose")

    @app.task(retries=0)
    async def note(number: int) -> None:
        async with current_job().transaction() as conn:
            await write(conn, number)
        went_on.append(number)

    async with app, run_worker(app):
        monkeypatch.setattr(PostgresTransaction, "commit", loses_the_answer)
        await (await note.enqueue(1)).result(timeout=10)
        await recorder.next(JobFinished)
        monkeypatch.setattr(PostgresTransaction, "commit", never_arrives)
        lost = await note.enqueue(2)
        with pytest.raises(JobFailed, match="StoreUnavailable: the question was lost"):
            await lost.result(timeout=10)
    assert (went_on, await numbers(raw)) == ([1], [1])


async def test_a_cancelled_handler_gives_its_connection_back(app: Drumbeat, raw: Any) -> None:
    begun = asyncio.Event()

    @app.task
    async def hangs(number: int) -> None:
        async with current_job().transaction() as conn:
            await write(conn, number)
            begun.set()
            await conn.execute("SELECT pg_sleep(60)")

    @app.task
    async def note(number: int) -> None:
        async with current_job().transaction() as conn:
            await write(conn, number)

    async with app, run_worker(app) as worker:
        for _ in range(6):
            begun.clear()
            job = await hangs.enqueue(1)
            await begun.wait()
            # PostgreSQL forgets a cancellation that arrives before its statement: it must be seen at work first.
            await until(lambda: _sleeps(raw), what="the statement at work")
            worker.core.runs.abort_all(AbortReason.CANCELLED)
            await until(lambda id=job.id: _state(app, id, JobState.CANCELLED))
        await (await note.enqueue(7)).result(timeout=10)
    assert await numbers(raw) == [7]


STUBBORN = """
DO $$
BEGIN
    LOOP
        BEGIN
            PERFORM pg_sleep(60);
        EXCEPTION WHEN query_canceled THEN
            NULL;
        END;
    END LOOP;
END $$"""


async def test_a_statement_that_ignores_its_cancellation_does_not_hold_the_slot(
    app: Drumbeat, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does whose cancellation came before it had begun: PostgreSQL forgets that."""
    # How long the statement is waited for says nothing of how long a new connection may take that ends its session.
    monkeypatch.setattr(job_transaction, "CANCEL_TIMEOUT", 0.002)

    @app.task
    async def hangs(number: int) -> None:
        async with current_job().transaction() as conn:
            await write(conn, number)
            await conn.execute(STUBBORN)

    @app.task
    async def note(number: int) -> None:
        async with current_job().transaction() as conn:
            await write(conn, number)

    active = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()"

    async def count() -> int:
        found: int = await raw.fetchval(active)
        return found

    async with app, run_worker(app, concurrency=1) as worker:
        job = await hangs.enqueue(1)
        await until(lambda: count(), what="the statement at work")
        worker.core.runs.abort_all(AbortReason.CANCELLED)
        await until(lambda: _state(app, job.id, JobState.CANCELLED), deadline=5)
        await (await note.enqueue(2)).result(timeout=5)

        async def nobody() -> bool:
            return await count() == 0

        await until(nobody, deadline=5, what="the end of the session that held locks")
    assert await numbers(raw) == [2]


async def _sleeps(raw: Any) -> bool:
    active = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%')"
    return bool(await raw.fetchval(active))


async def _state(app: Drumbeat, id: Any, state: JobState) -> bool:
    return (await app.jobs.show(id)).state is state


@pytest.fixture
async def shop(url: str, raw: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Drumbeat]:
    """A worker with child processes, and its program in this process."""
    await raw.execute("CREATE TABLE note (number integer)")
    monkeypatch.setenv("DRUMBEAT_URL", url)
    app = ledger.app
    settings = app.configure({"url": url, "heartbeat": 0.1, "poll": 0.2})
    async with app:
        worker = Worker(app._internals, settings, ref="tests.apps.ledger:app")
        async with asyncio.TaskGroup() as group:
            running = group.create_task(worker.run())
            yield app
            worker.request_stop()
            await asyncio.wait([running])


async def test_handlers_in_child_processes_complete_their_jobs(shop: Drumbeat, raw: Any) -> None:
    jobs = [await ledger.in_process.enqueue(1), await ledger.in_process_by_hand.enqueue(2)]
    assert [await job.result(timeout=30) for job in jobs] == [1, 2]  # type: ignore[func-returns-value]
    survivor = await ledger.dies_after_commit.enqueue(3)
    await survivor.result(timeout=30)
    assert await numbers(raw) == [1, 2, 3]
    assert (await survivor.job()).crashes == 0


async def test_a_suspect_completes_its_job_in_a_child(shop: Drumbeat, raw: Any) -> None:
    job = await ledger.on_loop.using(delay=0.5).enqueue(4)
    await raw.execute("UPDATE drumbeat.job SET crashes = 1")
    pid = await job.result(timeout=30)
    assert (await numbers(raw), pid == str(ledger.PID)) == ([4], False)
