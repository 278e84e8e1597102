"""What keeps a program out is told in one line, without the password; while it runs the same is only an outage."""

import asyncio
import logging
import sys
from pathlib import Path

import pytest

from drumbeat.core.claim import ClaimResult
from drumbeat.core.job import OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import ConfigError, NotTransactional, SchemaOutOfDate, StoreUnavailable
from drumbeat.redaction import mask_url
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.protocol.wake import Subscriber
from drumbeat.store.redis import RedisStore, connection, schema
from drumbeat.store.urls import migration_script, open_store, parse, read_schema_version, transactional_for
from tests.contract.making import add, claimed_one, end, exchange, new_job, wanting, worker
from tests.engines.redis.conftest import address_of, open_redis
from tests.servers.ports import free_port
from tests.servers.redis import RedisServer
from tests.waiting import until, within

SECRET = "s3cret-of-tests"
PAGE = Path(__file__).parents[3] / "docs" / "redis.md"


async def refusal(url: str, kind: type[Exception] = ConfigError) -> str:
    with pytest.raises(kind) as caught:
        await RedisStore.open(address_of(url))
    said = str(caught.value)
    assert "\n" not in said
    assert SECRET not in said and "wrong-secret" not in said
    return said


async def test_a_wrong_password_and_none(kind: str) -> None:
    with RedisServer(kind, {"requirepass": SECRET}) as server:
        assert "no entrance" in await refusal(f"redis://:wrong-secret@127.0.0.1:{server.port}")
        assert "no entrance" in await refusal(f"redis://127.0.0.1:{server.port}")
        async with await open_redis(server) as store:
            assert store.url == f"redis://:•••@127.0.0.1:{server.port}/0"


async def test_a_user_without_rights(server: RedisServer, url: str) -> None:
    server.ask("ACL", "SETUSER", "guest", "on", f">{SECRET}", "+ping", "+select", "+client", "~*")
    assert "this user lacks a permission" in await refusal(url.replace("://", f"://guest:{SECRET}@"))


async def test_a_user_with_the_rights_of_the_page_can_work(
    kind: str, server: RedisServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    [line] = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("ACL SETUSER shop")]
    server.ask(*line.replace(">secret", f">{SECRET}").split())
    async with await open_store(url.replace("://", f"://shop:{SECRET}@")) as store:
        instance = await worker(store)
        given: list[ClaimResult] = []
        async with store.wake.listen(Subscriber(lambda _: None, lambda _, answer: given.append(answer))):
            assert (await exchange(store, instance, [], wanting())).parked_claim
            await add(store, new_job())
            await until(lambda: given, deadline=5, what="the job at the door")
            assert await end(store, instance, given[0].jobs[0], OutcomeKind.SUCCEEDED) == "applied"
            for end_of in (OutcomeKind.SUCCEEDED, OutcomeKind.RETRY, OutcomeKind.DEAD):
                job = await claimed_one(store, instance, key="k")
                assert await end(store, instance, job, end_of) == "applied"
        assert (await store.instances.heartbeat(instance, 0)).alive
        assert len(await find_jobs(store, JobFilter())) == 4
        assert len(await store.inspect.list_queues()) == 1
        await store.instances.deregister(instance, "bye")
    assert [record.persistence for record in caplog.records if hasattr(record, "persistence")] == [
        "no AOF; this user may not see whether there are snapshots: a crash of the server may lose all jobs"
    ]


async def test_a_database_that_does_not_exist(server: RedisServer) -> None:
    assert "there is no such database" in await refusal(server.url_of(256))


async def test_a_replica(kind: str, own_server: RedisServer) -> None:
    with RedisServer(kind, {"replicaof": f"127.0.0.1 {own_server.port}"}) as replica:
        assert "it is a replica" in await refusal(replica.url)


