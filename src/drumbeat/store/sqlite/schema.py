"""The tables of a SQLite store: created and upgraded when it is opened, inside the writer's turn."""

import sqlite3
from contextlib import closing
from pathlib import Path

from drumbeat.errors import ConfigError
from drumbeat.store import migrations
from drumbeat.store.sqlite.connection import SqliteConnection, translate_errors
from drumbeat.store.sqlite.statements import in_namespace, statements

# INSERT with ON CONFLICT after SELECT, UPDATE with FROM, json_each and friends built in nearly everywhere.
MIN_SQLITE_VERSION = (3, 35, 0)
MIGRATIONS = migrations.load_migrations("drumbeat.store.sqlite.migrations")
LATEST_VERSION = MIGRATIONS[-1].number


def upgrade(db: SqliteConnection, namespace: str) -> None:
    """Bring the tables of this namespace to the newest version that this code knows; all or nothing.

    Raises:
        SchemaOutOfDate: they are newer, and say that code of this age cannot use them.
    """
    if sqlite3.sqlite_version_info < MIN_SQLITE_VERSION:
        oldest = ".".join(map(str, MIN_SQLITE_VERSION))
        raise ConfigError(f"Python's SQLite is {sqlite3.sqlite_version}, Drumbeat needs {oldest} or newer", "url")
    if db.value("PRAGMA journal_mode") != "wal" and db.value("PRAGMA journal_mode = WAL") != "wal":
        raise ConfigError(
            "this file cannot be used with a write-ahead log: its file system has no shared memory", "url"
        )
    if not migrations.pending_migrations(MIGRATIONS, _read_schema(db, namespace)):
        return
    db.run("BEGIN IMMEDIATE")
    try:
        upgrade_in_transaction(db, namespace)
        db.run("COMMIT")
    finally:
        if db.in_transaction:
            db.run("ROLLBACK")


def upgrade_in_transaction(db: SqliteConnection, namespace: str) -> None:
    """The same inside a transaction that somebody else has begun: a program's first job may come before the store is opened."""
    sql = statements(namespace).schema
    for migration in migrations.pending_migrations(MIGRATIONS, _read_schema(db, namespace)):
        for statement in split_statements(in_namespace(migration.sql, namespace)):
            db.run(statement)
        db.run(sql.set_meta, {"name": "version", "value": migration.number})
        db.run(sql.set_meta, {"name": "oldest_code", "value": migration.oldest_code})


def read_schema(path: Path, namespace: str) -> migrations.SchemaVersion:
    """What the tables of this namespace say about themselves; nothing is created or changed."""
    if not path.exists():
        return migrations.SchemaVersion()
    with translate_errors(path), closing(SqliteConnection(path, read_only=True)) as db:
        return _read_schema(db, namespace)


def _read_schema(db: SqliteConnection, namespace: str) -> migrations.SchemaVersion:
    sql = statements(namespace).schema
    if not db.value(sql.has_meta):
        return migrations.SchemaVersion()
    return migrations.SchemaVersion(version=db.value(sql.version) or 0, oldest_code=db.value(sql.oldest_code) or 0)


def split_statements(script: str) -> list[str]:
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
