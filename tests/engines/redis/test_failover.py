"""A node of a cluster dies for good, and its replica takes over."""

import asyncio

from drumbeat.core.job import JobState
from drumbeat.errors import StoreUnavailable
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from drumbeat.store.urls import open_store
from tests.contract.making import add, new_job
from tests.servers.redis import Cluster
from tests.waiting import until


async def test_the_replica_is_found_though_the_url_names_the_dead_one(kind: str) -> None:
    with Cluster(kind) as cluster:
        master = cluster.nodes[0]
        namespace = next(name for name in map("n{}".format, range(99)) if cluster.owner_of(f"{{{name}}}:") is master)
        with cluster.replica_of(master) as replica:
            async with await open_store(cluster.url, namespace=namespace) as store:
                [id] = await add(store, new_job())
                await until(lambda: replica.ask("DBSIZE") == master.ask("DBSIZE"), what="the copy to be whole")
                await asyncio.to_thread(master.kill)
                await until(lambda: can_add(store), deadline=30, what="the replica to take over")
                assert (await get_job(store, id)).state is JobState.PENDING


async def can_add(store: Store) -> bool:
    try:
        await store.jobs.add([new_job()])
    except StoreUnavailable:
        return False
    return True
