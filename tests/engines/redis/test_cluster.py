"""Three nodes share the slots: all keys of a namespace are on one of them, and the store finds it wherever it asks first."""

from collections.abc import Iterator

import pytest

from drumbeat import Drumbeat
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import ConfigError, StoreUnavailable
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol.wake import Subscriber
from drumbeat.store.urls import open_store
from tests.contract.making import add, claim, claimed_one, end, hold, ids, new_job, worker
from tests.engines.redis.conftest import KINDS
from tests.engines.redis.test_failover import can_add
from tests.servers.redis import Cluster, RedisServer
from tests.waiting import until
from tests.worker.worker_harness import run_worker

# One on each node.
NAMESPACES = ["drumbeat", "jobs", "other", "shop", "mail", "work"]


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(request.param) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def empty(cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.ask("FLUSHALL")


@pytest.mark.parametrize("namespace", NAMESPACES)
async def test_a_life_of_a_job_in_any_namespace(cluster: Cluster, namespace: str) -> None:
    async with await open_store(cluster.url, namespace=namespace) as store:
        instance = await worker(store)
        [first, second, unwanted] = await add(store, *(new_job(key="k") for _ in range(3)))
        assert await store.jobs.cancel([unwanted]) == ["cancelled"]
        jobs = await claim(store, instance)
        assert ids(jobs) == [first, second]
        assert await end(store, instance, jobs[0], OutcomeKind.SUCCEEDED) == "applied"
        assert await end(store, instance, jobs[1], OutcomeKind.DEAD) == "applied"
        assert {job.state for job in await find_jobs(store, JobFilter())} == {"succeeded", "dead", "cancelled"}
        assert (await store.instances.heartbeat(instance, 0)).alive


def test_the_namespaces_of_these_tests_are_on_all_nodes(cluster: Cluster) -> None:
    assert {cluster.owner_of(f"{{{name}}}:").port for name in NAMESPACES} == {node.port for node in cluster.nodes}


async def test_all_keys_are_on_one_node(cluster: Cluster) -> None:
    async with await open_store(cluster.url) as store:
        instance = await worker(store)
        await claimed_one(store, instance, key="k")
        sizes = {node.port: node.ask("DBSIZE") for node in cluster.nodes}
    owner = cluster.owner_of("{drumbeat}:").port
    assert sizes.pop(owner) > 0
    assert set(sizes.values()) == {0}


async def test_a_burial_frees_the_jobs_of_the_dead(cluster: Cluster) -> None:
    async with await open_store(cluster.url) as store:
        dead, other = await worker(store), await worker(store)
        job = await claimed_one(store, dead)
        assert (
            await store.instances.declare_dead(dead, beat=0, started=[hold(job)], reason="killed")
        ).crash_suspect == 1
        assert ids(await claim(store, other)) == [job.id]
        assert (await get_job(store, job.id)).state is JobState.RUNNING


async def test_hints_come_from_any_node_to_any_other(cluster: Cluster) -> None:
    heard: list[int] = []
    async with await open_store(cluster.url) as listener, await open_store(cluster.url) as store:
        async with listener.wake.listen(Subscriber(heard.append)):
            await add(store, new_job())
            await until(lambda: heard, what="a hint")


async def test_a_worker_works_on_a_cluster(cluster: Cluster) -> None:
    app = Drumbeat(cluster.url, namespace="shop")

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async with app, run_worker(app):
        handles = await app.enqueue_many([double.bind(number) for number in range(50)])
        assert [await handle.result(timeout=10) for handle in handles] == [2 * number for number in range(50)]


async def test_a_slot_that_moves_to_another_node_is_followed(cluster: Cluster) -> None:
    """An empty one: what is moved with its keys is the business of the server's tools."""
    namespace = "moving"
    key = f"{{{namespace}}}:"
    slot = cluster.nodes[0].ask("CLUSTER", "KEYSLOT", key)
    owner = cluster.owner_of(key)
    target = next(node for node in cluster.nodes if node is not owner)
    async with await open_store(cluster.url, namespace=namespace) as store:
        await add(store, new_job())
        owner.ask("FLUSHALL")
        cluster.move(slot, owner, target)
        try:
            assert (await store.jobs.add([new_job()]))[0].created
            assert target.ask("DBSIZE") > 0 and owner.ask("DBSIZE") == 0
        finally:
            target.ask("FLUSHALL")
            cluster.move(slot, target, owner)


async def test_on_half_of_the_keys_of_a_slot_that_is_being_moved_nothing_runs(cluster: Cluster) -> None:
    slot, owner = cluster.nodes[0].ask("CLUSTER", "KEYSLOT", "{mail}:"), cluster.owner_of("{mail}:")
    target = next(node for node in cluster.nodes if node is not owner)
    async with await open_store(cluster.url, namespace="mail") as store:
        instance = await worker(store)
        [id] = await add(store, new_job())
        target.ask("CLUSTER SETSLOT", slot, "IMPORTING", owner.ask("CLUSTER MYID").decode())
        owner.ask("CLUSTER SETSLOT", slot, "MIGRATING", target.ask("CLUSTER MYID").decode())
        try:
            with pytest.raises(StoreUnavailable):
                await add(store, new_job())
            with pytest.raises(StoreUnavailable):
                await claim(store, instance)
        finally:
            for node in (target, owner):
                node.ask("CLUSTER SETSLOT", slot, "STABLE")
        assert target.ask("DBSIZE") == 0
        assert ids(await claim(store, instance)) == [id]


async def test_a_node_that_is_away_is_an_outage_for_its_namespaces_until_it_is_back(cluster: Cluster) -> None:
    owner = cluster.owner_of("{shop}:")
    async with await open_store(cluster.url, namespace="shop") as store:
        await add(store, new_job())
        owner.kill()
        with pytest.raises(StoreUnavailable):
            await store.jobs.add([new_job()])
        owner.start()
        await until(lambda: can_add(store), deadline=20, what="the node's return")


async def test_cluster_true_on_a_single_server_is_refused(cluster: Cluster) -> None:
    with RedisServer() as single:
        with pytest.raises(ConfigError, match="no node of a cluster"):
            await open_store(f"{single.url}?cluster=true")
