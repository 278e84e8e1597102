"""The server goes away and comes back: calls end soon, nothing accepted is lost, and the store needs no help to go on."""

import asyncio
import signal
from typing import Any

import pytest

from drumbeat.core.job import OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.core.room import RoomMessage
from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.ids import new_instance_id
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.postgres import PostgresStore, schema
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Subscriber
from tests.contract.making import add, claim, end, exchange, new_job, outcome, release, wanting, worker
from tests.engines.postgres.conftest import address_of
from tests.servers.postgres import PostgresServer
from tests.waiting import all_unavailable, until, within

CALL_LIMIT_S = 5.0


async def open_migrated(server: PostgresServer) -> PostgresStore:
    await schema.migrate(address_of(server.url), "drumbeat")
    return await PostgresStore.open(address_of(server.url))


async def retry_until_answered(call: Any) -> Any:
    """Try until the store answers, at most five seconds."""

    async def tried() -> Any:
        try:
            return [await call()]
        except StoreUnavailable:
            return None

    with within(CALL_LIMIT_S):
        return (await until(tried, deadline=4 * CALL_LIMIT_S, what="an answer after the outage"))[0]


@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_work_goes_on_after_a_restart_and_nothing_is_lost(own_server: PostgresServer, how: str) -> None:
    async with await open_migrated(own_server) as store:
        instance = await worker(store)
        added = await add(store, *(new_job() for _ in range(20)))
        held = await claim(store, instance, limit=5)
        own_server.stop(how)
        for call in (
            lambda: store.jobs.add([new_job()]),
            lambda: store.jobs.report_and_claim(instance, [], wanting()),
            lambda: store.instances.heartbeat(instance, 0),
        ):
            with within(CALL_LIMIT_S), pytest.raises(StoreUnavailable):
                await call()
        own_server.start()
        status = await retry_until_answered(lambda: end(store, instance, held[0], OutcomeKind.SUCCEEDED))
        assert status == "applied"
        assert (await retry_until_answered(lambda: store.instances.heartbeat(instance, 0))).alive
        rest = await retry_until_answered(lambda: claim(store, instance))
        assert sorted(job.id for job in [*held, *rest]) == sorted(added)


async def test_a_claim_survives_a_crash_of_the_server(own_server: PostgresServer) -> None:
    """Its worker lives on: a claim that was lost would have the job run twice at once."""
    async with await open_migrated(own_server) as store:
        instance = await worker(store)
        await own_server.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        await own_server.execute("SELECT pg_reload_conf()")
        await add(store, new_job())
        [held] = await claim(store, instance)
        own_server.stop("immediate")
        own_server.start()
        assert await retry_until_answered(lambda: claim(store, instance)) == []
        assert await end(store, instance, held, OutcomeKind.SUCCEEDED) == "applied"


async def test_a_killed_backend_costs_one_call(own_server: PostgresServer) -> None:
    async with await open_migrated(own_server) as store:
        instance = await worker(store)
        [id] = await add(store, new_job())
        await claim(store, instance, "empty")
        await own_server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'drumbeat'"
        )
        jobs = await retry_until_answered(lambda: claim(store, instance))
        assert [job.id for job in jobs] == [id]
        assert (await retry_until_answered(lambda: get_job(store, id))).state == "running"


async def test_an_outcome_whose_answer_was_lost_is_a_duplicate_when_repeated(own_server: PostgresServer) -> None:
    async with await open_migrated(own_server) as store:
        instance = await worker(store)
        await add(store, *(new_job() for _ in range(3)))
        outcomes = [outcome(job, OutcomeKind.SUCCEEDED) for job in await claim(store, instance)]
        await exchange(store, instance, outcomes)
        own_server.stop("immediate")
        own_server.start()
        again = await retry_until_answered(lambda: exchange(store, instance, outcomes))
        assert again.statuses == ["duplicate"] * 3
        assert len(await retry_until_answered(lambda: find_jobs(store, JobFilter()))) == 3


async def test_a_server_that_hangs_is_given_up_in_time_and_found_again(own_server: PostgresServer) -> None:
    async with await open_migrated(own_server) as store:
        instance = await worker(store)
        await add(store, new_job())
        await claim(store, instance, "empty")
        own_server.signal_all(signal.SIGSTOP)
        try:
            with within(CALL_LIMIT_S):
                await all_unavailable(store.jobs.add([new_job()]), claim(store, instance))
        finally:
            own_server.signal_all(signal.SIGCONT)
        await retry_until_answered(lambda: store.jobs.add([new_job()]))
        assert await retry_until_answered(lambda: store.inspect.now())


