"""A server at its maxmemory takes no more jobs, and what makes room goes on: claims, outcomes, beats, burials, pruning."""

from collections.abc import Iterator

import pytest

from drumbeat.admin import new_act
from drumbeat.core.job import OutcomeKind, Unique
from drumbeat.core.job_query import JobFilter
from drumbeat.core.schedule import OnceState
from drumbeat.errors import JobExpired, StoreFull
from drumbeat.ids import new_instance_id
from drumbeat.store.job_reads import find_jobs, get_job
from tests.contract.making import HOUR, add, claim, end, hold, ids, new_instance, new_job, release, worker
from tests.engines.redis.conftest import open_redis
from tests.servers.redis import RedisServer


@pytest.fixture
def server(kind: str) -> Iterator[RedisServer]:
    with RedisServer(kind) as server:
        yield server


def fill(server: RedisServer) -> None:
    server.ask("CONFIG", "SET", "maxmemory", "1mb")
    assert server.ask("INFO", "memory")["used_memory"] > 1_048_576 or pytest.fail("the server is not full")


def pad(server: RedisServer) -> None:
    server.ask("SET", "padding", b"x" * 2_000_000)


async def test_enqueue_is_refused_and_stores_nothing(server: RedisServer) -> None:
    pad(server)
    async with await open_redis(server) as store:
        [kept] = await add(store, new_job())
        fill(server)
        with pytest.raises(StoreFull, match="maxmemory"):
            await store.jobs.add([new_job(), new_job()])
        assert ids(await find_jobs(store, JobFilter())) == [kept]
        server.ask("CONFIG", "SET", "maxmemory", "0")
        assert (await store.jobs.add([new_job()]))[0].created


@pytest.mark.parametrize(
    "kind_of_end",
    [OutcomeKind.SUCCEEDED, OutcomeKind.RETRY, OutcomeKind.DEAD, OutcomeKind.RELEASED, OutcomeKind.BLOCKED],
)
async def test_claims_and_outcomes_go_on(server: RedisServer, kind_of_end: OutcomeKind) -> None:
    pad(server)
    async with await open_redis(server) as store:
        instance = await worker(store)
        added = await add(store, *(new_job() for _ in range(3)))
        fill(server)
        jobs = await claim(store, instance)
        assert sorted(ids(jobs)) == sorted(added)
        options = {"blocked_on": "task:x"} if kind_of_end is OutcomeKind.BLOCKED else {}
        for job in jobs:
            assert await end(store, instance, job, kind_of_end, **options) == "applied"
        assert await store.jobs.list_running(instance) == []


async def test_hearts_beat_and_the_dead_are_buried(server: RedisServer) -> None:
    pad(server)
    async with await open_redis(server) as store:
        dead, gone = await worker(store), await worker(store)
        added = await add(store, *(new_job() for _ in range(2)))
        fill(server)
        await claim(store, dead, limit=1)
        await claim(store, gone, limit=1)
        assert (await store.instances.heartbeat(dead, 1)).beat == 1
        assert (await store.instances.declare_dead(dead, beat=1, started=None, reason="killed")).crash_suspect == 1
        await store.instances.deregister(gone, "bye")
        late = new_instance(new_instance_id())
        await store.instances.register(late)
        assert sorted(ids(await claim(store, late.id))) == sorted(added)


async def test_a_worker_can_start_release_what_it_did_not_begin_and_resume_a_queue(server: RedisServer) -> None:
    pad(server)
    async with await open_redis(server) as store:
        [added] = await add(store, new_job())
        await store.jobs.pause_queue("default", by="ada", reason="a test")
        fill(server)
        late = new_instance(new_instance_id())
        await store.instances.register(late)
        assert await store.schedules.claim_once("app:1:prepare", late.id) is OnceState.YOURS
        assert await store.schedules.complete_once("app:1:prepare", late.id)
        assert await store.jobs.resume_queue("default")
        [job] = await claim(store, late.id)
        assert job.id == added
        assert await release(store, late.id, hold(job)) == 1
        assert ids(await claim(store, late.id)) == [added]


async def test_history_is_pruned_and_jobs_are_cancelled(server: RedisServer) -> None:
    pad(server)
    async with await open_redis(server) as store:
        instance = await worker(store)
        await add(store, *(new_job() for _ in range(3)))
        for job in await claim(store, instance):
            await end(store, instance, job, OutcomeKind.SUCCEEDED)
        [pending] = await add(store, new_job())
        fill(server)
        assert await store.jobs.prune(await store.inspect.now() + HOUR, 100) == 3
        assert await store.jobs.cancel([pending]) == ["cancelled"]


async def test_a_running_job_can_be_cancelled_and_its_progress_is_let_go(server: RedisServer) -> None:
    pad(server)
    async with await open_redis(server) as store:
        instance = await worker(store)
        await add(store, new_job())
        [job] = await claim(store, instance)
        fill(server)
        await store.jobs.save_progress(instance, [(hold(job), '"half"')])
        assert await store.jobs.cancel([job.id]) == ["requested"]
        assert (await store.instances.heartbeat(instance, 1)).cancel_requests == [hold(job)]
        assert (await get_job(store, job.id)).progress is None


async def test_what_ends_leaves_no_history_and_whoever_asks_is_told_that_it_expired(server: RedisServer) -> None:
    pad(server)
    async with await open_redis(server) as store:
        instance = await worker(store)
        await add(store, new_job(key="k", unique=Unique.LIVE))
        [job] = await claim(store, instance)
        fill(server)
        assert await end(store, instance, job, OutcomeKind.SUCCEEDED) == "applied"
        with pytest.raises(JobExpired):
            await store.jobs.get_results([job.id])
        assert await find_jobs(store, JobFilter()) == []
        assert [(each.pending, each.running, each.succeeded) for each in await store.inspect.list_tasks()] == [
            (0, 0, 0)
        ]
        server.ask("CONFIG", "SET", "maxmemory", "0")
        assert (await store.jobs.add([new_job(key="k", unique=Unique.LIVE)]))[0].created


async def test_what_somebody_does_to_make_room_is_put_on_record(server: RedisServer) -> None:
    pad(server)
    async with await open_redis(server) as store:
        fill(server)
        act = new_act(who="ada", verb="dead.discard", target="all")
        assert await store.audit.begin(act) is None
        await store.audit.end(act.id, touched=3, outcome="done", answer="{}")
        [found] = await store.audit.list_page()
        assert (found.id, found.touched) == (act.id, 3)
        assert await store.audit.prune(await store.inspect.now() + HOUR, 10) == 1
