"""The schema of SQLite is the sum of its migrations, and reads as schema.txt says."""

import sqlite3

from drumbeat.store.sqlite.schema import MIGRATIONS, split_statements
from tests.engines.schema_snapshot import RELEASED, changed_migrations, compare, describe_sqlite


def test_the_schema_after_all_migrations_is_the_one_that_is_checked_in() -> None:
    db = sqlite3.connect(":memory:")
    for migration in MIGRATIONS:
        for statement in split_statements(migration.sql):
            db.execute(statement)
    compare("sqlite", describe_sqlite(db))
    db.close()


def test_no_released_migration_has_changed() -> None:
    assert changed_migrations("sqlite", MIGRATIONS, RELEASED.read_text("utf-8")) == []
