"""Each kind of connection that a program may have to its PostgreSQL, and what only PostgreSQL has."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from drumbeat.clock import SYSTEM
from drumbeat.core.claim import CompletedJob
from drumbeat.core.job import AddResult, CancelAnswer, JobState, OutcomeKind, Unique
from drumbeat.errors import ClaimLost, ConfigError, InvalidArguments, JobNotFound, StoreUnavailable
from drumbeat.store.job_reads import get_job
from drumbeat.store.postgres import PostgresStore, schema
from drumbeat.store.postgres.transactional import PostgresTransactional
from drumbeat.store.protocol.wake import Subscriber
from tests.callers import Program, django_program, done
from tests.contract.making import claim, claimed_one, end, hold, ids, new_job, worker
from tests.engines.postgres.conftest import address_of
from tests.servers.postgres import PostgresServer
from tests.waiting import until


async def exists(store: PostgresStore, id: Any) -> bool:
    try:
        await get_job(store, id)
    except JobNotFound:
        return False
    return True


class AsyncpgProgram(Program):
    """asyncpg commits by itself unless a transaction is begun."""

    def __init__(self, conn: Any) -> None:
        super().__init__(conn, self.execute, self.end("COMMIT"), self.end("ROLLBACK"))

    async def execute(self, sql: str) -> None:
        await self.conn.execute(sql)

    def end(self, how: str) -> Callable[[], Any]:
        async def run() -> None:
            await self.conn.execute(how)
            await self.conn.execute("BEGIN")

        return run


async def of_asyncpg(url: str, stack: contextlib.AsyncExitStack) -> Program:
    conn = await asyncpg.connect(url)
    stack.push_async_callback(conn.close)
    await conn.execute("BEGIN")
    return AsyncpgProgram(conn)


async def of_asyncpg_pool(url: str, stack: contextlib.AsyncExitStack) -> Program:
    pool = await stack.enter_async_context(asyncpg.create_pool(url, min_size=1))
    conn = await stack.enter_async_context(pool.acquire())
    await conn.execute("BEGIN")
    return AsyncpgProgram(conn)


async def of_psycopg(url: str, stack: contextlib.AsyncExitStack) -> Program:
    conn = stack.enter_context(contextlib.closing(psycopg.connect(url, row_factory=dict_row)))
    return Program(conn, conn.execute, conn.commit, conn.rollback)


async def psycopg_cursor(url: str, stack: contextlib.AsyncExitStack) -> Program:
    conn = stack.enter_context(contextlib.closing(psycopg.connect(url)))
    cursor = conn.cursor(row_factory=dict_row)
    return Program(cursor, cursor.execute, conn.commit, conn.rollback)


async def of_django(url: str, stack: contextlib.AsyncExitStack) -> Program:
    parts = urlsplit(url)
    return django_program(
        {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": parts.hostname,
            "PORT": parts.port,
            "USER": parts.username,
            "PASSWORD": parts.password,
            "NAME": parts.path.removeprefix("/"),
        },
        stack,
    )


async def async_psycopg(url: str, stack: contextlib.AsyncExitStack) -> Program:
    conn = await psycopg.AsyncConnection.connect(url, row_factory=dict_row)
    stack.push_async_callback(conn.close)
    return Program(conn, conn.execute, conn.commit, conn.rollback)


async def async_psycopg_cursor(url: str, stack: contextlib.AsyncExitStack) -> Program:
    conn = await psycopg.AsyncConnection.connect(url)
    stack.push_async_callback(conn.close)
    cursor = conn.cursor()
    return Program(cursor, cursor.execute, conn.commit, conn.rollback)


async def sqlalchemy_connection(url: str, stack: contextlib.AsyncExitStack) -> Program:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    stack.callback(engine.dispose)
    conn = stack.enter_context(engine.connect())
    return Program(conn, lambda sql: conn.execute(sqlalchemy.text(sql)), conn.commit, conn.rollback)


async def sqlalchemy_session(url: str, stack: contextlib.AsyncExitStack) -> Program:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    stack.callback(engine.dispose)
    session = stack.enter_context(Session(engine))
    return Program(session, lambda sql: session.execute(sqlalchemy.text(sql)), session.commit, session.rollback)


async def async_sqlalchemy_connection(url: str, stack: contextlib.AsyncExitStack) -> Program:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
    stack.push_async_callback(engine.dispose)
    conn = await stack.enter_async_context(engine.connect())
    return Program(conn, lambda sql: conn.execute(sqlalchemy.text(sql)), conn.commit, conn.rollback)


async def async_sqlalchemy_session(url: str, stack: contextlib.AsyncExitStack) -> Program:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
    stack.push_async_callback(engine.dispose)
    session = await stack.enter_async_context(AsyncSession(engine))
    return Program(session, lambda sql: session.execute(sqlalchemy.text(sql)), session.commit, session.rollback)


async def async_sqlalchemy_psycopg(url: str, stack: contextlib.AsyncExitStack) -> Program:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    stack.push_async_callback(engine.dispose)
    session = await stack.enter_async_context(AsyncSession(engine))
    return Program(session, lambda sql: session.execute(sqlalchemy.text(sql)), session.commit, session.rollback)


SYNC = [of_psycopg, psycopg_cursor, of_django, sqlalchemy_connection, sqlalchemy_session]
ASYNC = [
    *(of_asyncpg, of_asyncpg_pool, async_psycopg, async_psycopg_cursor),
    *(async_sqlalchemy_connection, async_sqlalchemy_session, async_sqlalchemy_psycopg),
]


@pytest.fixture(params=[*SYNC, *ASYNC], ids=lambda make: make.__name__)
def make(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
async def program(make: Any, url: str, raw: Any) -> AsyncIterator[Program]:
    await raw.execute("CREATE TABLE mine (number integer)")
    async with contextlib.AsyncExitStack() as stack:
        yield await make(url, stack)


async def mine(raw: Any) -> list[int]:
    return [row["number"] for row in await raw.fetch("SELECT number FROM mine ORDER BY number")]


@pytest.mark.parametrize("writes_first", [True, False])
async def test_jobs_come_and_go_with_the_transaction(
    program: Program, postgres: PostgresStore, raw: Any, writes_first: bool
) -> None:
    lost, kept = new_job(args='{"text":"ä%s:x$1"}'), new_job(key="%s :a", unique=Unique.LIVE)
    for job, finish in ((lost, program.rollback), (kept, program.commit)):
        if writes_first:
            await done(program.run("INSERT INTO mine VALUES (1)"))
        assert await postgres.transactional.add(program.conn, [job]) == [AddResult(job.id, True)]
        if not writes_first:
            await done(program.run("INSERT INTO mine VALUES (1)"))
        assert not await exists(postgres, job.id)
        await done(finish())
    assert [await exists(postgres, job.id) for job in (lost, kept)] == [False, True]
    assert await mine(raw) == [1]


async def test_a_completion_is_part_of_the_transaction(program: Program, postgres: PostgresStore, raw: Any) -> None:
    instance = await worker(postgres)
    job = await claimed_one(postgres, instance)
    for finish, state in ((program.rollback, JobState.RUNNING), (program.commit, JobState.SUCCEEDED)):
        await done(program.run("INSERT INTO mine VALUES (1)"))
        await postgres.transactional.complete(
            program.conn, CompletedJob(instance=instance, claim=hold(job), started_at=1, result="7", result_error=None)
        )
        await done(finish())
        assert (await get_job(postgres, job.id)).state is state
    await done(program.run("INSERT INTO mine VALUES (2)"))
    with pytest.raises(ClaimLost) as caught:
        await postgres.transactional.complete(
            program.conn, CompletedJob(instance=instance, claim=hold(job), started_at=1, result=None, result_error=None)
        )
    assert caught.value.completed
    await done(program.rollback())
    assert await mine(raw) == [1]


@pytest.mark.parametrize("make", ASYNC, ids=lambda make: make.__name__)
async def test_an_async_connection_is_refused_by_the_sync_form(program: Program, postgres: PostgresStore) -> None:
    with pytest.raises(InvalidArguments, match="is an async connection"):
        postgres.transactional.add_sync(program.conn, [new_job()])


@pytest.mark.parametrize("make", SYNC, ids=lambda make: make.__name__)
async def test_the_sync_form_needs_no_loop(program: Program, postgres: PostgresStore) -> None:
    job = new_job()
    postgres.transactional.add_sync(program.conn, [job])
    program.commit()
    assert await exists(postgres, job.id)


async def test_a_connection_that_commits_by_itself_stores_at_once(postgres: PostgresStore, raw: Any) -> None:
    job = new_job()
    await postgres.transactional.add(raw, [job])
    assert await exists(postgres, job.id)


async def test_another_database_is_refused(postgres: PostgresStore, server: PostgresServer) -> None:
    conn = await asyncpg.connect(server.url)
    try:
        with pytest.raises(InvalidArguments, match=r"without the functions of Drumbeat: .*127\.0\.0\.1.*migrate"):
            await postgres.transactional.add(conn, [new_job()])
    finally:
        await conn.close()


async def test_another_namespace_has_functions_of_its_own(url: str, raw: Any) -> None:
    await schema.migrate(address_of(url), "shop")
    job = new_job()
    async with await PostgresStore.open(address_of(url), namespace="shop") as store:
        hints: list[int] = []
        async with store.wake.listen(Subscriber(hints.append)):
            await store.transactional.add(raw, [job])
            await until(lambda: hints, what="a hint")
        assert await exists(store, job.id)
        instance = await worker(store)
        [claimed] = await claim(store, instance)
        await store.transactional.complete(
            raw, CompletedJob(instance=instance, claim=hold(claimed), started_at=1, result=None, result_error=None)
        )
        assert (await get_job(store, job.id)).state is JobState.SUCCEEDED


async def test_notify_false_wakes_no_worker(postgres: PostgresStore, raw: Any) -> None:
    hints: list[int] = []
    async with postgres.wake.listen(Subscriber(hints.append)):
        await postgres.transactional.add(raw, [new_job()], notify=False)
        await postgres.transactional.add(raw, [new_job(run_at=5)])
        await until(lambda: hints, what="a hint")
    assert hints == [5]


async def test_two_open_transactions_with_one_unique_key_make_one_job(
    postgres: PostgresStore, raw: Any, url: str
) -> None:
    other = await asyncpg.connect(url)
    try:
        for first_commits in (True, False):
            one, two = (new_job(key=str(first_commits), unique=Unique.LIVE) for _ in range(2))
            first = raw.transaction()
            await first.start()
            await postgres.transactional.add(raw, [one])
            async with asyncio.TaskGroup() as group:
                second = group.create_task(postgres.transactional.add(other, [two]))
                await until(lambda: _waits(postgres, url), what="the second to wait for the first")
                await (first.commit() if first_commits else first.rollback())
            assert second.result() == [AddResult(one.id, False) if first_commits else AddResult(two.id, True)]
    finally:
        await other.close()


async def _waits(postgres: PostgresStore, url: str) -> bool:
    looking = await asyncpg.connect(url)
    try:
        return bool(await looking.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))
    finally:
        await looking.close()


async def test_a_kept_snapshot_that_is_too_old_is_a_serialization_failure(postgres: PostgresStore, raw: Any) -> None:
    await raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await raw.fetchval("SELECT 1")
    await postgres.jobs.add([new_job(key="a", unique=Unique.LIVE)])
    with pytest.raises(asyncpg.SerializationError):
        await postgres.transactional.add(raw, [new_job(key="a", unique=Unique.LIVE)])


async def test_a_job_that_ends_while_it_is_enqueued_again_has_no_second_life(
    postgres: PostgresStore, raw: Any, url: str
) -> None:
    instance = await worker(postgres)
    job = await claimed_one(postgres, instance)
    ending = raw.transaction()
    await ending.start()
    await postgres.transactional.complete(
        raw, CompletedJob(instance=instance, claim=hold(job), started_at=1, result=None, result_error=None)
    )
    other = await asyncpg.connect(url)
    try:
        async with asyncio.TaskGroup() as group:
            again = group.create_task(
                postgres.transactional.add(other, [new_job(id=job.id), new_job(), new_job(id=job.id)])
            )
            await until(lambda: _waits(postgres, url), what="the insert to wait for the completion")
            await ending.commit()
    finally:
        await other.close()
    assert [answer.created for answer in again.result()] == [False, True, False]
    assert (await get_job(postgres, job.id)).state is JobState.SUCCEEDED
    assert ids(await claim(postgres, instance)) == [again.result()[1].id]


async def test_a_burial_waits_for_a_completion_under_way_and_then_finds_nothing(
    postgres: PostgresStore, raw: Any, url: str
) -> None:
    instance = await worker(postgres)
    job = await claimed_one(postgres, instance)
    async with asyncio.TaskGroup() as group:
        async with raw.transaction():
            await postgres.transactional.complete(
                raw, CompletedJob(instance=instance, claim=hold(job), started_at=1, result=None, result_error=None)
            )
            burial = group.create_task(
                postgres.instances.declare_dead(instance, beat=None, started=None, reason="test")
            )
            await until(lambda: _waits(postgres, url), what="the burial to wait")
    assert (burial.result().declared, burial.result().crash_suspect) == (True, 0)
    assert (await get_job(postgres, job.id)).state is JobState.SUCCEEDED


async def test_a_completion_makes_the_day_that_history_lacks(postgres: PostgresStore, raw: Any) -> None:
    instance = await worker(postgres)
    job = await claimed_one(postgres, instance)
    for part in await raw.fetch("SELECT relname FROM pg_class WHERE relname ~ '^history_[0-9]{8}$' AND relkind = 'r'"):
        await raw.execute(f"DROP TABLE drumbeat.{part['relname']}")
    await postgres.transactional.complete(
        raw, CompletedJob(instance=instance, claim=hold(job), started_at=1, result=None, result_error=None)
    )
    assert (await get_job(postgres, job.id)).state is JobState.SUCCEEDED


async def test_an_open_transaction_does_not_lock_the_job_until_it_completes_it(
    postgres: PostgresStore, raw: Any
) -> None:
    instance = await worker(postgres)
    job = await claimed_one(postgres, instance)
    own = postgres.transactional.transaction()
    conn = await own.begin()
    await conn.execute("CREATE TABLE mine (number integer)")
    async with asyncio.timeout(2):
        assert await postgres.jobs.cancel([job.id]) == [CancelAnswer.REQUESTED]
    await postgres.transactional.complete(
        conn, CompletedJob(instance=instance, claim=hold(job), started_at=1, result=None, result_error=None)
    )
    await own.commit()
    assert (await get_job(postgres, job.id)).state is JobState.SUCCEEDED


async def test_a_lost_connection_raises_store_unavailable_and_the_pool_recovers(
    postgres: PostgresStore, raw: Any, server: PostgresServer
) -> None:
    own = postgres.transactional.transaction()
    conn = await own.begin()
    pid = await conn.fetchval("SELECT pg_backend_pid()")
    await raw.execute("SELECT pg_terminate_backend($1)", pid)
    with pytest.raises(StoreUnavailable):
        await own.commit()
    again = postgres.transactional.transaction()
    assert await (await again.begin()).fetchval("SELECT 1") == 1
    await again.rollback()


async def test_what_the_server_says_to_a_commit_is_the_handlers(postgres: PostgresStore, raw: Any) -> None:
    await raw.execute("CREATE TABLE mine (number integer UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    own = postgres.transactional.transaction()
    conn = await own.begin()
    await conn.execute("INSERT INTO mine VALUES (1), (1)")
    with pytest.raises(asyncpg.UniqueViolationError):
        await own.commit()


async def test_transactions_share_five_connections(postgres: PostgresStore) -> None:
    async def look() -> int:
        own = postgres.transactional.transaction()
        conn = await own.begin()
        pid: int = await conn.fetchval("SELECT pg_backend_pid()")
        await own.rollback()
        return pid

    async with asyncio.TaskGroup() as group:
        looks = [group.create_task(look()) for _ in range(30)]
    assert len({each.result() for each in looks}) <= 5


async def test_a_def_handlers_transaction_is_psycopgs(
    postgres: PostgresStore, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await raw.execute("CREATE TABLE mine (number integer)")
    for commits in (True, False):
        own = postgres.transactional.transaction()
        conn = own.begin_sync()
        conn.execute("INSERT INTO mine VALUES (1)")
        (own.commit_sync if commits else own.rollback_sync)()
    assert await mine(raw) == [1]
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match="needs psycopg"):
        postgres.transactional.transaction().begin_sync()


async def test_a_server_that_is_away_raises_store_unavailable(url: str) -> None:
    nowhere = PostgresTransactional(
        address_of("postgresql://postgres@127.0.0.1:1/x"), namespace="drumbeat", clock=SYSTEM
    )
    with pytest.raises(StoreUnavailable):
        await nowhere.transaction().begin()
    with pytest.raises(StoreUnavailable):
        nowhere.transaction().begin_sync()


async def test_a_finished_job_and_a_late_outcome_agree(postgres: PostgresStore, raw: Any) -> None:
    instance = await worker(postgres)
    job = await claimed_one(postgres, instance)
    await postgres.transactional.complete(
        raw, CompletedJob(instance=instance, claim=hold(job), started_at=1, result=None, result_error=None)
    )
    assert await end(postgres, instance, job, OutcomeKind.SUCCEEDED) == "duplicate"


FILL = """
INSERT INTO drumbeat.{table} (id, task, queue, args, signature, created_at, due_at, run_at, priority, crash_limit{columns})
SELECT gen_random_uuid(), 'greet', 'default', '{{}}', 's', 1, 1, 1, 5, 3{values}
  FROM generate_series(1, 20000)