async def test_a_server_that_is_too_old(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MIN_VERSION", (99, 1))
    assert "Redis 99.1 or newer, or Valkey is needed" in await refusal(url)


async def test_nobody_at_that_port_is_told_at_once() -> None:
    with within(5.0):
        assert "127.0.0.1" in await refusal(f"redis://127.0.0.1:{free_port()}", StoreUnavailable)


async def test_a_server_that_throws_keys_away_is_refused_unless_somebody_accepts_it(kind: str) -> None:
    with RedisServer(kind, {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as server:
        assert "maxmemory-policy is allkeys-lru" in await refusal(server.url)
        async with await RedisStore.open(address_of(f"{server.url}?eviction=accepted")) as store:
            assert (await store.jobs.add([new_job()]))[0].created


async def test_a_store_of_a_newer_drumbeat(server: RedisServer, redis: RedisStore) -> None:
    await redis._pool.command("HSET", redis._pool.keys.meta, "version", 9, "oldest_code", 9)
    assert "newer than this Drumbeat" in await refusal(redis.url, SchemaOutOfDate)
    await redis._pool.command("HSET", redis._pool.keys.meta, "oldest_code", 1)
    async with await RedisStore.open(address_of(redis.url)):
        pass


async def test_a_neighbouring_version_is_seen_and_left_alone(redis: RedisStore) -> None:
    await redis._pool.command("HSET", redis._pool.keys.meta, "version", 2, "oldest_code", 1)
    there, known = await asyncio.to_thread(read_schema_version, redis.url)
    assert (there.version, there.oldest_code, known) == (2, 1, schema.LATEST_VERSION)


async def test_a_password_changed_while_running_is_an_outage(kind: str) -> None:
    with RedisServer(kind) as server:
        async with await open_redis(server) as store:
            server.ask("CONFIG", "SET", "requirepass", SECRET)
            client = f"redis://:{SECRET}@127.0.0.1:{server.port}"
            async with await RedisStore.open(address_of(client)) as other:
                await other._pool.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                for _ in range(2):
                    with pytest.raises(StoreUnavailable):
                        await store.jobs.add([new_job()])
                await other._pool.command("CONFIG", "SET", "requirepass", "")
            assert (await store.jobs.add([new_job()]))[0].created


async def test_two_namespaces_in_one_database_do_not_see_each_other(url: str) -> None:
    async with await open_store(url, namespace="one") as one, await open_store(url, namespace="two") as two:
        job = new_job()
        assert (await one.jobs.add([job]))[0].created
        assert (await two.jobs.add([job]))[0].created


async def test_a_unix_socket(kind: str) -> None:
    with RedisServer(kind, {"unixsocket": "redis.sock"}) as server:
        async with await open_store(f"unix://{server.folder}/redis.sock?db=3") as store:
            assert (await store.jobs.add([new_job()]))[0].created
        assert server.ask("DBSIZE", database=3) > 0


@pytest.mark.parametrize(
    ("settings", "words", "level"),
    [
        ({}, "neither AOF nor RDB", logging.WARNING),
        ({"save": "3600 1"}, "RDB snapshots only", logging.WARNING),
        ({"appendonly": "yes", "appendfsync": "no"}, "appendfsync no", logging.WARNING),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "appendfsync everysec", logging.INFO),
        ({"appendonly": "yes", "appendfsync": "always"}, "appendfsync always", logging.INFO),
    ],
)
async def test_who_begins_to_work_says_once_what_the_server_keeps(
    kind: str, settings: dict[str, str], words: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="drumbeat")
    with RedisServer(kind, settings) as server:
        async with await open_redis(server) as store:
            assert not caplog.records
            await worker(store)
            await worker(store)
    [record] = caplog.records
    assert words in record.persistence  # type: ignore[attr-defined]
    assert record.levelno == level


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://h/jobs", "a database of Redis is a number"),
        ("redis://h:port", "Port"),
        ("redis://h?colour=red", "there is no option 'colour'"),
        ("redis://h?eviction=maybe", "eviction= may be accepted or refused"),
        ("redis://h?db=one", "db"),
        ("unix://host/run/redis.sock", "names no socket"),
        ("unix://", "names no socket"),
    ],
)
async def test_a_url_that_means_nothing_says_what_is_allowed(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        await open_store(url)


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys"])
def test_all_names_of_the_engine_are_known(scheme: str) -> None:
    url = f"{scheme}://ada:{SECRET}@host:6380/2?ssl_password={SECRET}"
    assert parse(url).engine == "redis"
    assert mask_url(url) == f"{scheme}://ada:•••@host:6380/2?ssl_password=•••"
    options = address_of(f"{scheme}://ada:{SECRET}@host:6380/2").options
    assert (options["host"], options["port"], options["db"], options["password"]) == ("host", 6380, 2, SECRET)


def test_the_driver_that_is_not_there_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "redis" or "store.redis" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("drumbeat.store.redis")
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError, match=r"pip install drumbeat\[redis\]"):
        transactional_for("redis://localhost")


def test_there_are_no_transactions_to_share() -> None:
    inside = transactional_for("redis://localhost")
    with pytest.raises(NotTransactional, match="Redis has no transactions"):
        inside.transaction()


def test_there_is_no_script_to_migrate_with() -> None:
    with pytest.raises(ConfigError, match="made ready when they are opened"):
        migration_script("redis://localhost")
