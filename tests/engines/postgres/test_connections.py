"""How many connections there are, what runs on them while nothing happens, and that an abandoned one is not used again."""

import asyncio
import os
import re
from typing import Any

import pytest

from drumbeat import Drumbeat
from drumbeat.core.job import NewJob
from drumbeat.core.job_query import JobFilter
from drumbeat.core.lock import NewTicket
from drumbeat.core.stats import Resolution
from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.postgres import PostgresStore, schema
from drumbeat.store.protocol.wake import Subscriber
from tests.contract.making import add, claim, claimed_one, new_job, worker
from tests.engines.postgres.conftest import address_of
from tests.servers.postgres import PostgresServer
from tests.waiting import until
from tests.worker.worker_harness import run_worker

OURS = "SELECT pid, query FROM pg_stat_activity WHERE application_name = 'drumbeat' AND datname = current_database()"


async def our_sessions(raw: Any) -> list[Any]:
    found: list[Any] = await raw.fetch(OURS)
    return found


async def test_a_program_that_only_enqueues_has_one_connection(postgres: PostgresStore, raw: Any) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(postgres.jobs.add([new_job()]))
    assert len(await our_sessions(raw)) == 1


async def test_a_working_store_has_two_whatever_it_does(postgres: PostgresStore, raw: Any) -> None:
    instance = await worker(postgres)
    async with postgres.wake.listen(Subscriber(lambda _: None)), asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(postgres.jobs.add([new_job()]))
            group.create_task(claim(postgres, instance))
            group.create_task(postgres.inspect.list_instances())
            group.create_task(postgres.instances.heartbeat(instance, 0))
    assert len(await our_sessions(raw)) == 2


async def test_a_slow_list_does_not_delay_other_calls(postgres: PostgresStore, raw: Any) -> None:
    reads = (
        postgres.inspect.list_queues,
        lambda: postgres.stats.read(Resolution.MINUTE, 0, 1),
        postgres.inspect.list_tasks,
    )
    async with raw.transaction():
        await raw.execute("LOCK TABLE drumbeat.queue, drumbeat.rollup, drumbeat.attempt, drumbeat.history")
        hanging = [asyncio.Task(read()) for read in reads]
        await until(lambda: is_waiting(raw), what="a read to wait for the lock")
        async with asyncio.timeout(4):
            instance = await worker(postgres)
            await postgres.instances.heartbeat(instance, 0)
            assert (await postgres.locks.acquire(NewTicket(id="1", lock="a", lease=1_000_000))).state == "granted"
        assert len(await our_sessions(raw)) == 2
    for each in hanging:
        await each


async def test_a_store_that_only_beats_has_one(postgres: PostgresStore, raw: Any) -> None:
    instance = await worker(postgres)
    await postgres.instances.heartbeat(instance, 0)
    await postgres.instances.deregister(instance, "bye")
    assert len(await our_sessions(raw)) == 1


async def test_a_worker_with_jobs_locks_and_rooms_has_three(url: str, raw: Any) -> None:
    app = Drumbeat(url)
    notified, let_go = asyncio.Event(), asyncio.Event()
    inside = asyncio.Semaphore(0)

    @app.task
    async def sweep(number: int) -> None:
        async with app.lock("sweep"):
            inside.release()
            await let_go.wait()

    @app.room
    async def news() -> None:
        notified.set()

    async with app, run_worker(app):
        await app.enqueue_many(sweep.bind(number) for number in range(5))
        async with asyncio.timeout(20):
            await inside.acquire()
            await until(lambda: news.broadcast(), what="a member of the room")
            await notified.wait()

            async def are_waiting() -> bool:
                return (await app.locks.show("sweep")).waiting == 4

            await until(are_waiting)
            assert len(await our_sessions(raw)) == 3
            let_go.set()
            for _ in range(4):  # handed over, four times
                await inside.acquire()
        assert len(await our_sessions(raw)) == 3


async def test_a_poll_and_a_beat_are_one_statement_each() -> None:
    """An idle worker: at most two statements a second. The server itself writes them down."""
    with PostgresServer(settings={"log_statement": "all"}, in_memory=True) as server:
        await schema.migrate(address_of(server.url), "drumbeat")
        async with await PostgresStore.open(address_of(server.url)) as store:
            instance = await worker(store)
            await claim(store, instance)
            await store.instances.heartbeat(instance, 0)  # the driver asks once for the types that it does not know
            before = count_executed(server)
            await claim(store, instance)
            await store.instances.heartbeat(instance, 0)
            assert count_executed(server) - before == 2


