"""Tables are made by `migrate`: once, by however many at once, in whatever schema; other ages are refused with the way out."""

import asyncio
import re

import asyncpg
import pytest

from drumbeat.errors import SchemaOutOfDate
from drumbeat.store.postgres import PostgresStore, schema
from tests.contract.making import add, claim, new_job, worker
from tests.engines.postgres.conftest import address_of
from tests.servers.postgres import PostgresServer

COLUMNS = """
SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name
  FROM information_schema.columns WHERE table_schema = 'drumbeat' ORDER BY 1, 2"""
INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'drumbeat' ORDER BY 1"


async def fresh(server: PostgresServer, name: str) -> str:
    await server.drop_database(name)
    return await server.create_database(name)


async def test_migrating_twice_changes_nothing(server: PostgresServer) -> None:
    where = address_of(await fresh(server, "twice"))
    assert (await schema.read_schema(where, "drumbeat")).version == 0
    assert await schema.migrate(where, "drumbeat") == (0, schema.LATEST_VERSION)
    assert await schema.migrate(where, "drumbeat") == (schema.LATEST_VERSION, schema.LATEST_VERSION)
    assert (await schema.read_schema(where, "drumbeat")).version == schema.LATEST_VERSION
    assert schema.script("drumbeat", schema.LATEST_VERSION) == ""


async def test_many_who_migrate_at_once_migrate_once(server: PostgresServer) -> None:
    where = address_of(await fresh(server, "many"))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(schema.migrate(where, "drumbeat")) for _ in range(8)]
    assert sorted(task.result()[0] for task in tasks) == [0] + [schema.LATEST_VERSION] * 7


async def test_the_printed_script_makes_the_same_tables(server: PostgresServer, url: str) -> None:
    await fresh(server, "script")
    connection = await asyncpg.connect(server.url_of("script"))
    await connection.execute(schema.script("drumbeat"))
    await connection.close()
    made = url.rpartition("/")[2]
    for question in (COLUMNS, INDEXES):
        assert await server.execute(question, database="script") == await server.execute(question, database=made)
    async with await PostgresStore.open(address_of(server.url_of("script"))) as store:
        assert (await store.jobs.add([new_job()]))[0].created


async def test_namespaces_are_schemas_that_know_nothing_of_each_other(server: PostgresServer) -> None:
    where = address_of(await fresh(server, "spaces"))
    for namespace in ("shop", "order"):
        await schema.migrate(where, namespace)
    async with (
        await PostgresStore.open(where, namespace="shop") as shop,
        await PostgresStore.open(where, namespace="order") as order,
    ):
        [id] = await add(shop, new_job())
        assert await claim(order, await worker(order)) == []
        assert [job.id for job in await claim(shop, await worker(shop))] == [id]
    rows = await server.execute("SELECT DISTINCT table_schema::text FROM information_schema.tables", database="spaces")
    assert {row[0] for row in rows} >= {"shop", "order"}
    assert "drumbeat" not in {row[0] for row in rows}


async def test_no_word_of_the_default_namespace_is_left_in_another_ones_sql() -> None:
    text = re.sub(r"--.*", "", schema.script("shop"))
    assert "drumbeat" not in text


async def test_a_schema_beyond_this_code_is_refused_and_one_that_still_fits_is_used(
    server: PostgresServer, url: str
) -> None:
    name = url.rpartition("/")[2]
    newer = schema.LATEST_VERSION + 1
    await server.execute("UPDATE drumbeat.meta SET value = $1 WHERE name = 'version'", newer, database=name)
    async with await PostgresStore.open(address_of(url)) as store:
        assert (await store.jobs.add([new_job()]))[0].created
    await server.execute("UPDATE drumbeat.meta SET value = $1 WHERE name = 'oldest_code'", newer, database=name)
    with pytest.raises(SchemaOutOfDate, match="pip install --upgrade"):
        await PostgresStore.open(address_of(url))
    with pytest.raises(SchemaOutOfDate, match="pip install --upgrade"):
        await schema.migrate(address_of(url), "drumbeat")


async def test_an_older_schema_is_refused_with_the_command_that_helps(server: PostgresServer, url: str) -> None:
    await server.execute("UPDATE drumbeat.meta SET value = 0 WHERE name = 'version'", database=url.rpartition("/")[2])
    with pytest.raises(SchemaOutOfDate, match=r"run `drumbeat migrate`, in a Django project `manage\.py migrate`$"):
        await PostgresStore.open(address_of(url))