async def test_whoever_listens_hears_again_after_a_restart(own_server: PostgresServer) -> None:
    hints: list[int] = []
    async with (
        await open_migrated(own_server) as listener,
        await PostgresStore.open(address_of(own_server.url)) as store,
    ):
        async with listener.wake.listen(Subscriber(hints.append)):
            own_server.stop("immediate")
            own_server.start()
            await until(lambda: 0 in hints, what="the check after a gap")
            hints.clear()
            await retry_until_answered(lambda: store.jobs.add([new_job()]))
            await until(lambda: hints, what="a hint of the new job")


async def test_all_subscribers_of_one_connection_get_hints_again_after_a_restart(own_server: PostgresServer) -> None:
    jobs: list[int] = []
    rooms: list[str] = []
    async with (
        await open_migrated(own_server) as listener,
        await PostgresStore.open(address_of(own_server.url)) as store,
    ):
        async with (
            listener.wake.listen(Subscriber(jobs.append)),
            listener.wake.listen(Subscriber(on_room=rooms.append)),
        ):
            own_server.stop("immediate")
            own_server.start()
            await until(lambda: 0 in jobs and "" in rooms, what="the checks after a gap")
            rooms.clear()
            me = new_instance_id()
            sent = RoomMessage(id="1", room="x", to=me, args="{}", signature="s")
            await retry_until_answered(lambda: store.rooms.send([sent]))
            await until(lambda: me in rooms, what="a hint of the message")


async def test_who_begins_to_listen_while_the_server_is_away_hears_later(own_server: PostgresServer) -> None:
    hints: list[int] = []
    async with (
        await open_migrated(own_server) as listener,
        await PostgresStore.open(address_of(own_server.url)) as store,
    ):
        own_server.stop("immediate")
        async with listener.wake.listen(Subscriber(hints.append)):
            own_server.start()
            await until(lambda: 0 in hints, what="the first check")
            hints.clear()
            await retry_until_answered(lambda: store.jobs.add([new_job()]))
            await until(lambda: hints, what="a hint of the new job")


async def test_restarts_under_load_neither_lose_nor_double_a_job(own_server: PostgresServer) -> None:
    """Producers, a worker that believes only answers, and a server that crashes three times meanwhile."""
    async with await open_migrated(own_server) as store, await PostgresStore.open(address_of(own_server.url)) as other:
        accepted: list[str] = []
        finished: list[str] = []
        is_over, all_are_in = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(produce(store, accepted, is_over, all_are_in))
            group.create_task(work(other, accepted, finished, all_are_in))
            for crash in range(3):
                await until(lambda wanted=200 * (crash + 1): len(finished) > wanted, deadline=60, what="progress")
                await asyncio.to_thread(own_server.stop, "immediate")
                await asyncio.to_thread(own_server.start)
            is_over.set()
        assert len(finished) == len(set(finished))
        assert set(accepted) <= set(finished)


async def produce(store: Store, accepted: list[str], is_over: asyncio.Event, all_are_in: asyncio.Event) -> None:
    while not is_over.is_set():
        jobs = [new_job() for _ in range(20)]
        try:
            answers = await store.jobs.add(jobs)
        except StoreUnavailable:
            # Unknown: the same jobs again, as a client would.
            answers = await retry_until_answered(lambda jobs=jobs: store.jobs.add(jobs))
        accepted += [answer.id for answer in answers]
    all_are_in.set()


async def work(store: Store, accepted: list[str], finished: list[str], all_are_in: asyncio.Event) -> None:
    instance = await worker(store)
    outcomes: list[Any] = []
    # Not before the last answer of the producer: what it has just stored may be finished before it is accepted.
    while not (all_are_in.is_set() and len(finished) >= len(accepted) and not outcomes):
        try:
            answer = await exchange(store, instance, outcomes, wanting(limit=50))
        except StoreError:
            # Its claims may have been made all the same: what runs under us and is not in our hands is given back.
            lost = await retry_until_answered(lambda: store.jobs.list_running(instance))
            mine = {each.id for each in outcomes}
            await retry_until_answered(
                lambda lost=lost, mine=mine: release(store, instance, *(h for h in lost if h.id not in mine))
            )
            continue
        finished += [each.id for each, status in zip(outcomes, answer.statuses, strict=True) if status != "stale"]
        outcomes = [outcome(job, OutcomeKind.SUCCEEDED) for job in answer.jobs]
