"""Each kind of connection that a program may have to its SQLite file, and what only SQLite has."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from drumbeat.app import Drumbeat
from drumbeat.core.claim import CompletedJob
from drumbeat.core.job import AddResult, JobState, Unique
from drumbeat.errors import ClaimLost, InvalidArguments, JobNotFound
from drumbeat.store.job_reads import get_job
from drumbeat.store.sqlite import SqliteStore
from drumbeat.store.sqlite.write_lock import WriteLock
from drumbeat.store.urls import transactional_for
from tests.callers import Program, django_program, done
from tests.contract.making import claimed_one, hold, new_job, worker

MINE = "CREATE TABLE IF NOT EXISTS mine (number INTEGER)"


async def exists(store: SqliteStore, id: Any) -> bool:
    try:
        await get_job(store, id)
    except JobNotFound:
        return False
    return True


def of_sqlite3(path: Path, stack: contextlib.AsyncExitStack, **options: Any) -> Program:
    conn = stack.enter_context(contextlib.closing(sqlite3.connect(path, **options)))
    return Program(conn, conn.execute, conn.commit, conn.rollback)


async def plain(path: Path, stack: contextlib.AsyncExitStack) -> Program:
    return of_sqlite3(path, stack)


async def with_rows(path: Path, stack: contextlib.AsyncExitStack) -> Program:
    program = of_sqlite3(path, stack)
    program.conn.row_factory = lambda cursor, row: {
        column[0]: value for column, value in zip(cursor.description, row, strict=True)
    }
    program.conn.text_factory = bytes
    return program


async def by_hand(path: Path, stack: contextlib.AsyncExitStack) -> Program:
    program = of_sqlite3(path, stack, isolation_level=None)
    program.begin = lambda: program.conn.execute("BEGIN")
    return program


async def cursor(path: Path, stack: contextlib.AsyncExitStack) -> Program:
    program = of_sqlite3(path, stack)
    program.conn = program.conn.cursor()
    return program


async def of_aiosqlite(path: Path, stack: contextlib.AsyncExitStack) -> Program:
    conn = await stack.enter_async_context(aiosqlite.connect(path))
    return Program(conn, conn.execute, conn.commit, conn.rollback)


async def sqlalchemy_connection(path: Path, stack: contextlib.AsyncExitStack) -> Program:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    stack.callback(engine.dispose)
    conn = stack.enter_context(engine.connect())
    return Program(conn, lambda sql: conn.execute(sqlalchemy.text(sql)), conn.commit, conn.rollback)


async def sqlalchemy_session(path: Path, stack: contextlib.AsyncExitStack) -> Program:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    stack.callback(engine.dispose)
    session = stack.enter_context(Session(engine))
    return Program(session, lambda sql: session.execute(sqlalchemy.text(sql)), session.commit, session.rollback)


async def of_django(path: Path, stack: contextlib.AsyncExitStack) -> Program:
    return django_program({"ENGINE": "django.db.backends.sqlite3", "NAME": path}, stack)


async def async_sqlalchemy_connection(path: Path, stack: contextlib.AsyncExitStack) -> Program:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    stack.push_async_callback(engine.dispose)
    conn = await stack.enter_async_context(engine.connect())
    return Program(conn, lambda sql: conn.execute(sqlalchemy.text(sql)), conn.commit, conn.rollback)


async def async_sqlalchemy_session(path: Path, stack: contextlib.AsyncExitStack) -> Program:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    stack.push_async_callback(engine.dispose)
    session = await stack.enter_async_context(AsyncSession(engine))
    return Program(session, lambda sql: session.execute(sqlalchemy.text(sql)), session.commit, session.rollback)


SYNC = [plain, with_rows, by_hand, cursor, of_django, sqlalchemy_connection, sqlalchemy_session]
ASYNC = [of_aiosqlite, async_sqlalchemy_connection, async_sqlalchemy_session]


@pytest.fixture(params=[*SYNC, *ASYNC], ids=lambda make: make.__name__)
def make(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
async def program(make: Any, sqlite: SqliteStore, path: Path) -> AsyncIterator[Program]:
    with contextlib.closing(sqlite3.connect(path)) as conn:
        conn.execute(MINE)
    async with contextlib.AsyncExitStack() as stack:
        yield await make(path, stack)


def mine(path: Path) -> list[int]:
    with contextlib.closing(sqlite3.connect(path)) as conn:
        return [number for (number,) in conn.execute("SELECT number FROM mine ORDER BY number")]


@pytest.mark.parametrize("writes_first", [True, False])
async def test_jobs_come_and_go_with_the_transaction(
    program: Program, sqlite: SqliteStore, path: Path, writes_first: bool
) -> None:
    lost, kept = new_job(), new_job(key="a", unique=Unique.LIVE)
    for job, end in ((lost, program.rollback), (kept, program.commit)):
        program.begin()
        if writes_first:
            await done(program.run("INSERT INTO mine VALUES (1)"))
        assert await sqlite.transactional.add(program.conn, [job]) == [AddResult(job.id, True)]
        if not writes_first:
            await done(program.run("INSERT INTO mine VALUES (1)"))
        assert not await exists(sqlite, job.id)
        await done(end())
    assert [await exists(sqlite, job.id) for job in (lost, kept)] == [False, True]
    assert mine(path) == [1]


async def test_a_completion_is_part_of_the_transaction(program: Program, sqlite: SqliteStore, path: Path) -> None:
    instance = await worker(sqlite)
    job = await claimed_one(sqlite, instance)
    for end, state in ((program.rollback, JobState.RUNNING), (program.commit, JobState.SUCCEEDED)):
        program.begin()
        await done(program.run("INSERT INTO mine VALUES (1)"))
        await sqlite.transactional.complete(
            program.conn, CompletedJob(instance=instance, claim=hold(job), started_at=1, result="7", result_error=None)
        )
        await done(end())
        assert (await get_job(sqlite, job.id)).state is state
    program.begin()
    await done(program.run("INSERT INTO mine VALUES (2)"))
    with pytest.raises(ClaimLost):
        await sqlite.transactional.complete(
            program.conn, CompletedJob(instance=instance, claim=hold(job), started_at=1, result=None, result_error=None)
        )
    await done(program.commit())
    assert mine(path) == [1]


@pytest.mark.parametrize("make", ASYNC, ids=lambda make: make.__name__)
async def test_an_async_connection_is_refused_by_the_sync_form(program: Program, sqlite: SqliteStore) -> None:
    with pytest.raises(InvalidArguments, match="is an async connection"):
        sqlite.transactional.add_sync(program.conn, [new_job()])


@pytest.mark.parametrize("make", [plain, sqlalchemy_session], ids=lambda make: make.__name__)
async def test_the_sync_form_needs_no_loop(program: Program, sqlite: SqliteStore, path: Path) -> None:
    job = new_job()
    sqlite.transactional.add_sync(program.conn, [job])
    program.commit()
    assert await exists(sqlite, job.id)


async def test_a_connection_that_commits_by_itself_stores_at_once(sqlite: SqliteStore, path: Path) -> None:
    job = new_job()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as conn:
        await sqlite.transactional.add(conn, [job])
        assert not conn.in_transaction
        assert await exists(sqlite, job.id)


async def test_the_first_job_of_all_makes_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    inside = transactional_for(f"sqlite:///{path}")
    lost, kept = new_job(), new_job()
    with contextlib.closing(sqlite3.connect(path)) as conn:
        conn.execute(MINE)
        for job, end in ((lost, conn.rollback), (kept, conn.commit)):
            inside.add_sync(conn, [job])
            end()
    async with await SqliteStore.open(path, url="") as store:
        assert [await exists(store, job.id) for job in (lost, kept)] == [False, True]


async def test_an_error_leaves_the_callers_transaction_as_it_was(sqlite: SqliteStore, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as conn:
        conn.execute(MINE)
        conn.execute("INSERT INTO mine VALUES (1)")
        good, bad = new_job(), new_job(priority=12)
        with pytest.raises(sqlite3.IntegrityError):
            await sqlite.transactional.add(conn, [good, bad])
        conn.commit()
    assert (await exists(sqlite, good.id), mine(path)) == (False, [1])


async def test_errors_of_the_callers_connection_are_its_drivers_own(sqlite: SqliteStore, path: Path) -> None:
    with (
        contextlib.closing(sqlite3.connect(path)) as other,
        contextlib.closing(sqlite3.connect(path, timeout=0)) as conn,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            await sqlite.transactional.add(conn, [new_job()])


async def test_the_file_may_be_reached_by_another_path(sqlite: SqliteStore, path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path.parent)
    job = new_job()
    with contextlib.closing(sqlite3.connect(link / path.name)) as conn:
        await sqlite.transactional.add(conn, [job])
        conn.commit()
    assert await exists(sqlite, job.id)


async def test_a_transaction_that_waits_for_its_turn_in_vain_leaves_nothing_behind(
    sqlite: SqliteStore, path: Path
) -> None:
    turn = WriteLock(path)
    with turn:
        own = sqlite.transactional.transaction()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(own.begin(), 0.1)
    turn.close()
    # Its thread gets the turn now, finds nobody, and gives it back.
    await sqlite.jobs.pause_queue("q", by="", reason="")


async def test_transactions_take_turns_with_the_stores_own_writes(sqlite: SqliteStore, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as conn:
        conn.execute(MINE)

    async def write(number: int) -> None:
        own = sqlite.transactional.transaction()
        conn = await own.begin()
        conn.execute("INSERT INTO mine VALUES (?)", (number,))
        await sqlite.inspect.now()
        await own.commit()

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(write(number))
            group.create_task(sqlite.jobs.add([new_job()]))
    assert mine(path) == list(range(20))


def test_programs_without_a_loop_enqueue_in_their_own_transactions(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    app = Drumbeat(f"sqlite:///{path}")

    @app.task
    def ship(order: int) -> None: ...

    threads_before = threading.active_count()
    with contextlib.closing(sqlite3.connect(path)) as conn:
        with conn:
            first = ship.using(conn=conn, key="1", unique=True).enqueue_sync(1)
            second = ship.using(conn=conn, key="1", unique=True).enqueue_sync(1)
        lost = app.sync.enqueue_many([ship.bind(n) for n in range(20)], conn=conn)
        conn.rollback()
    # Nothing was started or opened for it.
    assert threading.active_count() == threads_before
    assert (first.created, second.created, first.id == second.id) == (True, False, True)
    assert [job.id for job in app.sync.jobs.list()] == [first.id]
    assert len(lost) == 20
    app.sync.close()


async def test_a_sync_connection_of_another_thread_is_used_there(sqlite: SqliteStore, path: Path) -> None:
    job = new_job()

    def enqueue() -> None:
        with contextlib.closing(sqlite3.connect(path)) as conn, conn:
            sqlite.transactional.add_sync(conn, [job])

    with ThreadPoolExecutor(1) as pool:
        await asyncio.wrap_future(pool.submit(enqueue))
    assert await exists(sqlite, job.id)
