"""The tables of a PostgreSQL store: made and upgraded by `drumbeat migrate`, looked at when a store is opened."""

from typing import Any

from drumbeat.clock import SYSTEM, Clock
from drumbeat.errors import SchemaOutOfDate
from drumbeat.names import check_namespace
from drumbeat.store import migrate as migrations
from drumbeat.store.migrate import Migration, Schema
from drumbeat.store.postgres.connections import LONG, Address, Link, Session
from drumbeat.store.postgres.failures import KNOWN, MIGRATIONS
from drumbeat.store.postgres.history import AHEAD
from drumbeat.store.postgres.statements import Statements, in_schema, statements


async def migrate(address: Address, namespace: str, *, clock: Clock = SYSTEM) -> tuple[int, int]:
    """Bring the tables of this namespace to the newest version that this code knows, all or nothing: (from, to).

    Safe for two at once: the second waits and finds nothing to do.

    Raises:
        ConfigError: no entrance, no permission, or the server is read-only or too old.
        SchemaOutOfDate: the tables are newer, and say that code of this age cannot use them.
        StoreUnavailable: no answer.
    """
    sql = statements(check_namespace(namespace))
    link = Link(address, sql.schema, clock)
    try:
        return await link.transact(lambda session: _migrate(sql, namespace, session), patience=LONG)
    finally:
        await link.close()


async def look(address: Address, namespace: str, *, clock: Clock = SYSTEM) -> Schema:
    """What the store says about itself; nothing is changed."""
    sql = statements(check_namespace(namespace))
    link = Link(address, sql.schema, clock)
    try:
        return await found(link, sql)
    finally:
        await link.close()


def script(namespace: str, after: int = 0) -> str:
    """All that `migrate` does to a store of this version, as SQL that a person can read, change and run; or nothing."""
    check_namespace(namespace)
    if not MIGRATIONS[after:]:
        return ""
    parts = ["BEGIN;\n"]
    for migration in MIGRATIONS[after:]:
        parts += [in_schema(migration.sql, namespace), f"{_kept(namespace, migration)};\n"]
    ahead = statements(namespace).schema.ahead.replace("$1", str(AHEAD))
    return "\n".join([*parts, f"{ahead};\n", "COMMIT;\n"])


async def check(link: Link, sql: Statements) -> None:
    """Whether this code can run on these tables.

    Raises:
        SchemaOutOfDate: it cannot, with the command that helps.
    """
    there = await found(link, sql)
    if migrations.missing(MIGRATIONS, there):
        raise SchemaOutOfDate(found=there.version, known=KNOWN)


async def found(link: Link, sql: Statements) -> Schema:
    return await link.call(lambda session: _found(sql, session))


async def _found(sql: Statements, session: Session) -> Schema:
    if not await session.fetchval(sql.schema.has_meta):
        return Schema()
    facts: dict[str, Any] = {row["name"]: row["value"] for row in await session.fetch(sql.schema.version)}
    return Schema(version=facts.get("version", 0), oldest_code=facts.get("oldest_code", 0))


async def _migrate(sql: Statements, namespace: str, session: Session) -> tuple[int, int]:
    await session.execute(sql.schema.lock, f"drumbeat migrate {namespace}")
    before = await _found(sql, session)
    for migration in migrations.missing(MIGRATIONS, before):
        await session.execute(in_schema(migration.sql, namespace))
        await session.execute(_kept(namespace, migration))
    await session.execute(sql.schema.ahead, AHEAD)
    return before.version, max(before.version, KNOWN)


def _kept(namespace: str, migration: Migration) -> str:
    numbers = {"$1": migration.number, "$2": migration.oldest_code}
    text = statements(namespace).schema.keep
    for place, number in numbers.items():
        text = text.replace(place, str(number))
    return text
