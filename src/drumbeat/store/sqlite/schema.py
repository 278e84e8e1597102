"""The tables of a SQLite store: created and upgraded when it is opened, inside the writer's turn."""

import sqlite3
from contextlib import closing
from pathlib import Path

from drumbeat.errors import ConfigError
from drumbeat.store import migrate
from drumbeat.store.sqlfile import in_namespace, prefixed
from drumbeat.store.sqlite.connection import Connection, translated
from drumbeat.store.sqlite.statements import SCHEMA

# INSERT with ON CONFLICT after SELECT, UPDATE with FROM, json_each and friends built in nearly everywhere.
OLDEST_SQLITE = (3, 35, 0)
MIGRATIONS = migrate.load("drumbeat.store.sqlite.migrations")
KNOWN = MIGRATIONS[-1].number


def upgrade(db: Connection, namespace: str) -> None:
    """Bring the tables of this namespace to the newest version that this code knows; all or nothing.

    Raises:
        SchemaOutOfDate: they are newer, and say that code of this age cannot use them.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise ConfigError(f"Python's SQLite is {sqlite3.sqlite_version}, Drumbeat needs {oldest} or newer", "url")
    if db.value("PRAGMA journal_mode") != "wal" and db.value("PRAGMA journal_mode = WAL") != "wal":
        raise ConfigError(
            "this file cannot be used with a write-ahead log: its file system has no shared memory", "url"
        )
    if not migrate.missing(MIGRATIONS, _found(db, namespace)):
        return
    db.run("BEGIN IMMEDIATE")
    try:
        upgrade_within(db, namespace)
        db.run("COMMIT")
    finally:
        if db.in_transaction:
            db.run("ROLLBACK")


def upgrade_within(db: Connection, namespace: str) -> None:
    """The same inside a transaction that somebody else has begun: a program's first job may come before the store is opened."""
    sql = prefixed(SCHEMA, namespace)
    for migration in migrate.missing(MIGRATIONS, _found(db, namespace)):
        for statement in statements(in_namespace(migration.sql, namespace)):
            db.run(statement)
        db.run(sql.keep, {"name": "version", "value": migration.number})
        db.run(sql.keep, {"name": "oldest_code", "value": migration.oldest_code})


def look(path: Path, namespace: str) -> migrate.Schema:
    """What the tables of this namespace say about themselves; nothing is created or changed."""
    if not path.exists():
        return migrate.Schema()
    with translated(path), closing(Connection(path, read_only=True)) as db:
        return _found(db, namespace)


def _found(db: Connection, namespace: str) -> migrate.Schema:
    sql = prefixed(SCHEMA, namespace)
    if not db.value(sql.has_meta):
        return migrate.Schema()
    return migrate.Schema(version=db.value(sql.version) or 0, oldest_code=db.value(sql.oldest_code) or 0)


def statements(script: str) -> list[str]:
    """One by one: sqlite3's executescript would commit the transaction first."""
    found: list[str] = []
    rest = ""
    for line in script.splitlines(keepends=True):
        if not line.lstrip().startswith("--"):
            rest += line
        if rest.strip() and sqlite3.complete_statement(rest):
            found.append(rest.strip())
            rest = ""
    return found
