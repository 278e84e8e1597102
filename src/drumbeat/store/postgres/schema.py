"""The tables of a PostgreSQL store: created and upgraded by `drumbeat migrate`, checked when a store is opened."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from drumbeat.clock import SYSTEM, Clock
from drumbeat.errors import SchemaOutOfDate
from drumbeat.names import check_namespace
from drumbeat.store import migrations
from drumbeat.store.migrations import Migration, SchemaVersion
from drumbeat.store.postgres.connections import LONG_TIMEOUT, PostgresAddress, PostgresConnection, Session
from drumbeat.store.postgres.error_translation import LATEST_VERSION as LATEST_VERSION
from drumbeat.store.postgres.error_translation import MIGRATIONS
from drumbeat.store.postgres.history import DAYS_AHEAD
from drumbeat.store.postgres.statements import in_schema, statements
from drumbeat.store.sqlfile import EngineStatements


async def migrate(address: PostgresAddress, namespace: str, *, clock: Clock = SYSTEM) -> tuple[int, int]:
    """Upgrade the tables of this namespace to the newest version that this code knows, all or nothing: (from, to).

    Safe for two at once: the second waits and finds nothing to do.

    Raises:
        ConfigError: access denied, a missing permission, or the server is read-only or too old.
        SchemaOutOfDate: the tables are newer, and require newer code.
        StoreUnavailable: no answer.
    """
    async with _connect(address, namespace, clock) as (connection, sql):
        return await connection.transact(lambda session: _migrate(sql, namespace, session), timeout=LONG_TIMEOUT)


async def read_schema(address: PostgresAddress, namespace: str, *, clock: Clock = SYSTEM) -> SchemaVersion:
    """The schema version of the store. Changes nothing."""
    async with _connect(address, namespace, clock) as (connection, sql):
        return await load_schema(connection, sql)


@asynccontextmanager
async def _connect(
    address: PostgresAddress, namespace: str, clock: Clock
) -> AsyncIterator[tuple[PostgresConnection, EngineStatements]]:
    sql = statements(check_namespace(namespace))
    connection = PostgresConnection(address, sql.schema, clock)
    try:
        yield connection, sql
    finally:
        await connection.close()


def script(namespace: str, after: int = 0) -> str:
    """What `migrate` does to a store of this version, as SQL that a person can read, change and run; empty if there is
    nothing."""
    check_namespace(namespace)
    if not MIGRATIONS[after:]:
        return ""
    parts = ["BEGIN;\n"]
    for migration in MIGRATIONS[after:]:
        parts += [in_schema(migration.sql, namespace), f"{_version_statement(namespace, migration)};\n"]
    ahead = statements(namespace).schema.days_ahead.replace("$1", str(DAYS_AHEAD))
    return "\n".join([*parts, f"{ahead};\n", "COMMIT;\n"])


async def check(connection: PostgresConnection, sql: EngineStatements) -> None:
    """Check that this code can run on these tables.

    Raises:
        SchemaOutOfDate: it cannot, with the command that helps.
    """
    found = await load_schema(connection, sql)
    if migrations.pending_migrations(MIGRATIONS, found):
        raise SchemaOutOfDate(found=found.version, known=LATEST_VERSION)


async def load_schema(connection: PostgresConnection, sql: EngineStatements) -> SchemaVersion:
    return await connection.call(lambda session: _load_schema(sql, session))


async def _load_schema(sql: EngineStatements, session: Session) -> SchemaVersion:
    if not await session.fetchval(sql.schema.has_meta):
        return SchemaVersion()
    facts: dict[str, Any] = {row["name"]: row["value"] for row in await session.fetch(sql.schema.version)}
    return SchemaVersion(version=facts.get("version", 0), oldest_code=facts.get("oldest_code", 0))


async def _migrate(sql: EngineStatements, namespace: str, session: Session) -> tuple[int, int]:
    await session.execute(sql.schema.lock, f"drumbeat migrate {namespace}")
    before = await _load_schema(sql, session)
    for migration in migrations.pending_migrations(MIGRATIONS, before):
        await session.execute(in_schema(migration.sql, namespace))
        await session.execute(_version_statement(namespace, migration))
    await session.execute(sql.schema.days_ahead, DAYS_AHEAD)
    return before.version, max(before.version, LATEST_VERSION)


def _version_statement(namespace: str, migration: Migration) -> str:
    numbers = {"$1": migration.number, "$2": migration.oldest_code}
    text = statements(namespace).schema.set_version
    for place, number in numbers.items():
        text = text.replace(place, str(number))
    return text
