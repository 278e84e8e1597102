"""The server goes away and comes back: calls end soon, nothing accepted is lost, and the store needs no help to go on."""

import asyncio
from typing import Any

import pytest

from drumbeat.core.job import OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import StoreUnavailable
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Subscriber
from tests.contract.making import add, claim, end, exchange, ids, new_job, outcome, release, wanting, worker
from tests.engines.redis.conftest import open_redis
from tests.servers.redis import RedisServer
from tests.waiting import all_unavailable, until, within

SOON = 5.0


async def answered(call: Any) -> Any:
    """Try until the store answers, at most five seconds."""

    async def tried() -> Any:
        try:
            return [await call()]
        except StoreUnavailable:
            return None

    with within(SOON):
        return (await until(tried, deadline=4 * SOON, what="an answer after the outage"))[0]


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_work_goes_on_after_a_restart_and_nothing_is_lost(own_server: RedisServer, how: str) -> None:
    async with await open_redis(own_server) as store:
        instance = await worker(store)
        added = await add(store, *(new_job() for _ in range(20)))
        held = await claim(store, instance, limit=5)
        getattr(own_server, how)()
        for call in (
            lambda: store.jobs.add([new_job()]),
            lambda: store.jobs.report_and_claim(instance, [], wanting()),
            lambda: store.instances.heartbeat(instance, 0),
        ):
            with within(SOON), pytest.raises(StoreUnavailable):
                await call()
        own_server.start()
        verdict = await answered(lambda: end(store, instance, held[0], OutcomeKind.SUCCEEDED))
        assert verdict == "applied"
        assert (await answered(lambda: store.instances.heartbeat(instance, 0))).alive
        rest = await answered(lambda: claim(store, instance))
        assert sorted(job.id for job in [*held, *rest]) == sorted(added)


async def test_a_killed_client_costs_nothing_but_a_new_connection(own_server: RedisServer) -> None:
    async with await open_redis(own_server) as store:
        instance = await worker(store)
        [id] = await add(store, new_job())
        await claim(store, instance, "empty")
        own_server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        jobs = await answered(lambda: claim(store, instance))
        assert ids(jobs) == [id]
        assert (await answered(lambda: get_job(store, id))).state == "running"


async def test_an_outcome_whose_answer_was_lost_is_a_duplicate_when_repeated(own_server: RedisServer) -> None:
    async with await open_redis(own_server) as store:
        instance = await worker(store)
        await add(store, *(new_job() for _ in range(3)))
        outcomes = [outcome(job, OutcomeKind.SUCCEEDED) for job in await claim(store, instance)]
        await exchange(store, instance, outcomes)
        own_server.kill()
        own_server.start()
        again = await answered(lambda: exchange(store, instance, outcomes))
        assert again.statuses == ["duplicate"] * 3
        assert len(await answered(lambda: find_jobs(store, JobFilter()))) == 3


async def test_a_server_that_hangs_is_given_up_in_time_and_found_again(own_server: RedisServer) -> None:
    async with await open_redis(own_server) as store:
        instance = await worker(store)
        await add(store, new_job())
        await claim(store, instance, "empty")
        own_server.pause()
        try:
            with within(SOON):
                await all_unavailable(store.jobs.add([new_job()]), claim(store, instance))
        finally:
            own_server.go_on()
        await answered(lambda: store.jobs.add([new_job()]))
        assert await answered(lambda: store.inspect.now())


async def test_clients_that_the_server_holds_up_are_given_up_in_time_as_well(own_server: RedisServer) -> None:
    async with await open_redis(own_server) as store:
        own_server.ask("CLIENT", "PAUSE", 6000, "ALL")
        with within(SOON), pytest.raises(StoreUnavailable, match="no answer in time"):
            await store.jobs.add([new_job()])
        assert await answered(lambda: store.jobs.add([new_job()]))


async def test_whoever_listens_hears_again_after_a_restart(own_server: RedisServer) -> None:
    heard: list[int] = []
    async with await open_redis(own_server) as listener, await open_redis(own_server) as store:
        async with listener.wake.listen(Subscriber(heard.append)):
            own_server.kill()
            own_server.start()
            await until(lambda: 0 in heard, what="the look that makes up for what was not heard")
            heard.clear()
            await answered(lambda: store.jobs.add([new_job()]))
            await until(lambda: heard, what="a hint of the new job")


async def test_who_begins_to_listen_while_the_server_is_away_hears_later(own_server: RedisServer) -> None:
    heard: list[int] = []
    async with await open_redis(own_server) as listener, await open_redis(own_server) as store:
        own_server.kill()
        async with listener.wake.listen(Subscriber(heard.append)):
            own_server.start()
            await until(lambda: 0 in heard, what="the first look")
            heard.clear()
            await answered(lambda: store.jobs.add([new_job()]))
            await until(lambda: heard, what="a hint of the new job")


async def test_a_listener_whose_connection_is_killed_hears_again(own_server: RedisServer) -> None:
    heard: list[int] = []
    async with await open_redis(own_server) as store, store.wake.listen(Subscriber(heard.append)):
        own_server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        await until(lambda: 0 in heard, what="the look that makes up for what was not heard")
        heard.clear()
        await add(store, new_job())
        await until(lambda: heard, what="a hint of the new job")


async def test_crashes_under_load_neither_lose_nor_double_a_job(own_server: RedisServer) -> None:
    """Producers, a worker that believes only answers, and a server that crashes three times meanwhile."""
    async with await open_redis(own_server) as store, await open_redis(own_server) as other:
        accepted: list[str] = []
        finished: list[str] = []
        is_over, all_are_in = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(produce(store, accepted, is_over, all_are_in))
            group.create_task(work(other, accepted, finished, all_are_in))
            for crash in range(3):
                await until(lambda wanted=200 * (crash + 1): len(finished) > wanted, deadline=60, what="progress")
                await asyncio.to_thread(own_server.kill)
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
            answers = await answered(lambda jobs=jobs: store.jobs.add(jobs))
        accepted += [answer.id for answer in answers]
    all_are_in.set()


async def work(store: Store, accepted: list[str], finished: list[str], all_are_in: asyncio.Event) -> None:
    instance = await worker(store)
    outcomes: list[Any] = []
    # Not before the last answer of the producer: what it has just stored may be finished before it is accepted.
    while not (all_are_in.is_set() and len(finished) >= len(accepted) and not outcomes):
        try:
            answer = await exchange(store, instance, outcomes, wanting(limit=50))
        except StoreUnavailable:
            # Its claims may have been made all the same: what runs under us and is not in our hands is given back.
            lost = await answered(lambda: store.jobs.list_running(instance))
            mine = {each.id for each in outcomes}
            await answered(
                lambda lost=lost, mine=mine: release(store, instance, *(h for h in lost if h.id not in mine))
            )
            continue
        finished += [each.id for each, verdict in zip(outcomes, answer.statuses, strict=True) if verdict != "stale"]
        outcomes = [outcome(job, OutcomeKind.SUCCEEDED) for job in answer.jobs]