"""


async def test_a_plan_that_was_made_on_empty_tables_is_good_on_full_ones(
    postgres: PostgresStore, raw: Any, url: str
) -> None:
    instance = await worker(postgres)
    # The session whose plans are old; none of the tables is ever analysed.
    await postgres.transactional.add(raw, [new_job(key="a", unique=Unique.LIVE)])
    await postgres.transactional.complete(
        raw,
        CompletedJob(
            instance=instance,
            claim=hold((await claim(postgres, instance))[0]),
            started_at=1,
            result=None,
            result_error=None,
        ),
    )
    other = await asyncpg.connect(url)
    ended = {
        "columns": ', finished_at, token, failures, crashes, replays, cancel_requested, state, "unique", "group", lane',
        "values": ", drumbeat.now_us(), 1, 0, 0, 0, false, 'dead', '', '', ''",
    }
    await other.execute(FILL.format(table="history", **ended))
    await other.execute(FILL.format(table="dead", **ended))
    await other.execute(FILL.format(table="job", columns=', key, "unique"', values=", generate_series::text, 'live'"))
    await other.close()
    job = await claimed_one(postgres, instance, queue="other")
    # Not before its own rows are counted, nor while the others' still are.
    before = await until(lambda: _settled(raw), what="all counts to be told", deadline=30)
    await postgres.transactional.add(raw, [new_job(), new_job(key="7", unique=Unique.LIVE), new_job(id=job.id)])
    await postgres.transactional.complete(
        raw, CompletedJob(instance=instance, claim=hold(job), started_at=1, result=None, result_error=None)
    )
    assert await _rows_read(raw) - before < 100


async def _settled(raw: Any) -> int | None:
    """The count, when it has not changed for a second: other sessions tell theirs about that often."""
    counts = []
    for _ in range(11):
        counts.append(await _rows_read(raw))
        await raw.execute("SELECT pg_sleep(0.1)")
    return counts[-1] if counts[0] == counts[-1] else None


async def _rows_read(raw: Any) -> int:
    """By all sessions, from tables and from indexes."""
    await raw.execute("SELECT pg_stat_force_next_flush()")
    await raw.execute("SELECT pg_stat_clear_snapshot()")
    read: int = await raw.fetchval(
        """
        SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = 'drumbeat')
             + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = 'drumbeat')
        """
    )
    return read
