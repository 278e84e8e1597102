"""What keeps a program out is told in one line, without the password; while it runs the same is only an outage."""

import pytest

from drumbeat.errors import ConfigError, SchemaOutOfDate, StoreUnavailable
from drumbeat.store.postgres import PostgresStore, failures
from tests.contract.making import new_job
from tests.engines.postgres.conftest import at
from tests.servers.postgres import PASSWORD, PostgresServer, free_port


async def refusal(url: str, kind: type[Exception] = ConfigError) -> str:
    with pytest.raises(kind) as caught:
        await PostgresStore.open(at(url))
    said = str(caught.value)
    assert "\n" not in said
    assert PASSWORD not in said and "wrong-secret" not in said
    return said


async def test_a_wrong_password(server: PostgresServer) -> None:
    said = await refusal(server.url_of("postgres", password="wrong-secret"))
    assert "the password or the user name is wrong" in said
    assert "postgres:***@127.0.0.1" in said


async def test_a_database_that_does_not_exist(server: PostgresServer) -> None:
    assert "there is no such database" in await refusal(server.url_of("nowhere"))


async def test_a_role_that_may_not_connect(server: PostgresServer, url: str) -> None:
    name = url.rpartition("/")[2]
    await server.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{PASSWORD}'")
    await server.execute(f'REVOKE CONNECT ON DATABASE "{name}" FROM PUBLIC')
    assert "lacks a permission" in await refusal(server.url_of(name, user=name))


async def test_a_role_without_rights_on_the_tables(server: PostgresServer, url: str) -> None:
    name = url.rpartition("/")[2]
    await server.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{PASSWORD}'")
    said = await refusal(server.url_of(name, user=name))
    assert "lacks a permission" in said and "drumbeat" in said


async def test_a_database_without_tables(server: PostgresServer) -> None:
    said = await refusal(await server.create_database("bare"), SchemaOutOfDate)
    assert "drumbeat migrate" in said


async def test_a_read_only_server(server: PostgresServer, url: str) -> None:
    name = url.rpartition("/")[2]
    await server.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    assert "the server is read-only" in await refusal(url)


async def test_a_server_that_is_too_old(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "OLDEST", 99)
    assert "the server is PostgreSQL 18; 99 or newer is needed" in await refusal(url)


async def test_nobody_at_that_port() -> None:
    url = f"postgresql://postgres:{PASSWORD}@127.0.0.1:{free_port()}/postgres"
    assert "127.0.0.1" in await refusal(url, StoreUnavailable)


async def test_an_unknown_kind_of_pooler(url: str) -> None:
    with pytest.raises(ConfigError, match="pooler= may be transaction or session"):
        at(f"{url}?pooler=statement")


async def test_a_password_changed_while_running_is_an_outage(server: PostgresServer, url: str) -> None:
    name = url.rpartition("/")[2]
    await server.execute(f"CREATE ROLE \"{name}\" SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
    async with await PostgresStore.open(at(server.url_of(name, user=name))) as store:
        await server.execute(f"ALTER ROLE \"{name}\" PASSWORD 'another'")
        await server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", name)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await store.jobs.add([new_job()])
        await server.execute(f"ALTER ROLE \"{name}\" PASSWORD '{PASSWORD}'")
        assert (await store.jobs.add([new_job()]))[0].created
