"""The schema of SQLite is the sum of its migrations, and reads as schema.txt says."""

import re
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


def test_the_trigger_on_ends_reads_none_of_the_late_columns() -> None:
    """SQLite notes which columns a trigger needs in the 32 bits of a word: a later one makes it read all columns of each
    deleted row, which took half as long again."""
    db = sqlite3.connect(":memory:")
    for migration in MIGRATIONS:
        for statement in split_statements(migration.sql):
            db.execute(statement)
    columns = [row[1] for row in db.execute("PRAGMA table_info(drumbeat_job)")]
    [[trigger]] = db.execute("SELECT sql FROM sqlite_schema WHERE name = 'drumbeat_job_ended'")
    used = set(re.findall(r"OLD\.(\w+)", trigger))
    assert used == {"id", "schedule", "is_parent", "replays", "state", "queue", "lane"}
    assert max(columns.index(name) for name in used) < 32
    db.close()
