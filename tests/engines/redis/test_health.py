"""What a person is told of a server: what it may throw away, what a crash takes, how full it is."""

import re
import subprocess

from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.store.redis import RedisStore
from drumbeat.store.urls import open_store
from tests.engines.redis.conftest import address_of
from tests.servers.redis import Cluster, RedisServer, binary
from tests.waiting import until


async def facts_of(server: RedisServer, options: str = "") -> dict[str, HealthCheck]:
    async with await RedisStore.open(address_of(server.url + options)) as store:
        return {each.name: each for each in await store.inspect.check_health()}


async def test_a_server_that_throws_keys_away_is_bad(kind: str) -> None:
    with RedisServer(kind, {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as server:
        found = await facts_of(server, "?eviction=accepted")
    assert (found["eviction"].level, found["eviction"].value) == (HealthLevel.BAD, "allkeys-lru")
    assert found["size"].value.endswith("of 100 MiB")


async def test_what_a_crash_would_take_is_told(own_server: RedisServer) -> None:
    found = await facts_of(own_server)
    assert (found["durability"].level, found["last save"].level) == (HealthLevel.OK, HealthLevel.OK)
    assert "survive a crash" in found["durability"].value
    own_server.ask("CONFIG", "SET", "appendonly", "no")
    found = await facts_of(own_server)
    assert found["durability"].level is HealthLevel.WARN
    assert "AOF" in found["durability"].advice


async def test_a_server_that_is_nearly_full_is_a_warning(kind: str) -> None:
    with RedisServer(kind) as server:
        server.ask("SET", "padding", b"x" * 20_000_000)
        used = server.ask("INFO", "memory")["used_memory"]
        server.ask("CONFIG", "SET", "maxmemory", used + used // 20)
        found = (await facts_of(server))["size"]
    assert found.level is HealthLevel.WARN
    assert "refuses new jobs" in found.advice


async def test_the_engine_is_called_by_its_own_name(kind: str, server: RedisServer) -> None:
    said = subprocess.run([binary(kind), "--version"], capture_output=True, text=True, check=True).stdout
    name = re.match(r"(\w+) server v=([\d.]+)", said)  # the machine's own may be of any version, and of either name
    assert name is not None
    assert (await facts_of(server))["engine"].value.startswith(f"{name[1]} {name[2]}")


async def test_a_server_alone_has_nothing_behind_it_to_be_told(own_server: RedisServer) -> None:
    found = (await facts_of(own_server))["mode"]
    assert (found.level, found.value) == (HealthLevel.OK, "standalone, 0 replicas")


async def test_what_a_failover_would_lose_is_told_of_a_server_with_replicas(kind: str) -> None:
    with RedisServer(kind) as server, RedisServer(kind) as replica:
        replica.ask("REPLICAOF", "127.0.0.1", server.port)
        await until(lambda: server.ask("INFO", "replication")["connected_slaves"] == 1, what="the replica")
        found = (await facts_of(server))["mode"]
    assert (found.level, found.value) == (HealthLevel.NOTE, "standalone, 1 replicas")
    assert "loses jobs that were acknowledged" in found.advice and "\n" not in found.advice


async def test_what_a_cluster_cannot_do_is_told(kind: str) -> None:
    with Cluster(kind) as cluster:
        async with await open_store(cluster.url) as store:
            found = next(each for each in await store.inspect.check_health() if each.name == "mode")
    assert (found.level, found.value) == (HealthLevel.NOTE, "cluster, 0 replicas")
    assert "the node of the URL must live" in found.advice and "subscription" in found.advice