def count_executed(server: PostgresServer) -> int:
    return len(re.findall(r"LOG:  (?:execute|statement)", server.log))


async def test_an_abandoned_call_leaves_no_connection_behind(postgres: PostgresStore, raw: Any) -> None:
    instance = await worker(postgres)
    job = await claimed_one(postgres, instance)
    async with raw.transaction():
        await raw.fetch("SELECT id FROM drumbeat.job FOR UPDATE")
        hanging = asyncio.Task(postgres.jobs.cancel([job.id]))
        await until(lambda: is_waiting(raw), what="the call to wait for the lock")
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        await until(lambda: is_gone(raw), what="the end of the abandoned connection")
    assert await postgres.jobs.cancel([job.id]) == ["requested"]


async def is_waiting(raw: Any) -> bool:
    return bool(await raw.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))


async def is_gone(raw: Any) -> bool:
    return not await is_waiting(raw)


async def test_a_call_that_waits_too_long_for_a_lock_is_given_up(postgres: PostgresStore, raw: Any) -> None:
    instance = await worker(postgres)
    job = await claimed_one(postgres, instance)
    async with raw.transaction():
        await raw.fetch("SELECT id FROM drumbeat.job FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            await postgres.jobs.cancel([job.id])
    assert await postgres.jobs.cancel([job.id]) == ["requested"]


async def test_a_claim_does_not_wait_for_locked_rows(postgres: PostgresStore, raw: Any) -> None:
    instance = await worker(postgres)
    first, second = await add(postgres, new_job(), new_job())
    async with raw.transaction():
        await raw.fetch("SELECT id FROM drumbeat.job WHERE id = $1::text::uuid FOR UPDATE", first)
        assert [job.id for job in await claim(postgres, instance)] == [second]
    assert [job.id for job in await claim(postgres, instance)] == [first]


async def test_a_value_that_cannot_be_stored_refuses_its_own_call_only(postgres: PostgresStore) -> None:
    good, bad = new_job(), new_job(args='{"nul":"\0"}')
    calls: list[tuple[NewJob, asyncio.Task[Any]]] = []
    async with asyncio.TaskGroup() as group:
        calls += [(job, group.create_task(try_add(postgres, job))) for job in (new_job(), bad, good)]
    assert [type(call.result()) for _, call in calls] == [list, StoreError, list]
    assert {job.id for job in await find_jobs(postgres, JobFilter())} == {calls[0][0].id, good.id}


async def try_add(store: PostgresStore, job: NewJob) -> Any:
    try:
        return await store.jobs.add([job])
    except StoreError as error:
        return error


async def test_a_forked_child_is_told_to_open_its_own(postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(StoreError, match="forked"):
        await postgres.inspect.now()


async def test_serialization_by_default_does_not_change_what_we_do(url: str, raw: Any) -> None:
    name = url.rpartition("/")[2]
    await raw.execute(f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = 'serializable'")
    await raw.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    async with await PostgresStore.open(address_of(url)) as store:
        settings = await store._parts.connection.call(
            lambda session: session.fetchrow(
                "SELECT current_setting('transaction_isolation'), current_setting('synchronous_commit')"
            )
        )
        assert tuple(settings) == ("read committed", "on")


async def test_a_stopped_process_does_not_keep_the_locks_of_its_transaction(postgres: PostgresStore, raw: Any) -> None:
    job = await claimed_one(postgres, await worker(postgres))

    gate = asyncio.Event()

    async def stand_still(session: Any) -> None:
        await session.execute("SELECT id FROM drumbeat.job FOR UPDATE")
        await gate.wait()

    async def stopped() -> None:
        with pytest.raises(StoreUnavailable):
            await postgres._parts.claim_connection.transact(stand_still)

    async with asyncio.TaskGroup() as group:
        group.create_task(stopped())
        await until(lambda: raw.fetchval("SELECT count(*) FROM pg_locks WHERE mode = 'RowShareLock'"), what="the lock")
        await raw.execute("UPDATE drumbeat.job SET priority = 1 WHERE id = $1", job.id)
        gate.set()
