"""Access errors are one line without the password; the same error of a running program is only an outage."""

from typing import Any

import pytest

from drumbeat.core.job import OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import ConfigError, SchemaOutOfDate, StoreFull, StoreUnavailable
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.postgres import PostgresStore, error_translation
from tests.contract.making import HOUR, claim, claimed_one, end, new_job, worker
from tests.engines.postgres.conftest import address_of
from tests.servers.ports import free_port
from tests.servers.postgres import PASSWORD, PostgresServer


async def refusal(url: str, kind: type[Exception] = ConfigError) -> str:
    with pytest.raises(kind) as caught:
        await PostgresStore.open(address_of(url))
    said = str(caught.value)
    assert "\n" not in said
    assert PASSWORD not in said and "wrong-secret" not in said
    return said


async def test_a_wrong_password(server: PostgresServer) -> None:
    said = await refusal(server.url_of("postgres", password="wrong-secret"))
    assert "the password or the user name is wrong" in said
    assert "postgres:•••@127.0.0.1" in said


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
    monkeypatch.setattr(error_translation, "MIN_SERVER_VERSION", 99)
    assert "the server is PostgreSQL 18; 99 or newer is needed" in await refusal(url)


async def test_a_port_without_a_server() -> None:
    url = f"postgresql://postgres:{PASSWORD}@127.0.0.1:{free_port()}/postgres"
    assert "127.0.0.1" in await refusal(url, StoreUnavailable)


async def test_an_unknown_kind_of_pooler(url: str) -> None:
    with pytest.raises(ConfigError, match="pooler= may be transaction or session"):
        address_of(f"{url}?pooler=statement")


async def test_a_password_changed_while_running_is_an_outage(server: PostgresServer, url: str) -> None:
    name = url.rpartition("/")[2]
    await server.execute(f"CREATE ROLE \"{name}\" SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
    async with await PostgresStore.open(address_of(server.url_of(name, user=name))) as store:
        await server.execute(f"ALTER ROLE \"{name}\" PASSWORD 'another'")
        await server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", name)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await store.jobs.add([new_job()])
        await server.execute(f"ALTER ROLE \"{name}\" PASSWORD '{PASSWORD}'")
        assert (await store.jobs.add([new_job()]))[0].created


def test_addresses_keep_what_is_the_drivers() -> None:
    for url in ("postgresql:///db?host=%2Frun%2Fpg", "postgresql://a,b:5433/db?target_session_attrs=primary"):
        assert address_of(url).dsn == url
    assert address_of("postgresql://h/db?pooler=transaction&sslmode=require").dsn == "postgresql://h/db?sslmode=require"
    assert address_of("postgresql://h/db?pooler=transaction").pooled
    assert not address_of("postgresql://h/db?pooler=session").pooled


def test_a_password_among_the_options_is_masked_too() -> None:
    shown = address_of("postgresql://h/db?user=ada&password=wrong-secret&sslmode=require").masked_url
    assert shown == "postgresql://h/db?user=ada&password=•••&sslmode=require"


async def test_a_role_that_owns_nothing_works_with_the_rights_it_was_given(server: PostgresServer, url: str) -> None:
    name = url.rpartition("/")[2]
    await server.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{PASSWORD}'")
    for right in (
        "USAGE ON SCHEMA drumbeat",
        "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA drumbeat",
    ):
        await server.execute(f'GRANT {right} TO "{name}"', database=name)
    async with await PostgresStore.open(address_of(server.url_of(name, user=name))) as store:
        instance = await worker(store)
        job = await claimed_one(store, instance)
        month_away = await store.inspect.now() + 30 * 24 * HOUR
        assert await end(store, instance, job, OutcomeKind.SUCCEEDED, finished_at=month_away) == "applied"


async def test_a_full_disk_raises_store_full_and_stores_nothing(postgres: PostgresStore, raw: Any) -> None:
    await raw.execute(
        """
        CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END $$;
        CREATE TRIGGER full_disk AFTER INSERT ON drumbeat.job EXECUTE FUNCTION full_disk();
        """
    )
    with pytest.raises(StoreFull, match="no space left"):
        await postgres.jobs.add([new_job()])
    await raw.execute("DROP TRIGGER full_disk ON drumbeat.job")
    assert await find_jobs(postgres, JobFilter()) == []


async def test_a_table_changed_by_a_migration_under_an_open_store(postgres: PostgresStore, raw: Any) -> None:
    instance = await worker(postgres)
    job = await claimed_one(postgres, instance)
    await end(postgres, instance, job, OutcomeKind.RETRY)
    await raw.execute(
        "ALTER TABLE drumbeat.job ADD COLUMN colour text; ALTER TABLE drumbeat.history ADD COLUMN colour text"
    )
    [again] = await claim(postgres, instance)
    assert await end(postgres, instance, again, OutcomeKind.RETRY) == "applied"
    assert (await get_job(postgres, job.id)).failures == 2
